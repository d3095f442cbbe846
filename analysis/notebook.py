"""Tables and figures as notebooks show them.

from analysis.notebook import figure, open_outputs, table
study = open_outputs()
table("table1", study)
figure("figure4", study)
"""

from __future__ import annotations

import io
import os
from dataclasses import dataclass
from pathlib import Path

from analysis.figures.registry import FIGURES
from analysis.figures.style import paper_style
from analysis.study import Study
from analysis.tables.article import TABLES
from analysis.tables.model import Table
from analysis.tables.render import to_html

OUTPUTS = "LOPA_BENCH_OUTPUTS"


def open_outputs(folder: Path | str | None = None) -> Study:
    """The runs under `folder`; by default of $LOPA_BENCH_OUTPUTS, else of the checkout's outputs/."""
    return Study.of(folder or os.environ.get(OUTPUTS) or Path(__file__).parents[1] / "outputs")


@dataclass(frozen=True)
class Picture:
    """A figure that Jupyter shows without pyplot."""

    png: bytes
    caption: str

    def _repr_png_(self) -> bytes:
        return self.png

    def __repr__(self) -> str:
        return self.caption


@dataclass(frozen=True)
class Shown:
    """A table that Jupyter shows with its notes."""

    table: Table

    def _repr_html_(self) -> str:
        return to_html(self.table)


def figure(name: str, study: Study) -> Picture | str:
    """A figure by name; where no run can answer, a sentence that says what it reads."""
    plot = FIGURES[name]
    drawn = plot.draw(study)
    if drawn is None:
        return f"{plot.title}: no run can answer this; it reads {plot.reads}."
    stream = io.BytesIO()
    with paper_style():
        drawn.savefig(stream, format="png")
    return Picture(stream.getvalue(), f"{plot.title}. {plot.caption}")


def table(name: str, study: Study) -> Shown:
    return Shown(TABLES[name](study))
