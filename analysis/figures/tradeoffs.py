"""Accuracy against TPF, and TPS against TPF: what speed costs, and how much of TPF becomes time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, NullLocator

from analysis.figures.beside import name_points
from analysis.figures.choice import by_context, panel_titles, words_of
from analysis.figures.style import (
    COLOURS,
    GREY,
    MARKERS,
    Plot,
    Plotted,
    errors,
    fitting,
    legend_below,
    panels,
    paper_style,
    shade,
    shown,
    tell,
    wrapped,
)
from analysis.labels import base_name
from analysis.sides import on_common_settings, point, tuned_words
from analysis.study import Study, preset_for
from analysis.text import clipped, plain
from lopa_bench.console.numbers import fixed
from lopa_bench.metrics.statistics import Estimate
from lopa_bench.records.runs import Run

CHARACTERS, BESIDE = 24, 10  # of a legend's text in an inch, and what a marker and the gap beside it take
CROWD = 14  # points of a panel from which only those of the front have names
WITHOUT_K = COLOURS[1]
Point = tuple[Run, Estimate, Estimate]  # run, x, y
RGBA = tuple[float, float, float, float]
Decorate = Callable[[Axes, list[Point]], None]
Measure = Callable[[Study, Run, Sequence[Run]], Estimate]
KIND = {"greedy": "P", "fast_dllm": "^", "d2f": "s", "dream": "X", "llada": "v"}
ON_BASES = ("o", "D", "p", "h", "8", "d")  # of LoPA


def accuracy_tpf(study: Study) -> Plotted | None:
    return _scatter(study, _score, "score (%)", _front)


def tps_tpf(study: Study) -> Plotted | None:
    return _scatter(study, _tps, "TPS (content tokens per second)", _iso)


def pareto(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """The points that no other point beats in both coordinates, by falling first coordinate."""
    front: list[tuple[float, float]] = []
    for place in sorted(set(points), reverse=True):
        if not front or place[1] > front[-1][1]:
            front.append(place)
    return front


def lead(study: Study) -> Plotted | None:
    """The same as `accuracy_tpf` for the group that leads the report alone."""
    for group in study.contexts():
        known = _known(study, group, _score)
        if len(known) > 1:
            return _panels(study, [known], [group], "score (%)", _front)
    return None


def _score(study: Study, run: Run, group: Sequence[Run]) -> Estimate:
    return study.value(run, "accuracy", among=group).scaled(100)


def _tps(study: Study, run: Run, group: Sequence[Run]) -> Estimate:
    return study.value(run, "tps", preset_for(run, "effective"), group)


def _known(study: Study, group: Sequence[Run], measure: Measure) -> list[Point]:
    found = [
        (run, study.value(run, "tpf", preset_for(run, "effective"), group), measure(study, run, group)) for run in group
    ]
    return [point for point in found if point[1].value is not None and point[2].value is not None]


def _scatter(
    study: Study, measure: Measure, label: str, decorate: Callable[[Axes, list[Point]], None]
) -> Plotted | None:
    found = [(known, group) for group in by_context(study) if len(known := _known(study, group, measure)) > 1]
    if not found:
        return None
    return _panels(study, [known for known, _ in found], [group for _, group in found], label, decorate)


def _panels(
    study: Study,
    groups: list[list[Point]],
    contexts: list[list[Run]],
    label: str,
    decorate: Decorate,
) -> Plotted:
    groups, left_out = fitting(groups)
    highest = max([run.k or 0 for group in groups for run, _, _ in group] + [1])
    marks = _marks(groups)
    scaled = {run.base for group in groups for run, _, _ in group if run.decoder == "lopa"}  # bases of a scale over k
    with paper_style():
        figure, axes = panels(len(groups), left_out=left_out)
        for ax, known, title in zip(axes, groups, panel_titles(study, contexts)):
            decorate(ax, known)
            tuned = _ids_on_common_settings(known)
            for run, x, y in known:
                _point(ax, run, x, y, marks[_kind(run)][0], _colour(run, scaled, highest), run.id in tuned)
                tell(ax, x.value, y.value, _words(study, run, x, y, label))
            ax.set_title(title)
            ax.set_xlabel("TPF (content tokens per call)")
            ax.set_ylabel(label)
            ax.margins(0.12)
            _name(ax, known)
        handles = _legend(groups, marks, scaled, highest)
        longest = max(len(str(handle.get_label())) for handle in handles)
        columns = int(CHARACTERS * figure.get_figwidth() / (longest + BESIDE))
        legend_below(figure, handles, [str(one.get_label()) for one in handles], min(4, max(1, columns)))
    return figure


def _name(ax: Axes, known: list[Point]) -> None:
    """Those on the front first; in a crowd, no others."""
    front = pareto([(x.value or 0.0, y.value or 0.0) for _, x, y in known])
    ordered = sorted(known, key=lambda point: (point[1].value, point[2].value) not in front)
    named = ordered if len(known) <= CROWD else ordered[: len(front)]
    among = [run for run, _, _ in known]
    places = [(x.value or 0.0, y.value or 0.0) for _, x, y in ordered]
    names = [_short(run, among) for run, _, _ in named]
    name_points(ax, places[: len(named)], names, places[len(named) :])


def _short(run: Run, among: Sequence[Run]) -> str:
    """Decoder, k and the settings in which those of a panel differ: what is varied, and no more."""
    name = base_name(run.base) if run.decoder != "lopa" else f"k = {plain(run.row['k'])}"
    if run.decoder == "lopa" and len({other.base for other in among if other.decoder == "lopa"}) > 1:
        name = f"{base_name(run.base)}, {name}"
    usual = Counter(point(other) for other in among).most_common(1)[0][0]
    return name if point(run) == usual else ", ".join(filter(None, (name, tuned_words(run, [run, *_at(usual, among)]))))


def _at(setting: Any, among: Sequence[Run]) -> list[Run]:
    return [other for other in among if point(other) == setting]


def _words(study: Study, run: Run, x: Estimate, y: Estimate, label: str) -> str:
    return words_of(run, study.runs, f"TPF {fixed(x.value, 2, x.interval)}", f"{label} {fixed(y.value, 1, y.interval)}")


def _ids_on_common_settings(group: list[Point]) -> set[str]:
    return {run.id for run in on_common_settings([run for run, _, _ in group])}


def _colour(run: Run, scaled: Collection[str], highest: int) -> RGBA:
    """The place of k on the scale from 0 to `highest`. A k that is not fixed has none and is grey; a decoder that is
    not the base of any lookahead here has no k at all.
    """
    if run.base not in scaled:
        return to_rgba(WITHOUT_K)
    return to_rgba(GREY) if run.k is None else shade(run.k / highest)


def _point(ax: Axes, run: Run, x: Estimate, y: Estimate, marker: str, colour: RGBA, is_tuned: bool) -> None:
    """Hollow: one setting beside many, which is no match for the best of them."""
    ax.errorbar(
        [x.value or 0], [y.value or 0], errors([y]), errors([x]), marker=marker, color=colour, markersize=5,
        markerfacecolor=colour if is_tuned else "white", markeredgecolor="white" if is_tuned else colour,
        markeredgewidth=0.4 if is_tuned else 0.9, elinewidth=0.6, ecolor=(*colour[:3], 0.35), zorder=3,
    )  # fmt: skip


def _front(ax: Axes, group: list[Point]) -> None:
    """The best of many runs: only of those that were tried on the same settings as their rivals."""
    tuned = _ids_on_common_settings(group)
    front = pareto([(x.value or 0.0, y.value or 0.0) for run, x, y in group if run.id in tuned])
    if not front:
        return
    ax.plot(*zip(*front), color="0.35", linewidth=1, zorder=2)


def _iso(ax: Axes, group: list[Point]) -> None:
    """Lines of equal time a call: TPS = TPF / time, so parallel diagonals on two logarithmic axes."""
    tpf = np.array([x.value for _, x, _ in group], dtype=float)
    tps = np.array([y.value for _, _, y in group], dtype=float)
    ax.set(
        xscale="log", yscale="log", xlim=(tpf.min() / 1.25, tpf.max() * 1.35), ylim=(tps.min() / 1.4, tps.max() * 1.4)
    )
    (left, right), (low, high) = ax.get_xlim(), ax.get_ylim()
    for milliseconds in _round_times(1000 * (tpf / tps).min() / 1.6, 1000 * (tpf / tps).max() * 1.6):
        rate = 1000 / milliseconds
        ax.plot([left, right], [left * rate, right * rate], color="0.8", linewidth=0.7, zorder=1)
        x = min(right, high / rate)
        if left * 1.1 < x and low * 1.15 < x * rate:
            ax.annotate(f"{milliseconds:g} ms", (x, x * rate), (-2, -2), textcoords="offset points", ha="right",
                        va="top", fontsize=6, color="0.45")  # fmt: skip
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_minor_locator(NullLocator())
        axis.set_major_locator(FixedLocator(_ticks(*axis.get_view_interval())))
        axis.set_major_formatter("{x:g}")


def _ticks(low: float, high: float) -> list[float]:
    """Round values between two limits, finer where the limits are close."""
    steps = (1, 1.5, 2, 3, 4, 5, 6, 8) if high / low < 12 else (1, 2, 5)
    powers = range(int(np.floor(np.log10(low))), int(np.ceil(np.log10(high))) + 1)
    return [step * 10.0**power for power in powers for step in steps if low <= step * 10.0**power <= high]


def _round_times(low: float, high: float) -> list[float]:
    """1, 2, 5, 10, ... milliseconds between two limits."""
    powers = range(int(np.floor(np.log10(low))), int(np.ceil(np.log10(high))) + 1)
    return [step * 10.0**power for power in powers for step in (1, 2, 5) if low <= step * 10.0**power <= high]


def _kind(run: Run) -> tuple[bool, str]:
    return run.decoder == "lopa", run.base


def _marks(groups: Sequence[list[Point]]) -> dict[tuple[bool, str], tuple[str, str]]:
    """Marker and name of each kind of decoder: the bases, and LoPA, on each of its bases where there are several."""
    kinds = sorted(dict.fromkeys(_kind(run) for group in groups for run, _, _ in group), key=lambda kind: kind[0])
    bases = [base for is_lopa, base in kinds if is_lopa]
    marks = {kind: (KIND.get(kind[1], MARKERS[-1]), base_name(kind[1])) for kind in kinds}
    for index, base in enumerate(bases):
        name = f"LoPA on {base_name(base)}" if len(bases) > 1 else "LoPA"
        marks[True, base] = ON_BASES[index % len(ON_BASES)], name
    return marks


def _legend(
    groups: Sequence[list[Point]],
    marks: Mapping[tuple[bool, str], tuple[str, str]],
    scaled: Collection[str],
    highest: int,
) -> list[Line2D]:
    handles = [
        Line2D([], [], color=COLOURS[0] if base in scaled else WITHOUT_K, linestyle="", marker=mark,
               label=wrapped(shown(clipped(name))))
        for (_, base), (mark, name) in marks.items()
    ]  # fmt: skip
    crowds = [group for group in groups if len(group) > CROWD]  # whose points do not all have names
    handles += _colours({run.k for group in crowds for run, _, _ in group if run.decoder == "lopa"}, highest)
    if any(len(_ids_on_common_settings(group)) < len(group) for group in groups):
        hollow: Any = {"markerfacecolor": "white", "linestyle": "", "marker": "o", "color": COLOURS[0]}
        handles.append(
            Line2D([], [], **hollow, label=wrapped("hollow: not tuned over the settings that the others share"))
        )
    return handles


def _colours(ks: set[int | None], highest: int) -> list[Line2D]:
    """What the colours of lookahead say: of many numbers the ends and the middle."""
    known = sorted(k for k in ks if k is not None)
    told = known if len(known) <= 5 else [known[0], known[len(known) // 2], known[-1]]
    named = {f"k = {k}": shade(k / highest) for k in told}
    named |= {"k not fixed": to_rgba(GREY)} if None in ks else {}
    return [Line2D([], [], color=colour, linestyle="", marker="o", label=name) for name, colour in named.items()]


PLOTS = [
    Plot(
        "accuracy_tpf",
        "Score against TPF",
        "All runs of a model on the same problems and device, counting preset effective; crosses are 95 % intervals. "
        "The line joins the runs that no other run beats in both (Pareto front), among those decoders that were all "
        "tried on the same settings; hollow runs are not tuned over them. Where intervals overlap its course is "
        "uncertain. Dark to light: few to many lookahead branches; red: decoders that have none beside them.",
        "two or more runs of a model on a task",
        accuracy_tpf,
    ),
    Plot(
        "tps_tpf",
        "TPS against TPF",
        "Both axes logarithmic. On a diagonal every model call takes the same time; a run that moves to the right "
        "along one turns all of its TPF into speed, one that crosses to slower diagonals pays for its branches.",
        "two or more runs of a model on a task",
        tps_tpf,
    ),
]
