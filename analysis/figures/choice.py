"""Which runs a figure shows, and what a panel is called."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from matplotlib.axes import Axes

from analysis.figures.style import (
    LINES,
    MARKERS,
    Plotted,
    fitting,
    panels,
    paper_style,
    shades,
    shown,
    tell,
)
from analysis.labels import TASKS, decoding, model_of, source_of, task_of, varied
from analysis.sides import point, tuned_words
from analysis.study import Study, place_of
from analysis.text import clipped, plain, typeset
from lopa_bench.console.numbers import fixed
from lopa_bench.metrics.statistics import Estimate
from lopa_bench.records.runs import Run

ARTICLE_KS = (0, 1, 3, 7)  # the article's D2F, BP2, BP4, BP8
NAME, LINE = 34, 44  # characters of a name in a title, and of a line of it
TASK_ORDER = list(TASKS)
Looks = dict[int | None, dict[str, Any]]  # colour, line and marker of each k


def panel_titles(study: Study, groups: Sequence[Sequence[Run]]) -> list[str]:
    """Model, task and number of samples of each panel; where these are alike, what else tells the panels apart."""
    places: list[Callable[[Run], str]] = [
        lambda run: f"{clipped(model_of(run), NAME)} · {clipped(task_of(run), NAME)}",
        lambda run: f"{plain(run.backend)} on {plain(run.device)} {plain(run.dtype)}",
        lambda run: f"batch {run.row['batch']}",
        lambda run: clipped(source_of(run), NAME),
        lambda run: f"source {str(run.row['source_sha256'])[:8]}",
        lambda run: f"model {str(run.row['model_sha256'])[:8]}",
    ]
    titles = [places[0](group[0]) for group in groups]
    for place in places[1:]:
        further = [place(group[0]) for group in groups]
        titles = [
            f"{title}, {text}" if _tells_apart(title, titles, further) else title
            for title, text in zip(titles, further)
        ]
    ends = [", ".join(filter(None, (_setting(study, group), f"n = {samples_of(study, group)}"))) for group in groups]
    return [f"{shown(_on_lines(title))}\n{end}" for title, end in zip(titles, ends)]


def _on_lines(title: str) -> str:
    """A panel is as wide as about LINE characters."""
    return title if len(title) <= LINE else title.replace(" · ", " ·\n").replace(", ", ",\n", title.count(",") > 1)


def _setting(study: Study, group: Sequence[Run]) -> str:
    """The setting of all runs of a group, where others were run with another."""
    if len({point(run) for run in group}) > 1:
        return ""
    return tuned_words(group[0], [run for run in study.runs if place_of(run) == place_of(group[0])])


def _tells_apart(title: str, titles: Sequence[str], further: Sequence[str]) -> bool:
    return len({text for other, text in zip(titles, further) if other == title}) > 1


def samples_of(study: Study, group: Sequence[Run]) -> int:
    """The samples that all runs of a group decoded, which are those that count."""
    run = group[0]
    table = study.shared(group)[run.id]
    return len(run.decoded) if table is None else table.num_rows


def series_titles(study: Study, groups: Sequence[Sequence[Run]]) -> list[str]:
    """The same for a legend."""
    titles = panel_titles(study, groups)
    return [
        title.replace(" ·\n", " · ").replace(",\n", ", ").replace("\n", ", ").replace(" · ", ", ") for title in titles
    ]


def words_of(run: Run, among: Sequence[Run], *numbers: str) -> str:
    """What is said of a point: decoder and what was varied, numbers with their intervals, problems, n, run."""
    settings = clipped(varied(run, among), 160)
    how = ", ".join(filter(None, (clipped(decoding(run)), settings)))
    return "\n".join([how, *map(typeset, numbers), *whose(run)])


def whose(run: Run) -> tuple[str, str]:
    """Model, problems and n; and the run."""
    return f"{clipped(model_of(run), NAME)} · {clipped(task_of(run), NAME)}, n = {run.n}", clipped(plain(run.id))


def tell_runs(
    ax: Axes, runs: Sequence[Run], x: Sequence[float], y: Sequence[Estimate], label: str, digits: int = 2
) -> None:
    """Words for each run's point: its number with its interval, and all that `words_of` says."""
    for run, at, value in zip(runs, x, y):
        number = f"{label} {fixed(value.value, digits, value.interval)}"
        tell(ax, at, value.value, words_of(run, runs, number))


def k_panels(study: Study, shows_score: bool = False) -> list[list[Run]]:
    """One series over k for each panel, models and tasks in order.

    Tasks that judge the same texts by other tests, as MBPP+ does those of MBPP, differ in their score alone: a figure
    that does not show it would draw one curve twice.
    """
    found: dict[object, list[Run]] = {}
    for series in sorted(study.k_series(), key=_place):
        curve = tuple((run.k, study.value(run, "tpf", "effective", series).value) for run in series)
        where = tuple(series[0].row[name] for name in ("model", "model_sha256", "device", "backend", "batch"))
        found.setdefault(series[0].id if shows_score else (where, curve), series)
    return list(found.values())


def few(series: Sequence[Run], ks: Sequence[int] = ARTICLE_KS) -> list[Run]:
    """The runs with the article's numbers of branches, or else four spread over the series."""
    found = [run for run in series if run.k in ks]
    if len(found) >= 3 or len(series) <= len(ks):
        return found if len(found) >= 3 else list(series)
    last = len(series) - 1
    return [series[round(i * last / 3)] for i in range(4)]


def looks(series: Iterable[Sequence[Run]]) -> Looks:
    """Colour, line and marker of each k, the same in all panels of a figure."""
    ks = sorted({run.k for runs in series for run in runs if run.k is not None})
    return {
        k: {"color": colour, "linestyle": LINES[index % len(LINES)], "marker": MARKERS[index % len(MARKERS)]}
        for index, (k, colour) in enumerate(zip(ks, shades(len(ks))))
    }


def k_grid(study: Study) -> tuple[Plotted, list[tuple[Axes, list[Run], str]], Looks] | None:
    """An empty panel for each series over k, with its runs and its title, and the looks of each k that `few` chooses;
    None where there is no series.
    """
    series, left_out = fitting(k_panels(study))
    if not series:
        return None
    with paper_style():
        figure, axes = panels(len(series), left_out=left_out)
    return figure, list(zip(axes, series, panel_titles(study, series))), looks(map(few, series))


def by_context(study: Study) -> list[list[Run]]:
    """Runs that stand side by side, those with equal settings once."""
    found = [group for group in study.contexts() if len(group) > 1]
    return sorted(found, key=_place)


def _place(group: Sequence[Run]) -> tuple[str, int, int, str]:
    """Models by name, tasks in the order of their names' table, the most samples first."""
    run = group[0]
    task = TASK_ORDER.index(run.task) if run.task in TASK_ORDER else len(TASK_ORDER)
    return run.model, task, -len(run.attempted), run.id
