"""TPF of the same rows under the counting rule of every publication."""

from __future__ import annotations

from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from analysis.figures.choice import few, k_panels, looks, panel_titles
from analysis.figures.style import Plot, errors, fitting, panels, paper_style, points
from analysis.study import Study
from lopa_bench.metrics.presets import PRESETS


def presets(study: Study) -> Figure | None:
    series, left_out = fitting(k_panels(study))
    if not series:
        return None
    look = looks(map(few, series))
    with paper_style():
        figure, axes = panels(len(series), left_out=left_out)
        for ax, runs, title in zip(axes, series, panel_titles(study, series)):
            chosen = few(runs)
            names = [name for name in PRESETS if study.value(chosen[0], "tpf", name, runs).value is not None]
            for index, run in enumerate(chosen):
                values = [study.value(run, "tpf", name, runs) for name in names]
                places = [place + 0.16 * (index - (len(chosen) - 1) / 2) for place in range(len(names))]
                style = look[run.k] | {"linestyle": "", "elinewidth": 0.8, "capsize": 1.5}
                ax.errorbar(points(values), places, xerr=errors(values), **style)
            ax.set_yticks(range(len(names)), [f"{name}\n{_rule(name)}" for name in names], fontsize=6.5)
            ax.invert_yaxis()
            ax.set_xlim(left=0)
            ax.set_title(title.replace(" · ", "\n"))
            ax.set_xlabel("TPF under the rule (tokens per step)")
        handles = [Line2D([], [], **style | {"linestyle": ""}, label=f"k = {k}") for k, style in look.items()]
        figure.legend(handles=handles, loc="outside lower center", ncols=len(handles))
    return figure


def _rule(name: str) -> str:
    """The TPF part of a preset's formula."""
    return PRESETS[name].formula.partition(",")[0]


PLOTS = [
    Plot(
        "presets",
        "One run, every counting rule",
        "The same rows counted by each rule (docs/metrics.md). Where a run stops at the end token the window holds "
        "little beside the answer; with decode_tail=true the rules differ far more.",
        "a sweep of decoder.k",
        presets,
    )
]
