"""Names beside points, where there is room for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.typing import ColorType

from analysis.figures.style import shown
from analysis.text import clipped

LONGEST = 26  # characters of a name
SIZE = 6.5  # points
_WIDE, _HIGH = 0.58 * SIZE, 1.2 * SIZE  # of a letter
_GAP = 4.0
PAPER: Any = {"boxstyle": "square,pad=0.1", "facecolor": "white", "edgecolor": "none", "alpha": 0.7}
Place = tuple[float, float]  # x, y of the data
Box = tuple[float, float, float, float]  # left, low, right, high, in points


def name_points(
    ax: Axes,
    points: Sequence[Place],
    names: Sequence[str],
    others: Sequence[Place] = (),
    colours: Sequence[ColorType] = (),
) -> int:
    """Writes each name beside its point unless it would cover another point or name; returns how many had no room.

    Names are sought in the order given, so those that matter most come first. `others`: further points, without a name.
    `colours`: of the names, which then stand on paper, since lines may pass below them. Limits and scales of the axes
    must stand.
    """
    width, height = _size(ax)
    ax.get_xlim(), ax.get_ylim()  # matplotlib sets limits when they are asked for
    to_points = ax.transData + ax.transAxes.inverted()
    everywhere = np.array([*points, *others], dtype=float).reshape(-1, 2)
    places = to_points.transform(everywhere) * (width, height)
    taken = [(px - 2.5, py - 2.5, px + 2.5, py + 2.5) for px, py in places]
    missing = 0
    for name, (px, py), colour in zip(names, places, colours or ["black"] * len(names)):
        text = shown(clipped(name, LONGEST))
        found = next((one for one in _offers(text, px, py) if _is_free(one[0], taken, width, height)), None)
        if found is None:
            missing += 1
            continue
        box, across, along = found
        taken.append(box)
        at = (px / width, py / height)
        offset = {"left": _GAP, "right": -_GAP, "center": 0.0}[across], {"bottom": 3, "top": -3, "center": 0}[along]
        ax.annotate(text, at, offset, xycoords="axes fraction", textcoords="offset points", fontsize=SIZE, ha=across,
                    va=along, zorder=4, color=colour, bbox=PAPER if colours else None)  # fmt: skip
    return missing


def _size(ax: Axes) -> tuple[float, float]:
    """Of the axes, in points, as near as that is known before the layout: its share of the figure less the words."""
    figure = ax.get_figure(root=True)
    assert figure is not None
    width, height = figure.get_size_inches() * 72
    spec = ax.get_subplotspec()
    rows, columns = spec.get_gridspec().get_geometry() if spec is not None else (1, 1)
    return float(width / columns - 46), float(height / rows - 62)


def _offers(text: str, x: float, y: float) -> list[tuple[Box, str, str]]:
    wide, high = _WIDE * len(text), _HIGH
    sides = {"left": (x + _GAP, x + _GAP + wide), "right": (x - _GAP - wide, x - _GAP),
             "center": (x - wide / 2, x + wide / 2)}  # fmt: skip
    levels = {"center": (y - high / 2, y + high / 2), "bottom": (y + 3, y + 3 + high), "top": (y - 3 - high, y - 3)}
    order = [("left", "center"), ("right", "center"), ("center", "bottom"), ("center", "top"), ("left", "bottom"),
             ("left", "top"), ("right", "bottom"), ("right", "top")]  # fmt: skip
    return [
        ((sides[across][0], levels[along][0], sides[across][1], levels[along][1]), across, along)
        for across, along in order
    ]


def _is_free(box: Box, taken: Sequence[Box], width: float, height: float) -> bool:
    left, low, right, high = box
    if left < 0 or low < 0 or right > width or high > height:
        return False
    return not any(left < other[2] and other[0] < right and low < other[3] and other[1] < high for other in taken)
