"""Figures 4 and 5: what more branches do to TPF, to the score, and to the tokens of each step."""

from __future__ import annotations

from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from analysis.figures.beside import Place, name_points
from analysis.figures.choice import Looks, few, k_grid, k_panels, panel_titles, tell_runs, words_of
from analysis.figures.style import (
    COLOURS,
    PUBLISHED,
    Plot,
    Plotted,
    columns_of,
    errors,
    fitting,
    integers,
    legend_below,
    panels,
    paper_style,
    points,
    tell,
)
from analysis.labels import task_name
from analysis.study import Study
from analysis.tables import published
from analysis.tables.match import has_settings
from analysis.text import typeset
from lopa_bench.console.numbers import fixed, signed
from lopa_bench.metrics.statistics import Estimate
from lopa_bench.records.runs import Run

PRESET = "lopa_dream"
TPF_PART = 0.55  # share of a panel's height, from below
LEFT = 0.1  # share of samples that must still decode for a step to be drawn
TPF, SCORE = COLOURS[0], COLOURS[1]
Curve = list[published.Row]


def figure4(study: Study) -> Plotted | None:
    """TPF (left axis) and score (right axis) over the number of branches; a published curve only where model, task and
    settings are those of the runs.
    """
    measured, left_out = fitting(k_panels(study, shows_score=True))
    curves = _curves()
    beside = [next((key for key in curves if _answers(series, *key)), None) for series in measured]
    alone = [key for key in curves if key not in beside]
    with paper_style():
        figure, axes = panels(len(measured) + len(alone), left_out=left_out)
        for ax, series, title, key in zip(axes, measured, panel_titles(study, measured), beside):
            right = _twin(ax, title)
            if key is not None:
                _published(ax, right, curves[key])
            tpf, score = _measured(ax, right, study, series)
            if key is not None:
                _differences(ax, right, curves[key], series, tpf, score)
            _share_height(ax, right)
        for ax, key in zip(axes[len(measured) :], alone):
            right = _twin(ax, f"{key[0]} · {task_name(key[1])}\npublished, no run with these settings")
            _published(ax, right, curves[key])
            _share_height(ax, right)
        handles = _legend(figure)
        legend_below(figure, handles, [str(one.get_label()) for one in handles], columns_of(3, 3))
    return figure


def _answers(series: list[Run], model: str, task: str) -> bool:
    """Whether the runs are those of the published curve: its model on the benchmark itself, the settings of table 5."""
    run, wanted = series[0], published.hyperparameters(model, task)
    return (
        wanted is not None
        and (run.model, run.task) == (published.MODELS[model], task)
        and run.source_kind != "embedded"
        and run.base == published.PIPELINE
        and has_settings(run, wanted, but=("k",))
    )


def _curves() -> dict[tuple[str, str], Curve]:
    curves: dict[tuple[str, str], Curve] = {}
    for row in published.rows("figure4_scaling"):
        curves.setdefault((row["model"], row["task"]), []).append(row)
    return curves


def _twin(ax: Axes, title: str) -> Axes:
    right = ax.twinx()
    right.spines["right"].set_visible(True)
    right.grid(visible=False)
    ax.set_title(title)
    ax.set_xlabel("lookahead branches k")
    integers(ax)
    ax.set_ylabel("TPF (tokens per call)", color=TPF, loc="bottom")
    right.set_ylabel("score (%)", color=SCORE, loc="top")
    return right


def _published(ax: Axes, right: Axes, curve: Curve) -> None:
    ks = [int(row["branches"]) for row in curve]
    ax.plot(ks, [float(row["tpf"]) for row in curve], "-", marker="o", **PUBLISHED)
    right.plot(ks, [float(row["score"]) for row in curve], "--", marker="s", **PUBLISHED)
    for row, k in zip(curve, ks):
        place = f"published, k = {k}\n{row['model']} · {task_name(row['task'])}"
        tell(ax, k, float(row["tpf"]), f"{place}\nTPF {row['tpf']}")
        tell(right, k, float(row["score"]), f"{place}\nscore (%) {row['score']}")


def _measured(ax: Axes, right: Axes, study: Study, series: list[Run]) -> tuple[list[Estimate], list[Estimate]]:
    """TPF and score, and as a dotted line the score of greedy decoding on the same samples."""
    ks = [run.k or 0 for run in series]
    reference = study.baseline(series[0], base="greedy")  # the article's vanilla; k = 0 is in the curve itself
    if reference is not None and not all(run.decoded <= reference.decoded for run in series):
        reference = None
    among = series if reference is None else [*series, reference]
    tpf = [study.value(run, "tpf", PRESET, among) for run in series]
    score = [study.value(run, "accuracy", among=among).scaled(100) for run in series]
    bars: dict[str, Any] = {"elinewidth": 0.7, "capsize": 1.5}
    ax.errorbar(ks, points(tpf), errors(tpf), color=TPF, marker="o", **bars)
    right.errorbar(ks, points(score), errors(score), color=SCORE, marker="s", linestyle="--", **bars)
    tell_runs(ax, series, ks, tpf, "TPF")
    tell_runs(right, series, ks, score, "score (%)", 1)
    if reference is not None:
        value = study.value(reference, "accuracy", among=among).scaled(100).value
        if value is not None:
            right.axhline(value, color=SCORE, linestyle=":", linewidth=1)
    return tpf, score


