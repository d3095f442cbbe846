"""How figures look: one width, one set of colours that stays apart in grey, axes with units, no pyplot state."""

from __future__ import annotations

import textwrap
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from math import ceil, isfinite
from pathlib import Path
from typing import Any, TypeVar

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from matplotlib.transforms import Bbox

from analysis.study import Study
from lopa_bench.metrics.statistics import Estimate

WIDTH = 7.0  # inches: the text width of a two-column paper
PANEL_HEIGHT = 2.7
MOST = 8  # panels, or series, of one figure
COLUMN = 3.6  # inches: of a panel on the page
CAPTION, CAPTION_CHARACTERS = 6.5, 21  # points, and how many of its letters an inch holds
ALONE = 48  # characters of a line of a legend below a panel of its own
WIDE = 52  # characters from which labels of a legend stand below each other
LEGEND_LINE = 0.15  # inches
LEFT_TO_RIGHT = "\u200e"  # a mark without a glyph
GREY = "0.62"
PUBLISHED: dict[str, Any] = {"color": GREY, "linewidth": 0.9, "markersize": 2.5}
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
LINES = ("-", "--", "-.", ":")
# Dark to light, so that the order survives a grey printer.
COLOURS = ("#1b2a49", "#a23b2e", "#2f7f79", "#c98a1b", "#6f6aa8", "#7d8c3a", "#b0678f", "#5f6b73")
STYLE: Any = {
    "font.size": 8,
    "axes.titlesize": 8.5,
    "axes.labelsize": 8,
    "legend.fontsize": 7,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": "0.9",
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.4,
    "lines.markersize": 4,
    "legend.frameon": False,
    "figure.constrained_layout.use": True,
    "savefig.dpi": 192,  # two dots for a pixel of CSS
    "pdf.fonttype": 42,  # real text in the PDF
    "svg.fonttype": "none",
    "text.parse_math": False,  # a name may hold dollar signs
    "axes.formatter.use_mathtext": False,
}

T = TypeVar("T")
Draw = Callable[[Study], "Plotted | None"]


@dataclass(frozen=True)
class Plot:
    """A figure of the report. `draw` gives None when no run can answer; `reads` says what it needs."""

    name: str
    title: str
    caption: str
    reads: str
    draw: Draw


@dataclass(frozen=True)
class Told:
    """A point of a figure, in data coordinates, and what is said of it when somebody points at it."""

    ax: Axes
    x: float
    y: float
    words: str


class Plotted(Figure):
    """A figure whose points have words."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.told: list[Told] = []


def tell(ax: Axes, x: float | None, y: float | None, words: str) -> None:
    """Gives a point words; none where a coordinate is not known."""
    if x is not None and y is not None and isfinite(x) and isfinite(y):
        figure = ax.figure
        assert isinstance(figure, Plotted)
        figure.told.append(Told(ax, float(x), float(y), words))


_one_column: ContextVar[bool] = ContextVar("one_column", default=False)


@contextmanager
def one_column() -> Iterator[None]:
    """In here the panels of a figure stand below each other, as the page takes them apart."""
    token = _one_column.set(True)
    try:
        yield
    finally:
        _one_column.reset(token)


@contextmanager
def paper_style() -> Iterator[None]:
    with mpl.rc_context(STYLE):
        yield


def panels(
    count: int,
    columns: int = 2,
    height: float = PANEL_HEIGHT,
    width: float = WIDTH,
    left_out: int = 0,
    heights: Sequence[float] = (),
) -> tuple[Plotted, list[Axes]]:
    """A grid of `count` axes; those of the grid that are left over do not exist. `left_out`: as `fitting` gives it.
    `heights`: of each panel, where they differ; a row is as high as its highest.
    """
    columns = columns_of(count, columns)
    rows = ceil(count / columns)
    high = [max(heights[row * columns : (row + 1) * columns]) for row in range(rows)] if heights else [height] * rows
    alone = COLUMN if _one_column.get() else width * 0.62
    figure = Plotted(figsize=(width if columns > 1 else alone, sum(high)))
    FigureCanvasAgg(figure)
    if left_out:
        figure.suptitle(f"not shown: {left_out} more, since a figure has room for {MOST}", fontsize=7)
    grid = figure.add_gridspec(rows, columns, height_ratios=high)
    return figure, [figure.add_subplot(grid[index // columns, index % columns]) for index in range(count)]


def columns_of(count: int, columns: int = 2) -> int:
    return 1 if _one_column.get() else min(columns, count)


def fitting(groups: list[T]) -> tuple[list[T], int]:
    """Those of the panels or series that a figure shows, and how many are left out, which it says."""
    return groups[:MOST], max(0, len(groups) - MOST)


def legend(figure: Figure, ax: Axes, columns: int = 2) -> None:
    """A legend below all panels of what an axes holds; matplotlib alone would leave out names that begin with "_"."""
    found: list[Any] = [one for one in ax.containers if one.get_label()]
    texts = [wrapped(shown(str(one.get_label()))) for one in found]
    columns = 1 if max(map(len, texts), default=0) > WIDE else columns_of(columns)
    legend_below(figure, found, texts, columns)


def legend_below(figure: Figure, handles: Sequence[Any], texts: Sequence[str], columns: int) -> None:
    """A legend below all panels, by which the figure grows: they keep their height."""
    height = max((1 + text.count("\n") for text in texts), default=1) * LEGEND_LINE
    figure.set_figheight(figure.get_figheight() + ceil(len(texts) / columns) * height)
    figure.legend(handles, texts, loc="outside lower center", ncols=columns)


def wrapped(text: str) -> str:
    """A legend's text, on lines that fit below one panel where panels stand alone."""
    return "\n".join(textwrap.wrap(text, ALONE)) if _one_column.get() else text


