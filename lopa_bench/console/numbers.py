"""Numbers as people read them."""

from __future__ import annotations


def number(value: float | None) -> str:
    """Three significant digits, never in powers of ten."""
    if value is None:
        return "-"
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def plain(text: object) -> str:
    """A user's text for one line of a terminal: what moves the cursor, colours, hides or turns text is escaped."""
    return "".join(
        sign if sign.isprintable() else sign.encode("unicode_escape", "surrogatepass").decode() for sign in str(text)
    )


def percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f} %"


def count(value: int | None) -> str:
    """Short, since a table compares; the JSON line and the run row have every digit."""
    if value is None or value < 10_000:
        return "-" if value is None else str(value)
    thousands = value / 1000
    return number(thousands) + "k" if thousands < 1000 else number(thousands / 1000) + "M"


def clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
