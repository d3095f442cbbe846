"""What one needs to cite a report or to make it again: when, with what, on what, by which command, and how to refer."""

from __future__ import annotations

import shlex
from argparse import ArgumentTypeError
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from urllib.parse import urljoin

from analysis.labels import hardware, model_of, shared, task_of
from analysis.study import Study
from analysis.text import clipped, html, plain
from analysis.web.document import facts_list
from lopa_bench.records.runs import Run
from lopa_bench.system.clock import now
from lopa_bench.system.environment import git_revision, product_version

ARTICLE = "https://arxiv.org/abs/2512.16229"
ARTICLE_NAME = "LoPA, arXiv 2512.16229"
MOST = 6  # commands that are shown
TITLE = "Benchmark report: decoding of diffusion language models"


@dataclass(frozen=True)
class Made:
    """How a report came to be. `url`: where it will stand, which pictures of links need. `revision`: of the code that
    writes it, which need not be that of the runs.
    """

    command: str = "python -m analysis report"
    url: str = ""
    date: str = field(default_factory=lambda: now()[:10])
    revision: str | None = field(default_factory=git_revision)


def url(text: str) -> str:
    """As the command line takes it."""
    if not text.startswith(("https://", "http://")):
        raise ArgumentTypeError(f"{text!r} is not allowed; allowed: an address that begins with https://")
    return text


def count(text: str) -> int:
    if not text.isdecimal():
        raise ArgumentTypeError(f"{text!r} is not allowed; allowed: a whole number from 0")
    return int(text)


def facts(study: Study, made: Made) -> Iterator[tuple[str, str]]:
    """Names and values of what the report is about."""
    runs = study.runs
    yield "written", f"{made.date} by lopa-bench {_code(product_version(), made.revision)}"
    if runs:
        yield "runs", f"{len(runs)}, {_span([run.created[:10] for run in runs])}, made by {_versions(runs)}"
        yield "models", clipped(shared([model_of(run) for run in runs]), 300)
        yield "problems", clipped(shared([task_of(run) for run in runs]), 300)
        yield "hardware", clipped(shared([hardware(run) for run in runs]), 300)
    yield "command", made.command


def commands(runs: Sequence[Run]) -> list[str]:
    """What was typed for each run, each once."""
    typed = dict.fromkeys(command_of(run) for run in runs if run.row["argv"])
    return list(typed)


def command_of(run: Run) -> str:
    return plain("python -m lopa_bench " + shlex.join(map(str, run.row["argv"] or ())))


def _span(days: Sequence[str]) -> str:
    first, last = min(days), max(days)
    return f"of {first}" if first == last else f"of {first} to {last}"


def _versions(runs: Sequence[Run]) -> str:
    found = dict.fromkeys(plain(_version(run)) for run in runs)
    shown = list(found)[:3]
    return "lopa-bench " + ", ".join(shown) + (f" and {len(found) - 3} more" if len(found) > 3 else "")


def _version(run: Run) -> str:
    return _code(run.row["version"], run.row["git_revision"])


def _code(version: str, revision: str | None) -> str:
    """A version and its commit, be it with changes: "0.1.0 (89abcdef01+changes)"."""
    commit, *changes = (revision or "").split("+")
    return f"{version} ({'+'.join([commit[:10], *changes])})" if revision else version


def bibtex(study: Study, made: Made) -> str:
    """For the report; the article has an entry of its own."""
    url = f"  url     = {{{_tex(made.url)}}},\n" if made.url else ""
    report = (
        f"@misc{{lopa_bench_report_{made.date.replace('-', '_')},\n"
        f"  title   = {{Decoding of diffusion language models: a benchmark report of {len(study.runs)} runs}},\n"
        f"  author  = {{{{lopa-bench {_tex(_code(product_version(), made.revision))}}}}},\n"
        f"  year    = {{{made.date[:4]}}},\n{url}"
        f"  note    = {{{_tex(made.command)}; {_tex(made.date)}}}\n}}"
    )
    article = (
        "@misc{xu2025lopa,\n  title         = {{LoPA}: Scaling {dLLM} Inference via Lookahead Parallel Decoding},\n"
        "  author        = {Xu, Chenkai and Jin, Yijie and Li, Jiajun and Tu, Yi and Long, Guoping and Tu, Dandan and\n"
        "                   Song, Mingcong and Si, Hongjie and Hou, Tianqi and Yan, Junchi and Deng, Zhijie},\n"
        "  year          = {2025},\n  eprint        = {2512.16229},\n  archiveprefix = {arXiv}\n}"
    )
    return f"{report}\n\n{article}"


def _tex(text: str) -> str:
    return "".join(f"\\{sign}" if sign in "&%$#_{}" else sign for sign in plain(text).replace("\\", "/"))


def meta(title: str, description: str, made: Made, picture: str | None) -> str:
    """What other sites show of a link."""
    shown = {"og:title": title, "og:description": description, "og:type": "article"}
    if made.url:
        shown["og:url"] = made.url
        if picture:
            shown["og:image"] = urljoin(made.url, picture)
    tags = "".join(f'<meta property="{name}" content="{html(text)}">' for name, text in shown.items())
    return f'<meta name="description" content="{html(description)}">{tags}'


def section(study: Study, made: Made) -> str:
    """How to cite the report and how to make it again."""
    typed = commands(study.runs)
    more = f"\n# and {len(typed) - MOST} more, each on the page of its run" if len(typed) > MOST else ""
    lines = "\n".join(clipped(one, 400) for one in typed[:MOST]) + more
    again = f'<h3>The commands of the runs</h3><pre tabindex="0">{_lines(lines)}</pre>' if typed else ""
    return (
        f'{facts_list(list(facts(study, made)))}<p>The article: <a href="{ARTICLE}">{ARTICLE_NAME}</a>. This project '
        f'is not by its authors.</p>{again}<h3>BibTeX</h3><pre tabindex="0">{_lines(bibtex(study, made))}</pre>'
    )


def _lines(text: str) -> str:
    return "\n".join(map(html, text.split("\n")))
