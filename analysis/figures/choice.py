"""Which runs a figure shows, and what a panel is called."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from analysis.figures.style import LINES, MARKERS, shades
from analysis.labels import TASKS, model_of, task_of
from analysis.runs import Run
from analysis.study import Study

SHOWN = (0, 1, 3, 7)  # the article's D2F, BP2, BP4, BP8
MOST_PANELS = 8
TASK_ORDER = list(TASKS)


def panel_title(run: Run) -> str:
    return f"{model_of(run)} · {task_of(run)}"


def series_title(run: Run) -> str:
    return f"{model_of(run)}, {task_of(run)}"


def k_panels(study: Study, shows_score: bool = False) -> list[list[Run]]:
    """One series over k for each panel, models and tasks in order; a figure has an end.

    Tasks that judge the same texts by other tests, as MBPP+ does those of MBPP, differ in their score alone: a figure
    that does not show it would draw one curve twice.
    """
    series = study.k_series()
    panels: dict[object, list[Run]] = {}
    for key in sorted(series, key=_place):
        texts = key[0], *((run.k, study.value(run, "tpf", "effective").value) for run in series[key])
        panels.setdefault(key if shows_score else texts, series[key])
    return list(panels.values())[:MOST_PANELS]


def few(series: Sequence[Run], ks: Sequence[int] = SHOWN) -> list[Run]:
    """The runs with the article's numbers of branches, or else four spread over the series."""
    found = [run for run in series if run.k in ks]
    if len(found) >= 3 or len(series) <= len(ks):
        return found if len(found) >= 3 else list(series)
    last = len(series) - 1
    return [series[round(i * last / 3)] for i in range(4)]


def looks(panels: Iterable[Sequence[Run]]) -> dict[int | None, dict[str, Any]]:
    """Colour, line and marker of each k, the same in all panels of a figure."""
    ks = sorted({run.k for runs in panels for run in runs if run.k is not None})
    return {
        k: {"color": colour, "linestyle": LINES[index % len(LINES)], "marker": MARKERS[index % len(MARKERS)]}
        for index, (k, colour) in enumerate(zip(ks, shades(len(ks))))
    }


def by_model_and_task(study: Study) -> list[list[Run]]:
    """All runs of a model on a task, those with equal settings once."""
    groups: dict[tuple[str, str], list[Run]] = {}
    for run in study.distinct():
        groups.setdefault((run.model, run.task), []).append(run)
    return [groups[key] for key in sorted(groups, key=_place)][:MOST_PANELS]


def _place(key: tuple[str, str]) -> tuple[str, int]:
    """Models by name, tasks in the order of their names' table."""
    model, task = key
    return model, TASK_ORDER.index(task) if task in TASK_ORDER else len(TASK_ORDER)
