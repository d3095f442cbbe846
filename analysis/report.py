"""The whole report: a page that works from disk, and every table and figure as files beside it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

from analysis.arena.choice import arenas
from analysis.arena.tables import arena_aup_table, arena_table
from analysis.figures.registry import FIGURES
from analysis.figures.style import Plot, one_column, save
from analysis.labels import model_of, shared, task_of, varied
from analysis.page.about import TITLE, Made, meta, section
from analysis.page.lead import leading
from analysis.page.leaderboard import Leaderboard, leaderboard_table
from analysis.page.samples import REPLAYS, write_samples
from analysis.page.sentence import sentence
from analysis.page.svg import Palette, pictures
from analysis.protocols.table import protocol_table
from analysis.replay.page import fragment
from analysis.replay.page import page as replay_page
from analysis.replay.select import sides, telling_sample
from analysis.replay.trace import trace
from analysis.study import Study
from analysis.tables.article import TABLES
from analysis.tables.lists import aup_points_table, aup_table, comparison_table, run_table
from analysis.tables.model import Table
from analysis.tables.published import notes
from analysis.tables.render import to_html, write_table
from analysis.text import html
from analysis.web.document import document, files, scripts, styles
from lopa_bench.errors import RunError

OPEN = ("arena", "accuracy_tpf", "tps_tpf", "lookahead_cost")  # figures that are not folded

log = logging.getLogger(__name__)


def write_report(study: Study, folder: Path, made: Made | None = None, replays: int = REPLAYS) -> Path:
    """Writes everything and returns the page's path. `made`: what the page says of its making. `replays`: of how many
    samples it holds a replay.
    """
    made = made or Made()
    for name in ("tables", "figures"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    board, palette = Leaderboard(study), Palette()
    write_table(leaderboard_table(board), folder / "tables", ("csv", "md"))
    write_samples(study, board.entries, folder, replays)
    sections = [
        ("leaderboard", "Runs", leading(board, palette)),
        *_arena(study, folder, palette),
        ("replay", "Replay", _replay_section(board, folder)),
        ("figures", "Figures", _figures(study, folder, palette)),
        ("comparisons", "Comparisons", _comparisons(study, board, folder)),
        ("tables", "Tables of the article", _tables(study, folder)),
        (
            "protocols",
            "Published protocols",
            _folded("Beside the runs that have their settings", _list(protocol_table(study), folder)),
        ),
        (
            "runs",
            "Every run that was found",
            _folded("Those left out included", _list(run_table(study), folder)),
        ),
        ("cite", "Cite and make again", section(study, made)),
    ]
    page = folder / "index.html"
    page.write_text(_page(study, board, sections, palette, made), encoding="utf-8")
    return page


def _arena(study: Study, folder: Path, palette: Palette) -> list[tuple[str, str, str]]:
    """What leads the report where there are runs on a split."""
    if not arenas(study):
        return []
    parts = [_list(arena_table(study), folder), _figure_section(study, FIGURES["arena"], folder, palette)]
    return [("arena-lead", "Arena", "".join([*parts, _list(arena_aup_table(study), folder)]))]


def _tables(study: Study, folder: Path) -> str:
    switch = (
        '<p><label class="switch"><input type="checkbox" id="with-empty"> also rows that no run answers</label></p>'
        '<p class="note">The article\'s rows beside runs that answer them. Most need its models and benchmarks.</p>'
    )
    return switch + "".join(_table_section(study, name, folder) for name in TABLES)


def _table_section(study: Study, name: str, folder: Path) -> str:
    table = TABLES[name](study)
    paths = write_table(table, folder / "tables")
    links = files("This table:", [(path.suffix[1:].upper(), f"tables/{path.name}") for path in paths])
    answered = sum(kind != "none" for kind in table.kinds)
    summary = f"{html(table.caption)} <small>({answered} of {len(table.rows)} rows have a run)</small>"
    return f'<details class="table" id="{name}"><summary>{summary}</summary>{to_html(table)}{links}</details>'


def _folded(summary: str, inner: str) -> str:
    return f"<details><summary>{html(summary)}</summary>{inner}</details>"


def _figures(study: Study, folder: Path, palette: Palette) -> str:
    """Those that no run answers are told in one list."""
    plots = [plot for plot in FIGURES.values() if plot.name != "arena"]
    drawn = {plot.name: _figure_section(study, plot, folder, palette) for plot in plots}
    ordered = sorted((plot for plot in plots if drawn[plot.name]), key=lambda plot: plot.name not in OPEN)
    missing = [plot for plot in plots if not drawn[plot.name]]
    items = "".join(f"<li>{html(plot.title)}: reads {html(plot.reads)}</li>" for plot in missing)
    rest = _folded(f"{len(missing)} figures that no run answers yet", f"<ul>{items}</ul>") if missing else ""
    return "".join(drawn[plot.name] for plot in ordered) + rest


def _figure_section(study: Study, plot: Plot, folder: Path, palette: Palette) -> str:
    """On the page panel by panel; the files hold all panels and the caption. Empty where no run answers."""
    figure = plot.draw(study)
    if figure is None:
        return ""
    title = _figure_title(plot)
    head, end = f'<details class="figure" id="{plot.name}"><summary>{title}</summary>', "</details>"
    if plot.name in OPEN:
        head, end = f'<section id="{plot.name}"><h3>{title}</h3>', "</section>"
    save(figure, folder / "figures", plot.name, plot.caption)
    with one_column():
        apart = plot.draw(study)
    assert apart is not None
    drawn = "".join(pictures(apart, plot.name, palette))
    said = "".join(f"<br>Publication: {html(note)}" for note in notes(plot.name))
    more = figure.get_suptitle()
    links = [(text, f"figures/{plot.name}.{suffix}") for text, suffix in (("PNG", "png"), ("PDF", "pdf"))]
    label = html(f"{plot.title}; arrow keys go from point to point")
    return (
        f'{head}<figure><div class="panels" data-tips tabindex="0" role="group" aria-label="{label}">{drawn}</div>'
        f"<figcaption>{html(more)}{' ' if more else ''}{html(plot.caption)}{said}</figcaption>"
        f"{files('This figure:', links)}</figure>{end}"
    )


def _figure_title(plot: Plot) -> str:
    number = plot.name.removeprefix("figure")
    return f"Figure {number}. {html(plot.title)}" if number.isdecimal() else html(plot.title)


def _replay_section(board: Leaderboard, folder: Path) -> str:
    runs = sides(board.study, [entry.run for entry in board.entries if entry.is_fastest_without_loss])
    sample = telling_sample(runs) if runs else None
    if sample is None:
        return '<p class="note">No lookahead stands beside its base. The samples of each run, above, have replays.</p>'
    try:
        traces = [trace(run, sample) for run in runs]
    except RunError as error:
        return f'<p class="note">No replay: {html(str(error))}</p>'
    (folder / "replay.html").write_text(replay_page(traces), encoding="utf-8")
    names = [", ".join(filter(None, (one["title"], varied(run, runs)))) for run, one in zip(runs, traces, strict=True)]
    intro = (
        f"Problem {html(sample)}, {html(task_of(runs[0]))}, {html(model_of(runs[0]))}: "
        f"{' beside '.join(map(html, names))}. "
        "Any other: the samples of a run, linked in the table above, or <code>python -m analysis replay</code>."
    )
    return f"<p>{intro}</p>{fragment(traces)}"


def _comparisons(study: Study, board: Leaderboard, folder: Path) -> str:
    lists = [comparison_table(board.comparisons), aup_table(study)]
    _list(aup_points_table(study), folder)
    return "".join(
        f'<section id="{one.name}-table">{_folded(one.caption, _list(one, folder))}</section>' for one in lists
    )


def _list(table: Table, folder: Path) -> str:
    """Too wide for a page of paper, so it has no LaTeX."""
    paths = write_table(table, folder / "tables", ("csv", "md"))
    return to_html(table) + files("This table:", [(path.suffix[1:].upper(), f"tables/{path.name}") for path in paths])


def _page(
    study: Study, board: Leaderboard, sections: list[tuple[str, str, str]], palette: Palette, made: Made
) -> str:  # fmt: skip
    body = "".join(f'<section id="{key}"><h2>{html(title)}</h2>{inner}</section>' for key, title, inner in sections)
    links = "".join(f'<li><a href="#{key}">{html(title)}</a></li>' for key, title, _ in sections)
    facts = "".join(f"<p>{html(line)}</p>" for line in _facts(study))
    head = (
        f'<header><h1>{TITLE}</h1><nav aria-label="Contents"><ul>{links}</ul></nav></header>{body}'
        f'<footer class="notes">{facts}</footer>'
    )
    picture = "figures/accuracy_tpf.png" if 'id="accuracy_tpf"' in body else None
    tags = meta(TITLE, sentence(board), made, picture)
    css = [palette.css(), *styles("page", "board", "replay")]
    return document(TITLE, head, css, scripts("replay", "board", "figures"), tags)


def _facts(study: Study) -> Iterator[str]:
    """What a reader must know before the first number."""
    runs = study.runs
    used = {folder for run in runs for folder in run.folders}
    left_out = [run for run in study.all_runs if run.folder not in used]
    finished = [run for run in left_out if run.status == "finished"]
    damaged = sum(run.damage is not None for run in finished)
    counts = {
        "not finished": len(left_out) - len(finished),
        "damaged": damaged,
        "copies, or shards without the others": len(finished) - damaged,
    }
    yield f"Finished runs: {len(runs)}" + "".join(f"; {why} and left out: {n}" for why, n in counts.items() if n) + "."
    if runs:
        yield f"Models: {shared([model_of(run) for run in runs])}. Problems: {shared([task_of(run) for run in runs])}."
    if any(run.toy for run in runs):
        yield (
            "Models marked (toy) are a few million parameters trained on synthetic problems. They show how decoders "
            "behave and what they cost, not what a 7B model reaches."
        )
    yield "Published numbers are marked as published; all others were measured in the runs listed at the end."
