"""Tables and figures as notebooks show them, and the runs as a DataFrame.

from analysis.notebook import figure, open_outputs, runs_frame, table
study = open_outputs()
runs_frame(study)
table("table1", study)
figure("figure4", study)
"""

from __future__ import annotations

import base64
import io
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analysis.figures.registry import FIGURES
from analysis.figures.style import paper_style
from analysis.labels import decoding
from analysis.study import Study, preset_for
from analysis.tables.article import TABLES
from analysis.tables.model import Table
from analysis.tables.render import to_html
from analysis.text import html
from lopa_bench.errors import RunError
from lopa_bench.records.runs import Run

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

OUTPUTS = "LOPA_BENCH_OUTPUTS"
FRAME_NUMBERS = ("accuracy", "tpf", "tpf_row", "tps", "latency_s")
FRAME_COLUMNS = [
    "run", "model", "task", "decoder", "k", "n",
    *(name + end for name in FRAME_NUMBERS for end in ("", "_low", "_high")),
]  # fmt: skip


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
    """A figure that Jupyter shows with its caption, without pyplot."""

    png: bytes
    caption: str

    def _repr_html_(self) -> str:
        data = base64.b64encode(self.png).decode()
        return f'<figure><img src="data:image/png;base64,{data}"><figcaption>{html(self.caption)}</figcaption></figure>'

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


def picture(drawn: Figure, caption: str) -> Picture:
    stream = io.BytesIO()
    with paper_style():
        drawn.savefig(stream, format="png")
    return Picture(stream.getvalue(), caption)


def runs_frame(study: Study) -> pd.DataFrame:
    """A row a run: what it is, its n, and its numbers with the ends of their 95 % intervals, by the counting preset
    `effective`.
    """
    import pandas as pd

    return pd.DataFrame([_frame_row(study, run) for run in study.runs], columns=FRAME_COLUMNS).set_index("run")


def _frame_row(study: Study, run: Run) -> dict[str, Any]:
    row: dict[str, Any] = {"run": run.id, "model": run.model, "task": run.task, "decoder": decoding(run), "k": run.k}
    row["n"] = study.numbers(run).n
    for name in FRAME_NUMBERS:
        value = study.value(run, name, preset_for(run, "effective") if name in ("tpf", "tps") else None)
        low, high = value.interval or (None, None)
        row |= {name: value.value, f"{name}_low": low, f"{name}_high": high}
    return row


def figure(name: str, study: Study) -> Picture | str:
    """A figure by name; where no run can answer, a sentence that says what it reads."""
    plot = FIGURES[name]
    drawn = plot.draw(study)
    if drawn is None:
        return f"{plot.title}: no run can answer this; it reads {plot.reads}."
    return picture(drawn, f"{plot.title}. {plot.caption}")


def side_by_side(runs: Sequence[Run] | None, columns: Sequence[str]) -> pd.DataFrame:
    """Columns of the samples of two runs that both were asked for, with _a and _b behind their names."""
    import pandas as pd

    keys = ["problem_id", "sample_index"]
    empty = pd.DataFrame({name: [] for name in [*keys, *columns]})
    a, b = (run.samples.select([*keys, *columns]).to_pandas() for run in runs) if runs else (empty, empty)
    return a.merge(b, on=keys, suffixes=("_a", "_b"))


def table(name: str, study: Study) -> Shown:
    return Shown(TABLES[name](study))
