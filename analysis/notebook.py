"""Tables and figures as notebooks show them.

from analysis.notebook import figure, open_outputs, table
study = open_outputs()
table("table1", study)
figure("figure4", study)
"""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from analysis.figures.registry import FIGURES
from analysis.figures.style import paper_style
from analysis.study import Study
from analysis.tables.article import TABLES
from analysis.tables.model import Table
from analysis.tables.render import to_html
from lopa_bench.errors import RunError
from lopa_bench.records.runs import Run

if TYPE_CHECKING:
    import pandas as pd

OUTPUTS = "LOPA_BENCH_OUTPUTS"


def open_outputs(folder: Path | str | None = None) -> Study:
    """The runs under `folder`; by default of $LOPA_BENCH_OUTPUTS, else of the checkout's outputs/.

    Where there is none it says so, and every table and figure says what it needs.
    """
    try:
        return Study.finished(folder or os.environ.get(OUTPUTS) or Path(__file__).parents[1] / "outputs")
    except RunError as error:
        print(error)
        return Study([])


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


def side_by_side(runs: Sequence[Run] | None, columns: Sequence[str]) -> pd.DataFrame:
    """Columns of the samples of two runs that both were asked for, with _a and _b behind their names."""
    import pandas as pd

    keys = ["problem_id", "sample_index"]
    empty = pd.DataFrame({name: [] for name in [*keys, *columns]})
    a, b = (run.samples.select([*keys, *columns]).to_pandas() for run in runs) if runs else (empty, empty)
    return a.merge(b, on=keys, suffixes=("_a", "_b"))


def table(name: str, study: Study) -> Shown:
    return Shown(TABLES[name](study))