def shown(text: str) -> str:
    """Text in which every sign that the font lacks is named by its number, and whose lines run from left to right."""
    known = "".join(sign if sign == "\n" or ord(sign) in _glyphs() else f"[U+{ord(sign):04X}]" for sign in text)
    return "\n".join(LEFT_TO_RIGHT + line if _turns(line) else line for line in known.split("\n"))


def _turns(line: str) -> bool:
    return any(unicodedata.bidirectional(sign) in ("R", "AL") for sign in line)


@lru_cache
def _glyphs() -> frozenset[int]:
    from matplotlib.font_manager import FontProperties, findfont, get_font

    return frozenset(get_font(findfont(FontProperties(family="DejaVu Sans"))).get_charmap())


def save(figure: Figure, folder: Path, name: str, caption: str = "") -> Path:
    """PNG at twice the screen's density, PDF for the paper, both with the caption below the panels; the same bytes for
    the same rows.
    """
    with paper_style():
        area: Any = {}
        figure.draw_without_rendering()
        figure.set_layout_engine("none")  # the panels stay where they are
        if caption:
            wide, high = figure.get_size_inches()
            lines = textwrap.wrap(caption, int(wide * CAPTION_CHARACTERS))
            below = (len(lines) + 1) * 1.25 * CAPTION / 72
            figure.text(0.06 / wide, -0.03 / high, "\n".join(lines), va="top", fontsize=CAPTION, in_layout=False)
            for one in figure.legends:  # which would move to the lower edge of the wider area
                one.set_bbox_to_anchor((0, 0, 1, 1), figure.transFigure)
            area = {"bbox_inches": Bbox([[0, -below], [wide, high]])}
        figure.savefig(folder / f"{name}.pdf", metadata={"CreationDate": None}, **area)
        figure.savefig(folder / f"{name}.png", metadata={"Software": None}, **area)
    return folder / f"{name}.png"


def errors(values: Sequence[Estimate]) -> np.ndarray:
    """Lengths of the error bars below and above; none where there is no interval."""
    lengths = [
        (0.0, 0.0)
        if value.interval is None or value.value is None
        else (max(0.0, value.value - value.interval[0]), max(0.0, value.interval[1] - value.value))
        for value in values
    ]
    return np.array(lengths, dtype=float).reshape(-1, 2).T


def points(values: Sequence[Estimate]) -> np.ndarray:
    return np.array([np.nan if value.value is None else value.value for value in values], dtype=float)


def integers(*axes: Axes) -> None:
    """Whole numbers only below the axes, be it a single one."""
    for ax in axes:
        ax.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))


def shade(position: float) -> tuple[float, float, float, float]:
    """A colour for an ordered quantity from 0 to 1: dark to light, never too light for white paper."""
    return mpl.colormaps["viridis"](0.02 + 0.8 * position)


def shades(count: int) -> list[tuple[float, float, float, float]]:
    return [shade(index / max(1, count - 1)) for index in range(count)]
