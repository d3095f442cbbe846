"""The whole report: a page that works from disk, and every table and figure as files beside it."""

from __future__ import annotations

import base64
import logging
from collections.abc import Iterator
from pathlib import Path

from analysis.comparisons import against_baselines
from analysis.figures.registry import FIGURES
from analysis.figures.style import Plot, save
from analysis.labels import model_of, shared, task_of
from analysis.replay.page import asset, fragment
from analysis.replay.page import page as replay_page
from analysis.replay.select import pair, telling_sample
from analysis.replay.trace import trace
from analysis.study import Study
from analysis.tables.article import TABLES
from analysis.tables.grid import Grid, aup_grid, aup_points_grid, comparison_grid, run_grid
from analysis.tables.model import Table
from analysis.tables.published import notes
from analysis.tables.render import caption_of, to_csv, to_html, to_latex, to_markdown
from analysis.text import html
from lopa_bench.errors import RunError

log = logging.getLogger(__name__)


def write_report(study: Study, folder: Path) -> Path:
    """Writes everything and returns the page's path."""
    for name in ("tables", "figures"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    sections = [
        ("tables", "Tables of the article", "".join(_table_section(study, name, folder) for name in TABLES)),
        ("figures", "Figures", "".join(_figure_section(study, plot, folder) for plot in FIGURES.values())),
        ("replay", "Replay", _replay_section(study, folder)),
        ("comparisons", "Comparisons", _comparisons(study, folder)),
        ("runs", "Runs", _write_grid(run_grid(study), folder).html()),
    ]
    page = folder / "index.html"
    page.write_text(_page(study, sections), encoding="utf-8")
    return page


def write_table(table: Table, folder: Path) -> list[Path]:
    """CSV, Markdown and LaTeX."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for suffix, render in (("csv", to_csv), ("md", to_markdown), ("tex", to_latex)):
        paths.append(folder / f"{table.name}.{suffix}")
        paths[-1].write_text(render(table), encoding="utf-8")
    return paths


def _table_section(study: Study, name: str, folder: Path) -> str:
    table = TABLES[name](study)
    write_table(table, folder / "tables")
    return f'<section id="{name}"><h3>{html(caption_of(table))}</h3>{to_html(table)}</section>'


def _figure_section(study: Study, plot: Plot, folder: Path) -> str:
    head = f'<section id="{plot.name}"><h3>{_figure_title(plot)}</h3>'
    figure = plot.draw(study)
    if figure is None:
        return f'{head}<p class="note">No run can answer this yet. It reads {html(plot.reads)}.</p></section>'
    path = save(figure, folder / "figures", plot.name)
    data = base64.b64encode(path.read_bytes()).decode()
    said = "".join(f"<br>Publication: {html(note)}" for note in notes(plot.name))
    alt = html(f"{plot.title}. {plot.caption}")
    return (
        f'{head}<figure><div class="scroll" tabindex="0" role="region" aria-label="{html(plot.title)}">'
        f'<img alt="{alt}" src="data:image/png;base64,{data}"></div>'
        f"<figcaption>{html(plot.caption)}{said}</figcaption></figure></section>"
    )


def _figure_title(plot: Plot) -> str:
    number = plot.name.removeprefix("figure")
    return f"Figure {number}. {html(plot.title)}" if number.isdecimal() else html(plot.title)


def _replay_section(study: Study, folder: Path) -> str:
    runs = pair(study)
    sample = telling_sample(*runs) if runs else None
    if runs is None or sample is None:
        return '<p class="note">A replay needs a sweep of decoder.k with k = 0 in it.</p>'
    try:
        traces = [trace(run, sample) for run in runs]
    except RunError as error:
        return f'<p class="note">No replay: {html(str(error))}</p>'
    (folder / "replay.html").write_text(replay_page(traces), encoding="utf-8")
    intro = (
        f"Problem {html(sample)}, {html(task_of(runs[0]))}, {html(model_of(runs[0]))}: "
        f"{' beside '.join(html(one['title']) for one in traces)}. "
        "Any other: <code>python -m analysis replay RUN [RUN] --sample ID</code>."
    )
    return f"<p>{intro}</p>{fragment(traces)}"


def _comparisons(study: Study, folder: Path) -> str:
    grids = [comparison_grid(against_baselines(study)), aup_grid(study)]
    _write_grid(aup_points_grid(study), folder)
    return "".join(f'<section id="{grid.name}-table">{_write_grid(grid, folder).html()}</section>' for grid in grids)


def _write_grid(grid: Grid, folder: Path) -> Grid:
    (folder / "tables" / f"{grid.name}.csv").write_text(grid.csv(), encoding="utf-8")
    (folder / "tables" / f"{grid.name}.md").write_text(grid.markdown(), encoding="utf-8")
    return grid


def _page(study: Study, sections: list[tuple[str, str, str]]) -> str:
    body = "".join(f'<section id="{key}"><h2>{html(title)}</h2>{inner}</section>' for key, title, inner in sections)
    links = "".join(f'<li><a href="#{key}">{html(title)}</a></li>' for key, title, _ in sections)
    links += "".join(f'<li><a href="#{name}">Table {name[-1]}</a></li>' for name in TABLES)
    facts = "".join(f"<p>{html(line)}</p>" for line in _facts(study))
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>LoPA benchmark report</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="data:,">'
        f"<style>{asset('page.css')}{asset('replay.css')}</style></head><body>"
        '<a class="skip" href="#content">Skip to the content</a><main id="content"><h1>Benchmark report: decoding of '
        f'diffusion language models</h1>{facts}<nav aria-label="Contents"><ul>{links}</ul></nav>{body}</main>'
        f"<script>{asset('replay.js')}</script></body></html>\n"
    )


def _facts(study: Study) -> Iterator[str]:
    """What a reader must know before the first number."""
    runs = study.runs
    used = {folder for run in runs for folder in run.folders}
    left_out = [run for run in study.all_runs if run.folders[0] not in used]
    damaged = sum(run.row["status"] == "finished" and run.damage is not None for run in left_out)
    counts = {"not finished and left out": len(left_out) - damaged, "damaged and left out": damaged}
    yield f"Finished runs: {len(runs)}" + "".join(f"; {why}: {n}" for why, n in counts.items() if n) + "."
    if runs:
        yield f"Models: {shared([model_of(run) for run in runs])}. Problems: {shared([task_of(run) for run in runs])}."
    if any(run.toy for run in runs):
        yield (
            "Models marked (toy) are a few million parameters trained on synthetic problems. They show how decoders "
            "behave and what they cost, not what a 7B model reaches."
        )
    yield "Published numbers are marked as published; all others were measured in the runs listed at the end."
