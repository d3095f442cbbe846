"""All figures, in the order of the report."""

from __future__ import annotations

from analysis.figures import ablations, arena, lookahead, scaling, throughput, tradeoffs
from analysis.figures.style import Plot

FIGURES: dict[str, Plot] = {
    plot.name: plot for module in (arena, throughput, scaling, tradeoffs, lookahead, ablations) for plot in module.PLOTS
}
