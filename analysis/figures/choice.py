"""Which runs a figure shows, and what a panel is called."""

from __future__ import annotations

from collections.abc import Sequence

from analysis.labels import model_of, task_of
from analysis.runs import Run
from analysis.study import Study

SHOWN = (0, 1, 3, 7)  # the article's D2F, BP2, BP4, BP8
MOST_PANELS = 8


def panel_title(run: Run) -> str:
    return f"{model_of(run)} · {task_of(run)}"


def series_title(run: Run) -> str:
    return f"{model_of(run)}, {task_of(run)}"


def k_panels(study: Study) -> list[list[Run]]:
    """One series over k for each panel, models and tasks in order; a figure has an end."""
    series = study.k_series()
    return [series[key] for key in sorted(series)][:MOST_PANELS]


def few(series: Sequence[Run], ks: Sequence[int] = SHOWN) -> list[Run]:
    """The runs with the article's numbers of branches, or else four spread over the series."""
    found = [run for run in series if run.k in ks]
    if len(found) >= 3 or len(series) <= len(ks):
        return found if len(found) >= 3 else list(series)
    last = len(series) - 1
    return [series[round(i * last / 3)] for i in range(4)]


def by_model_and_task(study: Study) -> list[list[Run]]:
    """All runs of a model on a task, those with equal settings once."""
    groups: dict[tuple[str, str], list[Run]] = {}
    for run in study.distinct():
        groups.setdefault((run.model, run.task), []).append(run)
    return [groups[key] for key in sorted(groups)][:MOST_PANELS]
