"""A figure on the page: each panel a picture of its own that flows with the text, in colours that follow the reader's
light or dark paper, with words for every point under the pointer.

matplotlib lays the panels below each other (`style.one_column`) and its drawing is then taken apart: a group of its
SVG for each axes. Text stays text. A small script of the page (analysis/web/figures.js) shows the words.
"""

from __future__ import annotations

import colorsys
import io
import re
from collections.abc import Iterable, Iterator
from xml.etree import ElementTree

from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.transforms import Bbox

from analysis.figures.style import Plotted, paper_style

SVG, XLINK = "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"
POINTS = 72  # of matplotlib's SVG, in an inch
SCALE = 1.45  # pixels of CSS for a point, so that letters have one size in all panels
SHARED = tuple(f"{{{SVG}}}{name}" for name in ("clipPath", "path", "pattern"))  # what panels may use of each other
REACH = 5.0  # points around a mark in which the pointer meets it
PAPERS = {"light": "#ffffff", "dark": "#15181d"}  # as in analysis/web/page.css
READABLE, VISIBLE = 4.6, 3.0  # contrast of text and of marks (WCAG 2.2, 1.4.3 and 1.4.11, and a little more)
_HEX = re.compile(r"#[0-9a-f]{6}\b")
ElementTree.register_namespace("", SVG)
ElementTree.register_namespace("xlink", XLINK)

Element = ElementTree.Element


class Palette:
    """The colours of all figures of a page, as variables of its style sheet."""

    def __init__(self) -> None:
        self._used: dict[str, tuple[str, str]] = {}  # variable -> on light paper, on dark paper

    def variable(self, colour: str, is_text: bool) -> str:
        name = f"--{'t' if is_text else 'm'}{colour[1:]}"
        if name not in self._used:
            least = READABLE if is_text else VISIBLE
            self._used[name] = on_paper(colour, "light", least if is_text else 0.0), on_paper(colour, "dark", least)
        return f"var({name})"

    def css(self) -> str:
        light, dark = (
            "".join(f"{name}:{colours[index]};" for name, colours in sorted(self._used.items())) for index in (0, 1)
        )
        return f":root{{{light}}}@media screen and (prefers-color-scheme:dark){{:root{{{dark}}}}}"


def on_paper(colour: str, paper: str, least: float) -> str:
    """The same hue, as light or dark as it must be to be seen; on dark paper greys change places."""
    red, green, blue = to_rgb(colour)
    hue, lightness, saturation = colorsys.rgb_to_hls(red, green, blue)
    if paper == "dark" and saturation < 0.15:
        lightness = 0.95 - 0.85 * lightness
        least = least if lightness > 0.3 else 0.0  # lines of a grid, and what is white on white paper
    step = 0.02 if paper == "dark" else -0.02
    found = _hex(hue, lightness, saturation)
    while contrast(found, PAPERS[paper]) < least and 0 < lightness + step < 1:
        lightness += step
        found = _hex(hue, lightness, saturation)
    return found


def contrast(one: str, other: str) -> float:
    """The ratio of WCAG 2: from 1, alike, to 21, black and white."""
    low, high = sorted((_luminance(one), _luminance(other)))
    return (high + 0.05) / (low + 0.05)


def _luminance(colour: str) -> float:
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in to_rgb(colour)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _hex(hue: float, lightness: float, saturation: float) -> str:
    return "#" + "".join(f"{round(255 * part):02x}" for part in colorsys.hls_to_rgb(hue, lightness, saturation))


def pictures(figure: Plotted, name: str, palette: Palette) -> list[str]:
    """The panels of a figure, top to bottom, and its legend where it has one."""
    with paper_style():
        stream = io.StringIO()
        figure.savefig(stream, format="svg", transparent=True, metadata=dict.fromkeys(("Date", "Creator", "Format")))
    root = ElementTree.fromstring(stream.getvalue())
    groups = {group.get("id"): group for group in root.iter(f"{{{SVG}}}g")}
    shared = {one.get("id"): one for one in root.iter() if one.tag in SHARED and one.get("id")}
    found = []
    for index, axes in enumerate(_panels(figure)):
        members = [groups[f"axes_{figure.axes.index(ax) + 1}"] for ax in axes]
        box = Bbox.union([box for ax in axes if (box := _extent(figure, ax)) is not None])
        tips = [one for ax in axes for one in _tips(figure, ax)]
        found.append(_picture(f"{name}-{index}", members, shared, box, tips, palette))
    for index, legend in enumerate(figure.legends):
        box = Bbox(legend.get_window_extent().transformed(figure.transFigure.inverted()))
        members = [groups[f"legend_{_legends_before(figure) + index + 1}"]]
        found.append(_picture(f"{name}-legend{index}", members, shared, _scaled(figure, box), [], palette, "legend"))
    return found


