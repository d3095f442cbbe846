"""TPF of the same rows under the counting rule of every publication."""

from __future__ import annotations

from matplotlib.figure import Figure

from analysis.figures.choice import few, k_panels, panel_title
from analysis.figures.style import MARKERS, Plot, errors, panels, paper_style, points, shades
from analysis.study import Study
from lopa_bench.presets import PRESETS


def presets(study: Study) -> Figure | None:
    series = k_panels(study)
    if not series:
        return None
    with paper_style():
        figure, axes = panels(len(series))
        for ax, runs in zip(axes, series):
            chosen = few(runs)
            names = [name for name in PRESETS if study.value(chosen[0], "tpf", name).value is not None]
            for index, (run, colour) in enumerate(zip(chosen, shades(len(chosen)))):
                values = [study.value(run, "tpf", name) for name in names]
                places = [place + 0.16 * (index - (len(chosen) - 1) / 2) for place in range(len(names))]
                ax.errorbar(points(values), places, xerr=errors(values), linestyle="", color=colour,
                            marker=MARKERS[index], elinewidth=0.8, capsize=1.5, label=f"k = {run.k}")  # fmt: skip
            ax.set_yticks(range(len(names)), [f"{name}\n{_rule(name)}" for name in names], fontsize=6.5)
            ax.invert_yaxis()
            ax.set_xlim(left=0)
            ax.set_title(panel_title(runs[0]).replace(" · ", "\n"))
            ax.set_xlabel("TPF under the rule (tokens per step)")
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
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
