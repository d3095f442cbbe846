"""One figure for each ablation of conf/experiment/ablation: TPF and score over what was varied."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from matplotlib.axes import Axes

from analysis.figures.beside import PAPER
from analysis.figures.choice import panel_titles, series_titles, tell_runs, words_of
from analysis.figures.style import (
    COLOURS,
    LINES,
    MARKERS,
    Plot,
    Plotted,
    errors,
    fitting,
    legend,
    panels,
    paper_style,
    points,
    shades,
    shown,
    tell,
)
from analysis.study import Study
from analysis.text import clipped, plain
from lopa_bench.console.numbers import fixed
from lopa_bench.metrics.comparable import common_grid
from lopa_bench.metrics.statistics import Estimate
from lopa_bench.records.runs import Run

SMALL = 2.1  # inches: the height of panels that hold a few values
NOT_TUNED = " (no other k was tuned)"
_SLANTED: Any = {"rotation": 25, "ha": "right", "rotation_mode": "anchor"}


@dataclass(frozen=True)
class Ablation:
    """What is varied together, and how a value is called on the axis; `order` of the values that have one."""

    name: str
    title: str
    varied: tuple[str, ...]
    axis: str
    label: Callable[[Run], str]
    order: tuple[str, ...] = ()
    is_scale: bool = False  # values lie on a scale, so that a line between them means something


def _score_label(run: Run) -> str:
    value = run.settings
    if value["score.kind"] != "mean":
        return plain(value["score.kind"]).replace("_", " ")
    if value["score.window"]:
        return f"window {value['score.window']}"
    if value["score.creation_weight"]:
        return f"creation {value['score.creation_weight']:g}"
    return f"lowest {100 * value['score.bottom']:g} %" if value["score.bottom"] < 1 else "mean"


def _setting(name: str) -> Callable[[Run], str]:
    return lambda run: "none" if run.settings[name] is None else plain(run.settings[name]).replace("_", " ")


SCORE = ("score.kind", "score.bottom", "score.window", "score.creation_weight")
ABLATIONS = (
    Ablation("branch_score", "Branch score", SCORE, "branch score", _score_label, ("mean",)),
    Ablation("confidence", "Ranking confidence", ("confidence",), "confidence that ranks", _setting("confidence")),
    Ablation("fallback", "Forced pick when nothing passes", ("forced",), "forced pick", _setting("forced")),
    Ablation("attention", "Attention in the window", ("attention", "cache"), "attention", _setting("attention")),
    Ablation("block_size", "Block size", ("block_size",), "block size (positions)", _setting("block_size"), (), True),
    Ablation(
        "floor", "Floor for candidates (not in the article)", ("floor",), "floor", _setting("floor"), ("none",), True
    ),
)


def ablation(study: Study, spec: Ablation) -> Plotted | None:
    """Left TPF, right score, over the values; one line for each model, task and k."""
    groups = [group for group in study.series(*spec.varied) if len({spec.label(run) for run in group}) > 1]
    groups, left_out = fitting([group for group in groups if any(run.lookahead for run in group)])
    if not groups:
        return None
    names = list(dict.fromkeys(spec.label(run) for group in groups for run in group))
    names.sort(key=lambda name: spec.order.index(name) if name in spec.order else len(spec.order))
    with paper_style():
        figure, (left, right) = panels(2, height=SMALL, left_out=left_out)
        for index, (group, title) in enumerate(zip(groups, series_titles(study, groups))):
            group = sorted(group, key=lambda run: names.index(spec.label(run)))
            places = [names.index(spec.label(run)) + 0.06 * (index - (len(groups) - 1) / 2) for run in group]
            label = f"{title}, k = {group[0].k}"
            line = LINES[index % 4] if spec.is_scale else ""
            tpf = [study.value(run, "tpf", "effective", group) for run in group]
            score = [study.value(run, "accuracy", among=group).scaled(100) for run in group]
            _series(left, places, tpf, index, line, label)
            _series(right, places, score, index, line, label)
            tell_runs(left, group, places, tpf, "TPF")
            tell_runs(right, group, places, score, "score (%)", 1)
        for ax, text in ((left, "TPF (content tokens per call)"), (right, "score (%)")):
            ax.set_xticks(
                range(len(names)), [shown(clipped(name)) for name in names], **(_SLANTED if len(names) > 4 else {})
            )
            ax.set_xlim(-0.5, len(names) - 0.5)
            ax.set(xlabel=spec.axis, ylabel=text)
            ax.grid(visible=False, axis="x")
        legend(figure, left)
    return figure


def thresholds(study: Study) -> Plotted | None:
    """Score against TPF along the threshold, one curve for each k, all over the same thresholds."""
    groups = [_along_one_rule(group) for group in study.series("k", "tau_conf", "tau_act")]
    panels_of, left_out = fitting([(group, curves) for group in groups if (curves := _over_one_grid(group))])
    if not panels_of:
        return None
    with paper_style():
        figure, axes = panels(len(panels_of), left_out=left_out)
        titles = panel_titles(study, [[run for runs in curves.values() for run in runs] for _, curves in panels_of])
        for ax, (_, curves), title in zip(axes, panels_of, titles):
            among = [run for runs in curves.values() for run in runs]
            for index, ((k, runs), colour) in enumerate(zip(curves.items(), shades(len(curves)))):
                _curve(ax, study, runs, among, index, colour, f"k = {k}" + (NOT_TUNED if len(curves) == 1 else ""))
            ax.set(xlabel="TPF (content tokens per call)", ylabel="score (%)", title=title)
            ax.legend(loc="best")
    return figure


def _over_one_grid(group: list[Run]) -> dict[int | str, list[Run]]:
    """For each k its runs from the highest threshold to the lowest, on the thresholds that every k was tried on; the
    one k that was tried on several where no other was.
    """
    found: dict[int | str, list[Run]] = {}
    for run in sorted(group, key=lambda run: (-run.settings["tau_conf"], -run.settings["tau_act"])):
        found.setdefault(run.row["k"] if run.k is None else run.k, []).append(run)
    grid, tried = common_grid({k: {_thresholds(run) for run in runs} for k, runs in found.items()})
    if tried:
        found = {k: [run for run in found[k] if _thresholds(run) in grid] for k in tried}
    found = {k: runs for k, runs in found.items() if len({run.settings["tau_conf"] for run in runs}) > 1}
    return dict(sorted(found.items(), key=lambda one: (isinstance(one[0], str), one[0])))


def _thresholds(run: Run) -> tuple[float, float]:
    return run.settings["tau_conf"], run.settings["tau_act"]


def _along_one_rule(group: list[Run]) -> list[Run]:
    """Runs whose tau_act follows tau_conf, as in table 6, if there are any; a sweep over k beside them does not."""
    group = [run for run in group if run.settings["tau_conf"] is not None and run.settings["tau_act"] is not None]
    following = [run for run in group if run.settings["tau_act"] == run.settings["tau_conf"]]
    return following if len(following) > 1 else group


def _curve(
    ax: Axes,
    study: Study,
    runs: Sequence[Run],
    among: Sequence[Run],
    index: int,
    colour: tuple[float, ...],
    label: str,
) -> None:
    x = [study.value(run, "tpf", "effective", among) for run in runs]
    y = [study.value(run, "accuracy", among=among).scaled(100) for run in runs]
    ax.errorbar(points(x), points(y), errors(y), errors(x), color=colour, linestyle=LINES[index % 4],
                marker=MARKERS[index % 8], elinewidth=0.5, label=label)  # fmt: skip
    for run, value, score in zip(runs, x, y):
        numbers = f"TPF {fixed(value.value, 2, value.interval)}", f"score (%) {fixed(score.value, 1, score.interval)}"
        tell(ax, value.value, score.value, words_of(run, among, *numbers))
    for run, value, score in ((runs[0], x[0], y[0]), (runs[-1], x[-1], y[-1])):
        if value.value is None or score.value is None:
            continue
        ax.annotate(f"τ {run.settings['tau_conf']:g}", (value.value, score.value), (3, 4),
                    textcoords="offset points", fontsize=6, bbox=PAPER)  # fmt: skip


def _series(ax: Axes, x: Sequence[float], values: list[Estimate], index: int, line: str, label: str) -> None:
    style: Any = {"color": COLOURS[index % len(COLOURS)], "linestyle": line, "marker": MARKERS[index % len(MARKERS)]}
    ax.errorbar(x, points(values), errors(values), elinewidth=0.9, capsize=2, label=label, **style)


_CAPTION = (
    "Runs that differ in this setting and in nothing else; counting preset effective, 95 % intervals. Runs on the same "
    "problems are paired: overlapping intervals do not mean that two runs are equal (see the comparisons)."
)
PLOTS = [
    Plot(
        "ablation_tau_conf",
        "Thresholds and branches",
        "Each curve lowers tau_conf at one k, from its largest to its smallest value (marked), over thresholds that "
        "all curves of a panel share; counting preset effective, 95 % intervals. A curve above another gives the "
        "better score at equal TPF.",
        "conf/experiment/ablation/tau_conf_k",
        thresholds,
    ),
    *(
        Plot(
            f"ablation_{spec.name}",
            spec.title,
            _CAPTION,
            f"conf/experiment/ablation/{spec.name}",
            partial(ablation, spec=spec),
        )
        for spec in ABLATIONS
    ),
]
