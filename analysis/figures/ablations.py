"""One figure for each ablation of conf/experiment/ablation: TPF and score over what was varied."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.figures.choice import series_title
from analysis.figures.style import COLOURS, LINES, MARKERS, Plot, errors, panels, paper_style, points, shades
from analysis.numbers import Value
from analysis.runs import Run
from analysis.study import Study

MOST = 8  # series in one figure
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
        return str(value["score.kind"]).replace("_", " ")
    if value["score.window"]:
        return f"window {value['score.window']}"
    if value["score.creation_weight"]:
        return f"creation {value['score.creation_weight']:g}"
    return f"lowest {100 * value['score.bottom']:g} %" if value["score.bottom"] < 1 else "mean"


def _setting(name: str) -> Callable[[Run], str]:
    return lambda run: "none" if run.settings[name] is None else str(run.settings[name]).replace("_", " ")


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


def ablation(study: Study, spec: Ablation) -> Figure | None:
    """Left TPF, right score, over the values; one line for each model, task and k."""
    groups = [group for group in study.series(*spec.varied) if len({spec.label(run) for run in group}) > 1]
    groups = [group for group in groups if any(run.lookahead for run in group)][:MOST]
    if not groups:
        return None
    names = list(dict.fromkeys(spec.label(run) for group in groups for run in group))
    names.sort(key=lambda name: spec.order.index(name) if name in spec.order else len(spec.order))
    with paper_style():
        figure, (left, right) = panels(2)
        for index, group in enumerate(groups):
            group = sorted(group, key=lambda run: names.index(spec.label(run)))
            places = [names.index(spec.label(run)) + 0.06 * (index - (len(groups) - 1) / 2) for run in group]
            label = f"{series_title(group[0])}, k = {group[0].k}"
            line = LINES[index % 4] if spec.is_scale else ""
            _series(left, places, [study.value(run, "tpf", "effective") for run in group], index, line, label)
            _series(right, places, [study.value(run, "accuracy").scaled(100) for run in group], index, line, label)
        for ax, text in ((left, "TPF (content tokens per call)"), (right, "score (%)")):
            ax.set_xticks(range(len(names)), names, **(_SLANTED if len(names) > 4 else {}))
            ax.set_xlim(-0.5, len(names) - 0.5)
            ax.set(xlabel=spec.axis, ylabel=text)
            ax.grid(visible=False, axis="x")
        figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return figure


def thresholds(study: Study) -> Figure | None:
    """Score against TPF along the threshold, one curve for each k."""
    varied = ("k", "tau_conf", "tau_act")
    groups = [_along_one_rule(group) for group in study.series(*varied)]
    groups = [group for group in groups if len({run.settings["tau_conf"] for run in group}) > 1]
    if not groups:
        return None
    with paper_style():
        figure, axes = panels(len(groups[:MOST]))
        for ax, group in zip(axes, groups):
            curves = {k: [run for run in group if run.k == k] for k in dict.fromkeys(run.k for run in group)}
            curves = {k: runs for k, runs in curves.items() if len(runs) > 1}
            for index, ((k, runs), colour) in enumerate(zip(curves.items(), shades(len(curves)))):
                runs.sort(key=lambda run: -run.settings["tau_conf"])
                _curve(ax, study, runs, index, colour, f"k = {k}")
            ax.set(xlabel="TPF (content tokens per call)", ylabel="score (%)", title=series_title(group[0]))
            ax.legend(loc="best")
    return figure


def _along_one_rule(group: list[Run]) -> list[Run]:
    """Runs whose tau_act follows tau_conf, as in table 6, if there are any; a sweep over k beside them does not."""
    following = [run for run in group if run.settings["tau_act"] == run.settings["tau_conf"]]
    return following if len(following) > 1 else group


def _curve(ax: Axes, study: Study, runs: Sequence[Run], index: int, colour: tuple[float, ...], label: str) -> None:
    x = [study.value(run, "tpf", "effective") for run in runs]
    y = [study.value(run, "accuracy").scaled(100) for run in runs]
    ax.errorbar(points(x), points(y), errors(y), errors(x), color=colour, linestyle=LINES[index % 4],
                marker=MARKERS[index % 8], elinewidth=0.5, label=label)  # fmt: skip
    for run, value, score in ((runs[0], x[0], y[0]), (runs[-1], x[-1], y[-1])):
        ax.annotate(f"τ {run.settings['tau_conf']:g}", (value.value or 0, score.value or 0), (3, 4),
                    textcoords="offset points", fontsize=6,
                    bbox={"boxstyle": "square,pad=0.1", "facecolor": "white", "edgecolor": "none", "alpha": 0.7},
                    )  # fmt: skip


def _series(ax: Axes, x: Sequence[float], values: list[Value], index: int, line: str, label: str) -> None:
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
        "Each curve lowers tau_conf at one k, from its largest to its smallest value (marked); counting preset "
        "effective, 95 % intervals. A curve above another gives the better score at equal TPF.",
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
