"""`python -m analysis`: tables, figures, the report, comparisons and replays from the rows of runs."""

from __future__ import annotations

import argparse
import re
import shlex
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from lopa_bench.console.numbers import plain, plain_lines
from lopa_bench.errors import StorageError
from lopa_bench.metrics.presets import PRESETS
from lopa_bench.system.streams import secure

if TYPE_CHECKING:
    from lopa_bench.records.runs import Run

ERRORS = (ValueError, OSError, StorageError)  # RunError and PresetError are ValueErrors


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command. Exit status: 0 done, 2 a run or a name that is not there."""
    words = list(sys.argv[1:] if arguments is None else arguments) or ["--help"]
    options = _parser().parse_args(words)
    options.words = words
    try:
        options.act(options)
    except ERRORS as error:
        print(plain_lines(f"error: {error}"), file=sys.stderr)
        return 2
    return 0


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """One line, with the commands that a misspelt one comes near to."""
        if found := re.match(r"argument COMMAND: invalid choice: '(.*?)' \(choose from (.*)\)$", message, re.DOTALL):
            names = re.findall(r"[\w-]+", found[2])
            near = get_close_matches(found[1], names)
            hint = f"; did you mean {' or '.join(near)}?" if near else ""
            message = f"{plain(found[1])} is no command; allowed: {', '.join(names)}{hint}"
        self.exit(2, f"error: {message}\n")


def _parser() -> argparse.ArgumentParser:
    from analysis.figures.registry import FIGURES
    from analysis.page import about
    from analysis.page.samples import REPLAYS
    from analysis.tables.article import TABLES

    parser = _Parser(prog="python -m analysis", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    report = commands.add_parser("report", help="everything, as OUTPUTS/report/index.html with all files beside it")
    report.set_defaults(act=_report)
    _add_outputs(report)
    report.add_argument("--url", type=about.url, help="where the page will stand; links to it then have a picture")
    report.add_argument(
        "--replays", type=about.count, default=REPLAYS, metavar="N", help="samples that get a replay, %(default)s"
    )
    for name in TABLES:
        table = commands.add_parser(name, help=f"{name[:-1]} {name[-1]} of the article, as Markdown and as files")
        table.set_defaults(act=_table)
        _add_outputs(table)
    protocols = commands.add_parser("protocols", help="published protocols beside the runs that have their settings")
    protocols.set_defaults(act=_protocols)
    _add_outputs(protocols)
    for plot in FIGURES.values():
        figure = commands.add_parser(plot.name, help=f"figure: {plot.title}")
        figure.set_defaults(act=_arena if plot.name == "arena" else _figure)
        _add_outputs(figure)
    imported = commands.add_parser(
        "import", help="runs of lm-eval, Fast-dLLM, D2F, d3LLM, d2Cache, evalplus, from their files"
    )
    imported.add_argument("files", nargs="+", type=Path, metavar="FILE", help="files, or folders that hold them")
    imported.add_argument("--task", help="the task, where the files do not name it")
    imported.add_argument(
        "--source", help="the problems: as task.source; default: the documents in the file, else the Hub"
    )
    imported.add_argument("--model", help="what the model is to be called")
    imported.add_argument("--decoder", default="unknown", help="what the decoder is to be called")
    imported.add_argument("--outputs", type=Path, default=Path("outputs"))
    imported.set_defaults(act=_import)
    invariance = commands.add_parser("invariance", help="one setting, computed in several ways: which samples change")
    invariance.set_defaults(act=_invariance)
    _add_outputs(invariance)
    compare = commands.add_parser("compare", help="two runs on the same problems, pair by pair")
    compare.add_argument("run_a", help="folder, run id, or a part of an id that no other run has")
    compare.add_argument("run_b")
    compare.add_argument("--preset", default="effective", choices=sorted(PRESETS), help="counting preset")
    compare.add_argument("--outputs", type=Path, default=Path("outputs"))
    compare.set_defaults(act=_compare)
    cost = commands.add_parser(
        "cost", help="the cost model: predicted TPS over k and devices, beside the article's table 4"
    )
    cost.add_argument("--device", default="h200", help="a name of lopa_bench/cost/devices.yaml")
    cost.add_argument("--runs", nargs="+", metavar="RUN", default=[], help="recorded runs whose TPF is drawn too")
    cost.add_argument("--model", help="whose sizes the recorded runs get; default: their own model's")
    cost.add_argument("--preset", default="effective", choices=sorted(PRESETS), help="how their tokens are counted")
    cost.add_argument("--outputs", type=Path, default=Path("outputs"))
    cost.add_argument("--to", type=Path, help="where to write; default: OUTPUTS/report")
    cost.set_defaults(act=_cost)
    replay = commands.add_parser(
        "replay", help="one sample as a page, call by call or by the clock; up to four runs side by side"
    )
    replay.add_argument("runs", nargs="+", metavar="RUN", help="up to four runs")
    replay.add_argument("--sample", help="problem id, or its position from 0; default: one that all runs solved")
    replay.add_argument("--outputs", type=Path, default=Path("outputs"))
    replay.add_argument("--out", type=Path, help="the page; default: OUTPUTS/report/replay-<sample>.html")
    replay.set_defaults(act=_replay)
    race = commands.add_parser("race", help="several runs on one problem by the clock, as a GIF or MP4")
    race.add_argument("runs", nargs="+", metavar="RUN", help="up to six runs")
    race.add_argument("--sample", help="problem id, or its position from 0; default: one that all runs solved")
    race.add_argument("--outputs", type=Path, default=Path("outputs"))
    where = "FILE.gif, or FILE.mp4 where ffmpeg is; default: OUTPUTS/report/race-<sample>.gif"
    race.add_argument("--gif", "--out", dest="out", type=Path, metavar="FILE", help=where)
    race.set_defaults(act=_race)
    return parser


def _add_outputs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "outputs", nargs="?", type=Path, default=Path("outputs"), help="folder that runs were written to"
    )
    parser.add_argument("--to", type=Path, help="where to write; default: OUTPUTS/report")


def _target(options: argparse.Namespace) -> Path:
    return options.to or options.outputs / "report"


def _report(options: argparse.Namespace) -> None:
    from analysis.page.about import Made
    from analysis.report import write_report
    from analysis.study import Study

    typed = shlex.join(["python", "-m", "analysis", *options.words])
    made = Made(command=typed, url=options.url or "")
    print(write_report(Study.finished(options.outputs), _target(options), made, options.replays))


def _table(options: argparse.Namespace) -> None:
    from analysis.study import Study
    from analysis.tables.article import TABLES
    from analysis.tables.render import to_markdown, write_table

    table = TABLES[options.command](Study.finished(options.outputs))
    print(to_markdown(table))
    for path in write_table(table, _target(options) / "tables"):
        print(path)


def _protocols(options: argparse.Namespace) -> None:
    from analysis.protocols.table import protocol_table
    from analysis.study import Study
    from analysis.tables.render import to_markdown, write_table

    table = protocol_table(Study.finished(options.outputs))
    print(to_markdown(table))
    for path in write_table(table, _target(options) / "tables", ("csv", "md")):
        print(path)


def _figure(options: argparse.Namespace) -> None:
    from analysis.figures.registry import FIGURES
    from analysis.figures.style import save
    from analysis.study import Study

    plot = FIGURES[options.command]
    figure = plot.draw(Study.finished(options.outputs))
    if figure is None:
        raise ValueError(f"no run under {options.outputs} can answer this figure; it reads {plot.reads}")
    folder = _target(options) / "figures"
    folder.mkdir(parents=True, exist_ok=True)
    path = save(figure, folder, plot.name, plot.caption)
    print(path, path.with_suffix(".pdf"), sep="\n")


def _arena(options: argparse.Namespace) -> None:
    """In numbers first: the whole table is the report's, this one fits a screen."""
    from analysis.arena.brief import brief_table
    from analysis.study import Study
    from analysis.tables.render import to_markdown, write_table

    table = brief_table(Study.finished(options.outputs))
    if not table.rows:
        raise ValueError(f"no run under {options.outputs} is on a split (task.rows): +experiment=arena/mini")
    print(to_markdown(table))
    for path in write_table(table, _target(options) / "tables"):
        print(path)
    _figure(options)


