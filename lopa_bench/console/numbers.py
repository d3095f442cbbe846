"""Numbers and a user's own text as people read them, with signs that every terminal has. Pages and tables set the same
texts in print (analysis/text.py); files for programs hold plain numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from unicodedata import category

UNKNOWN = "-"
Interval = tuple[float, float]


def number(value: float | None) -> str:
    """Three significant digits, never in powers of ten."""
    if value is None:
        return UNKNOWN
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def fixed(value: float | None, digits: int = 2, interval: Interval | None = None, sign: str = "") -> str:
    """For columns of one quantity: "8.31 [7.90, 8.72]"."""
    if value is None:
        return UNKNOWN
    text = f"{value:{sign}z.{digits}f}"  # z: what rounds to zero has no minus
    return text + (f" [{interval[0]:.{digits}f}, {interval[1]:.{digits}f}]" if interval else "")


def signed(value: float | None, digits: int = 1, interval: Interval | None = None) -> str:
    """A difference."""
    return fixed(value, digits, interval, "+")


def rate(value: float) -> str:
    """In percent, for where the sign stands elsewhere."""
    return f"{100 * value:.1f}"


def percent(value: float | None) -> str:
    return UNKNOWN if value is None else f"{rate(value)} %"


def points(difference: float | None) -> str:
    """Of two rates, in percentage points."""
    return UNKNOWN if difference is None else f"{signed(100 * difference)} pt"


def times(ratio: float | None) -> str:
    return UNKNOWN if ratio is None else f"×{number(ratio)}"


def p_value(p: float | None) -> str:
    return UNKNOWN if p is None else "< 0.001" if p < 0.001 else f"{p:.3f}"


def over_interval(
    value: float | None, interval: Interval | None, show: Callable[[float], str] = number, unit: str = ""
) -> str:
    """The value, and its 95 % interval on a line of its own, which keeps a table within 80 columns."""
    if value is None:
        return UNKNOWN
    return show(value) + unit + (f"\n{show(interval[0])}–{show(interval[1])}" if interval else "")


def count(value: int | None) -> str:
    """Short, since a table compares; the JSON line and the run row have every digit."""
    if value is None or value < 10_000:
        return UNKNOWN if value is None else str(value)
    thousands = value / 1000
    return number(thousands) + "k" if thousands < 1000 else number(thousands / 1000) + "M"


def clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def plain(text: object) -> str:
    """A user's text on one line, every character seen: what moves a cursor, colours, hides or turns text is spelled
    out; wide and unbreakable spaces stay.
    """
    return "".join(
        sign if _is_seen(sign) else sign.encode("unicode_escape", "surrogatepass").decode() for sign in str(text)
    )


def plain_lines(text: object) -> str:
    """The same of a text of several lines, which stay lines."""
    return "\n".join(map(plain, str(text).split("\n")))


def _is_seen(sign: str) -> bool:
    return sign.isprintable() or category(sign) == "Zs"
