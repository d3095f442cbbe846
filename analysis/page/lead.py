"""The first screen of the report: a sentence, the runs in a table that sorts and filters, and their Pareto picture."""

from __future__ import annotations

from collections.abc import Iterator

from analysis.figures.style import one_column
from analysis.figures.tradeoffs import lead
from analysis.labels import decoding, model_of, task_of
from analysis.page.leaderboard import MEASURES, PRESET, Entry, Leaderboard, against_words, difference_of
from analysis.page.sentence import sentence
from analysis.page.svg import Palette, pictures
from analysis.study import Study
from analysis.text import clipped, html, typeset
from analysis.web.document import files
from lopa_bench.console.numbers import fixed
from lopa_bench.metrics.presets import PRESETS
from lopa_bench.metrics.statistics import Estimate

LONGEST = 60  # characters of a name in a cell; the whole of it is on the page of its run
NOTE = (
    "Ranges are 95 % intervals; rows on other problems, models or machines are no match for each other. Against its "
    "base: ratios and differences over the same problems, lookahead beside its base decoder, others beside greedy; p "
    "is McNemar's, adjusted for all comparisons of this page. No significant loss: not "
    "significantly below the base by the p that is not adjusted, which over few problems is no proof of equality."
)


def leading(board: Leaderboard, palette: Palette) -> str:
    """The section's HTML."""
    picture = _picture(board.study, palette)
    table = _table(board)
    links = [("CSV", "tables/leaderboard.csv"), ("Markdown", "tables/leaderboard.md")]
    return (
        f'<p class="sentence" id="sentence">{html(sentence(board))}</p>'
        f'<div class="lead{" with-picture" if picture else ""}"><div>{_controls(len(board.entries))}{table}'
        f'<p class="notes">{html(NOTE)} Counting preset {PRESET}: {html(PRESETS[PRESET].formula)}.</p>'
        f"{files('This table:', links)}</div>{picture}</div>"
    )


def _controls(count: int) -> str:
    return (
        '<div class="controls" data-for="board"><label>Filter <input type="search" placeholder="decoder, model, task, '
        'setting ..." aria-controls="board"></label>'
        f'<span role="status" class="count">{count} run{"s" if count != 1 else ""}</span></div>'
    )


def _table(board: Leaderboard) -> str:
    heads = "".join(
        f'<th scope="col"{kind}><button type="button" title="{html(about)}">{html(text)}</button></th>'
        for text, kind, about in _heads()
    )
    rows = "".join(_row(entry) for entry in board.entries)
    return (
        '<div class="board-box"><table id="board" class="board" data-sortable><caption>Runs, the fastest of each group '
        f"first</caption><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _heads() -> Iterator[tuple[str, str, str]]:
    words, numbers = ' class="words"', ' data-first="high"'
    yield "decoder", words, "sort by decoder"
    yield "model, task", words, "sort by model and task"
    yield "n", numbers, "samples, those that failed included"
    for measure in MEASURES:
        first = ' data-first="low"' if measure.key == "latency_s" else numbers
        yield measure.title, first, measure.about
    yield "against its base", words + numbers, "sort by the difference in score"


def _row(entry: Entry) -> str:
    run, against = entry.run, entry.against
    name = clipped(decoding(run), LONGEST).replace(" = ", "\u00a0=\u00a0")
    settings = f'<small class="settings">{html(clipped(entry.settings, LONGEST))}</small>' if entry.settings else ""
    if entry.tried is not None:
        settings += f"<small>{f'one of {entry.tried} settings tried' if entry.tried > 1 else 'not tuned'}</small>"
    marks = "".join(f'<span class="mark">{mark}</span>' for mark in entry.marks)
    count = f"{entry.n} sample{'s' if entry.n != 1 else ''}"
    link = f'<a href="{html(entry.page)}" aria-label="{count} and replays of {html(name)}">{count} and replays</a>'
    model, task = clipped(model_of(run), LONGEST), clipped(task_of(run), LONGEST)
    difference = None if against is None else difference_of(against)
    lines = "".join(f"<span>{html(line)}</span>" for line in against_words(against)) or "–"
    numbers = "".join(_number(entry.values[measure.key], measure.title, measure.digits) for measure in MEASURES)
    return (
        f'<tr><th scope="row" data-v="{html(name)}"><b>{html(name)}</b>{settings}{marks}<small>{link}</small></th>'
        f'<td class="words" data-label="model, task" data-v="{html(f"{model} {task}")}">{html(model)}'
        f'<small>{html(task)}</small></td><td data-label="n" data-v="{entry.n}">{entry.n}</td>{numbers}'
        f'<td class="words against" data-label="against its base" data-v="{_sortable(difference)}">{lines}</td></tr>'
    )


def _number(value: Estimate, label: str, digits: int) -> str:
    interval = value.interval
    low_high = f"{fixed(interval[0], digits)} to {fixed(interval[1], digits)}" if interval else ""
    small = f"<small>{typeset(low_high)}</small>" if low_high else ""
    return (
        f'<td data-label="{html(label)}" data-v="{_sortable(value.value)}">{typeset(fixed(value.value, digits))}'
        f"{small}</td>"
    )


def _sortable(value: float | None) -> str:
    return "" if value is None else f"{value:.9g}"


def _picture(study: Study, palette: Palette) -> str:
    with one_column():
        figure = lead(study)
    if figure is None:
        return ""
    drawn = "".join(pictures(figure, "lead", palette))
    return (
        '<figure class="lead-picture"><div class="panels" data-tips tabindex="0" role="group" aria-label="Score '
        'against TPF of the largest group of runs; arrow keys go from point to point">'
        f"{drawn}</div><figcaption>Upper right is better. The line joins the runs that no other beats in both; "
        'point at a run for its numbers. <a href="#accuracy_tpf">All groups</a></figcaption></figure>'
    )