def _invariance(options: argparse.Namespace) -> None:
    from analysis.study import Study
    from analysis.tables.invariance import tables
    from analysis.tables.render import to_markdown, write_table

    found = tables(Study.finished(options.outputs).runs)
    if not found[0].rows:
        raise ValueError(
            f"no two finished runs under {options.outputs} differ in nothing but how they computed (batch, dtype, "
            "device, attention kernel): python -m lopa_bench +experiment=invariance makes some"
        )
    for table in found:
        print(to_markdown(table))
        for path in write_table(table, _target(options) / "tables"):
            print(path)


def _cost(options: argparse.Namespace) -> None:
    from analysis.figures.cost import write_cost

    print(
        *write_cost(options.device, options.runs, options.preset, options.model, options.outputs, _target(options)),
        sep="\n",
    )


def _compare(options: argparse.Namespace) -> None:
    from analysis.comparisons import compare, in_words
    from lopa_bench.records.finding import find_run

    a, b = (find_run(name, options.outputs) for name in (options.run_a, options.run_b))
    print(in_words(compare(a, b, options.preset)))


def _import(options: argparse.Namespace) -> None:
    from analysis.imported.formats import read_logs
    from analysis.imported.run import Told, import_log
    from lopa_bench.console.numbers import number, percent

    told = Told(options.task, options.source, options.model, options.decoder)
    for log in read_logs(options.files):
        found = import_log(log, told, options.outputs)
        if not found.is_new:
            print(f"imported before: {found.folder}")
            continue
        numbers = found.numbers
        parts = [
            f"n = {numbers['n']}",
            f"{percent(numbers['accuracy'])} right by our scorer",
            f"TPF {number(numbers['tpf'])}",
        ]
        if found.judged_by_both:
            which = f" ({', '.join(found.apart[:5])}{', ...' if len(found.apart) > 5 else ''})" if found.apart else ""
            parts.append(f"the tool's own verdict differs on {len(found.apart)} of {found.judged_by_both}{which}")
        print(f"{found.folder}\n  {plain('; '.join(parts))}")