def _differences(
    ax: Axes, right: Axes, curve: Curve, series: list[Run], tpf: list[Estimate], score: list[Estimate]
) -> None:
    """Measured - published, beside each measured point that has a published one."""
    said = {int(row["branches"]): row for row in curve}
    for axes, column, values, digits in ((ax, "tpf", tpf, 2), (right, "score", score, 1)):
        for run, value in zip(series, values):
            row = said.get(run.k or 0)
            if row is not None and value.value is not None:
                difference = typeset(signed(value.value - float(row[column]), digits))
                axes.annotate(difference, (run.k or 0, value.value), (0, 5), textcoords="offset points", fontsize=5,
                              ha="center", rotation=90, va="bottom")  # fmt: skip


def _share_height(left: Axes, right: Axes) -> None:
    """The score in the upper part and TPF in the lower, each with ticks beside its own curve: they never overlap."""
    for ax, below, above in ((left, 0.0, 1 - TPF_PART), (right, TPF_PART, 0.0)):
        low, high = ax.get_ylim()
        height = (high - low) / (1 - below - above)
        ax.set_ylim(low - below * height, high + above * height)
        ticks = MaxNLocator(5, steps=[1, 2, 5, 10]).tick_values(low, high)
        ax.set_yticks([tick for tick in ticks if low <= tick <= high])


def _legend(figure: Figure) -> list[Line2D]:
    """Of what is drawn."""
    drawn = {(line.get_color(), line.get_linestyle()) for ax in figure.axes for line in ax.lines}
    handles = [
        Line2D([], [], color=TPF, marker="o", label="TPF, measured"),
        Line2D([], [], color=SCORE, marker="s", linestyle="--", label="score, measured"),
        Line2D([], [], color=SCORE, linestyle=":", label="score of greedy decoding, measured"),
        Line2D([], [], **PUBLISHED, marker="o", label="TPF, published"),
        Line2D([], [], **PUBLISHED, marker="s", linestyle="--", label="score, published"),
    ]
    return [one for one in handles if (one.get_color(), one.get_linestyle()) in drawn]


def figure5(study: Study) -> Plotted | None:
    """Mean tokens gained at each step with the 25 to 75 % band."""
    grid = k_grid(study)
    if grid is None:
        return None
    figure, panels_of, look = grid
    with paper_style():
        for ax, runs, title in panels_of:
            chosen, places = few(runs), list[list[Place]]()
            for run in chosen:
                filling = study.digest(run, runs).filling
                shown = filling.samples >= max(1, LEFT * filling.samples[:1].max(initial=0))
                steps = [step for step, keep in enumerate(shown) if keep]
                style = look[run.k]
                ax.fill_between(
                    steps, filling.low[shown], filling.high[shown], color=style["color"], alpha=0.16, linewidth=0
                )
                each = max(1, len(steps) // 8)  # of the steps has a mark
                ax.plot(steps, filling.mean[shown], **style, markevery=each, label=f"k = {run.k}")
                places.append([(at, filling.mean[at]) for at in {*steps[::each], *steps[-1:]}])
                for at in steps[::each]:
                    gained = f"step {at}: {fixed(filling.mean[at])} tokens, 25 to 75 %: {fixed(filling.low[at], 1)} to "
                    tell(ax, at, filling.mean[at], words_of(run, runs, gained + fixed(filling.high[at], 1)))
            ax.set_title(title)
            ax.set_xlabel("step (model call) of a sample")
            integers(ax)
            ax.set_ylabel("tokens gained in the step")
            ax.set_ylim(bottom=0)
            _name_curves(ax, chosen, places, look)
    return figure


def _name_curves(ax: Axes, runs: list[Run], places: list[list[Place]], look: Looks) -> None:
    """Each k at the end of its curve; in a legend where that has no room for all of them."""
    rest = [place for curve in places for place in sorted(curve)[:-1]]
    named = [(max(curve), f"k = {run.k}", look[run.k]["color"]) for run, curve in zip(runs, places) if curve]
    ends, names, colours = zip(*named) if named else ((), (), ())
    before = list(ax.texts)
    if name_points(ax, ends, names, rest, colours):
        for text in set(ax.texts) - set(before):
            text.remove()
        ax.legend(loc="upper right", ncols=2)


PLOTS = [
    Plot(
        "figure4",
        "TPF and score over the number of branches",
        "Counting preset lopa_dream; 95 % intervals (bootstrap over problems for TPF, Wilson for the score). "
        "Dotted: greedy decoding on the same problems, where it was run. Thin grey curves are the article's, read off "
        "its figure; they stand beside measured ones only where model, benchmark and settings are the article's, and "
        "the small figures are then measured − published. The article does not say whether its axis counts the "
        "anchor; here k does not.",
        "a sweep of decoder.k (conf/experiment/ablation/k)",
        figure4,
    ),
    Plot(
        "figure5",
        "Tokens gained over the steps of a sample",
        "Mean over the samples that still decode at a step, with the band from 25 to 75 %; a curve ends where fewer "
        "than 10 % of the samples are left. A step gains the positions that its call filled and, if a lookahead branch "
        "won, that branch's extra token.",
        "a sweep of decoder.k",
        figure5,
    ),
]