def _legends_before(figure: Figure) -> int:
    """Legends of axes are drawn, and numbered, before those of the figure."""
    return sum(ax.get_legend() is not None for ax in figure.axes)


def _panels(figure: Figure) -> list[list[Axes]]:
    """Axes that share a place, as the two of a panel with a second y axis do."""
    places: dict[tuple[float, ...], list[Axes]] = {}
    for ax in figure.axes:
        places.setdefault(tuple(round(side, 6) for side in ax.get_position().extents), []).append(ax)
    return list(places.values())


def _extent(figure: Figure, ax: Axes) -> Bbox | None:
    box = ax.get_tightbbox()
    return None if box is None else _scaled(figure, Bbox(box.transformed(figure.transFigure.inverted())))


def _scaled(figure: Figure, box: Bbox) -> Bbox:
    """From shares of the figure to points of its SVG, whose y runs downwards."""
    width, height = figure.get_size_inches() * POINTS
    return Bbox([[box.x0 * width, (1 - box.y1) * height], [box.x1 * width, (1 - box.y0) * height]])


def _tips(figure: Plotted, ax: Axes) -> Iterator[tuple[float, float, str]]:
    width, height = figure.get_size_inches() * POINTS
    for one in figure.told:
        if one.ax is ax:
            x, y = figure.transFigure.inverted().transform(ax.transData.transform((one.x, one.y)))
            yield x * width, (1 - y) * height, one.words


def _picture(
    name: str, members: Iterable[Element], shared: dict[str | None, Element], box: Bbox,
    tips: list[tuple[float, float, str]], palette: Palette, kind: str = "panel",
) -> str:  # fmt: skip
    x, y, width, height = box.x0 - 3, box.y0 - 3, box.width + 6, box.height + 6
    view = f"{x:.1f} {y:.1f} {width:.1f} {height:.1f}"
    root = Element(
        f"{{{SVG}}}svg", {"viewBox": view, "class": kind, "width": f"{SCALE * width:.0f}", "aria-hidden": "true"}
    )
    members = list(members)
    own = {one.get("id") for group in members for one in group.iter()}
    used = {wanted for group in members for one in group.iter() for wanted in _references(one)}
    defs = ElementTree.SubElement(root, f"{{{SVG}}}defs")
    defs.extend(shared[one] for one in sorted(used - own) if one in shared)
    root.extend(members)
    root = ElementTree.fromstring(ElementTree.tostring(root))  # a copy: other panels share what is changed here
    for element in root.iter():
        _rename(element, name)
        _recolour(element, palette)
    if tips:
        marks = ElementTree.SubElement(root, f"{{{SVG}}}g", {"class": "tips"})
        for at_x, at_y, words in tips:
            place = {"cx": f"{at_x:.1f}", "cy": f"{at_y:.1f}", "r": f"{REACH:g}", "data-tip": words}
            ElementTree.SubElement(marks, f"{{{SVG}}}circle", place)
    return ElementTree.tostring(root, encoding="unicode")


def _references(element: Element) -> list[str]:
    """Names of what it uses: the shape of a marker, an edge that clips it, a hatch."""
    link = element.get(f"{{{XLINK}}}href", "")
    found = re.findall(r"url\(#([^)]+)\)", element.get("clip-path", "") + element.get("style", ""))
    return [*found, link[1:]] if link.startswith("#") else found


def _rename(element: Element, prefix: str) -> None:
    """No name of one picture is that of another on the same page."""
    if "id" in element.attrib:
        element.set("id", f"{prefix}-{element.get('id')}")
    link = f"{{{XLINK}}}href"
    if element.get(link, "").startswith("#"):
        element.set(link, f"#{prefix}-{element.attrib[link][1:]}")
    for attribute in ("clip-path", "style"):
        if attribute in element.attrib:
            element.set(attribute, element.attrib[attribute].replace("url(#", f"url(#{prefix}-"))


def _recolour(element: Element, palette: Palette) -> None:
    style = element.get("style")
    if style:
        is_text = element.tag == f"{{{SVG}}}text"
        element.set("style", _HEX.sub(lambda found: palette.variable(found.group(), is_text), style))