def _replay(options: argparse.Namespace) -> None:
    from analysis.replay.page import page
    from analysis.replay.select import MOST_SIDES
    from analysis.text import file_name

    if len(options.runs) > MOST_SIDES:
        raise ValueError(f"a replay shows up to {MOST_SIDES} runs, not {len(options.runs)}")
    _, sample, traces = _traces(options)
    path = options.out or options.outputs / "report" / f"replay-{file_name(sample)}.html"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page(traces), encoding="utf-8")
    print(path)


def _race(options: argparse.Namespace) -> None:
    from analysis.replay.film import film
    from analysis.replay.race import about, caption
    from analysis.text import file_name

    runs, sample, traces = _traces(options)
    path = options.out or options.outputs / "report" / f"race-{file_name(sample)}.gif"
    film(traces, [about(run) for run in runs], caption(runs, sample), path)
    print(path)


def _traces(options: argparse.Namespace) -> tuple[list[Run], str, list[dict[str, Any]]]:
    """The runs of a replay or a race, the problem that they show, and each run's way through it."""
    from analysis.replay.select import telling_sample
    from analysis.replay.trace import sample_ids, trace
    from lopa_bench.records.finding import find_run

    runs = [find_run(name, options.outputs) for name in options.runs]
    for run in runs:
        run.check_whole()
    ids = sample_ids(runs[0])
    sample = options.sample or telling_sample(runs)
    if sample is not None and sample not in ids and sample.isdecimal() and int(sample) < len(ids):
        sample = ids[int(sample)]
    if sample is None:
        raise ValueError(f"there is no problem that {' and '.join(run.id for run in runs)} all decoded")
    return runs, sample, [trace(run, sample) for run in runs]


if __name__ == "__main__":
    secure()
    sys.exit(main())
