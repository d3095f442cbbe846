"""The arena: score against TPF and against positions processed, each decoder along its own grid, held-out problems."""

from __future__ import annotations

from typing import Any

from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from analysis.arena.choice import PRESET, Arena, Contender, arenas, choose
from analysis.figures.choice import words_of
from analysis.figures.style import (
    COLOURS,
    LINES,
    MARKERS,
    Plot,
    Plotted,
    columns_of,
    fitting,
    legend_below,
    panels,
    paper_style,
    shown,
    tell,
    wrapped,
)
from analysis.labels import model_of, task_of
from analysis.study import Study
from analysis.text import clipped
from lopa_bench.console.numbers import fixed

MARKED = 2.0  # the points that the marked settings may lose
AXES = {
    "tpf": "TPF (content tokens per call)",
    "processed_per_token": "positions processed for a token of the answer",
}


def arena(study: Study) -> Plotted | None:
    found = [one for one in arenas(study) if one.held_out]
    if not found:
        return None
    found, left_out = fitting(found)
    with paper_style():
        figure, axes = panels(2 * len(found), height=3.1, left_out=left_out)
        for index, one in enumerate(found):
            for ax, (quantity, label) in zip(axes[2 * index : 2 * index + 2], AXES.items()):
                _panel(study, ax, one, quantity, label)
        names = list(dict.fromkeys(contender.name for one in found for contender in one.contenders))
        looks = [_look(names, name) for name in names]
        handles = [
            Line2D([], [], color=colour, marker=mark, linestyle=line, linewidth=0.9) for colour, mark, line in looks
        ]
        legend_below(figure, handles, [wrapped(shown(clipped(name))) for name in names], columns_of(2))
    return figure


def _panel(study: Study, ax: Axes, one: Arena, quantity: str, label: str) -> None:
    names = [contender.name for contender in one.contenders]
    for contender in one.contenders:
        _curve(study, ax, one, contender, quantity, _look(names, contender.name))
    if quantity != "tpf":
        ax.set_xlim(left=0)
    n = study.numbers(one.held_out[0], one.held_out).decoded
    ax.set_title(f"{shown(clipped(model_of(one.run)))} · {shown(clipped(task_of(one.run)))}\nheld out, n = {n}")
    ax.set_xlabel(label)
    ax.set_ylabel("score (%)")


def _curve(study: Study, ax: Axes, one: Arena, contender: Contender, quantity: str, look: tuple[str, str, Any]) -> None:
    """Hollow: a setting of the grid. Filled: the one that was chosen on the tuning split."""
    colour, marker, line = look
    preset = PRESET if quantity == "tpf" else None
    chosen = choose(study, one, contender, MARKED)
    held = contender.held(chosen) if chosen else None
    points = []
    for run in contender.held_out:
        x = study.value(run, quantity, preset, one.held_out).value
        y = study.value(run, "accuracy", among=one.held_out).scaled(100).value
        if x is not None and y is not None:
            points.append((x, y, run is held))
            numbers = f"{AXES[quantity]} {fixed(x)}", f"score (%) {fixed(y, 1)}", "held-out problems"
            chosen_words = ["the setting that was chosen"] if run is held else []
            tell(ax, x, y, words_of(run, one.held_out, *numbers, *chosen_words))
    points.sort()
    ax.plot([x for x, _, _ in points], [y for _, y, _ in points], color=colour, linestyle=line, linewidth=0.9,
            marker=marker, markersize=3.5, markerfacecolor="white", markeredgewidth=0.8)  # fmt: skip
    for x, y, is_chosen in points:
        if is_chosen:
            ax.plot([x], [y], color=colour, marker=marker, markersize=6.5, linestyle="")


def _look(names: list[str], name: str) -> tuple[str, str, Any]:
    index = names.index(name)
    turn = index // len(COLOURS)
    return COLOURS[index % len(COLOURS)], MARKERS[(index + turn) % len(MARKERS)], LINES[turn % len(LINES)]


PLOTS = [
    Plot(
        "arena",
        "The arena: score against TPF, and against positions processed",
        "Every decoder along its own grid, on problems that no choice has seen. Large filled points: the setting that "
        f"was chosen on the tuning split, losing at most {MARKED:g} points there. In the left panel further right is "
        "better, fewer calls; in the right one further left, less computed for a token, branches included.",
        "+experiment=arena/mini, or other runs on two splits (task.rows)",
        arena,
    )
]
