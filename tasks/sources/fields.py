"""What a field of a benchmark's row may hold: checked at load, so that no row is decoded that can have no verdict."""

from __future__ import annotations

import math
import reprlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

SHOWN = 60  # characters of a value in a message


@dataclass(frozen=True)
class Kind:
    """`allowed` says in words what `fits`."""

    allowed: str
    fits: Callable[[Any], bool]

    def fault(self, value: Any) -> str | None:
        """What is wrong with a value, as the end of a sentence; None if nothing is."""
        if not self.fits(value):
            return f"allowed: {self.allowed}"
        if (half := half_character(value)) is not None:
            return f"it holds half a character (U+{ord(half):04X}); allowed: text that UTF-8 can hold"
        return None


def half_character(value: Any) -> str | None:
    """The first surrogate without its other half, in a text or in a list of texts."""
    for text in value if isinstance(value, list) else [value]:
        if isinstance(text, str):
            try:
                text.encode()
            except UnicodeEncodeError as error:
                return text[error.start]
    return None


def shown(value: Any) -> str:
    """A value in a message, whatever it is."""
    try:
        text = reprlib.repr(value) if not isinstance(value, str) else repr(value[: SHOWN + 1])
    except ValueError:  # Python does not write numbers of thousands of digits
        return "a number of too many digits"
    return text if len(text) <= SHOWN + 2 else text[:SHOWN] + "..."


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _is_number(value: Any) -> bool:
    return (isinstance(value, int) and not isinstance(value, bool)) or (
        isinstance(value, float) and math.isfinite(value)
    )


def _is_id(value: Any) -> bool:
    return _is_text(value) or (isinstance(value, int) and not isinstance(value, bool))


def _is_list(value: Any, item: Callable[[Any], bool]) -> bool:
    return isinstance(value, list) and all(map(item, value))


ANY = Kind("a value", lambda value: True)
TEXT = Kind("text that is not blank", _is_text)
TEXT_OR_BLANK = Kind("text", lambda value: isinstance(value, str))
ID = Kind("a whole number, or text that is not blank", _is_id)
NUMBER = Kind("a number", _is_number)
NAME = Kind("a name of Python", lambda value: isinstance(value, str) and value.isidentifier())
TEXTS = Kind("a list of texts that are not blank", lambda value: _is_list(value, _is_text) and bool(value))
TEXTS_OR_NONE = Kind("a list of texts", lambda value: _is_list(value, lambda item: isinstance(item, str)))
# evalplus writes an empty object for "no inputs".
INPUTS = Kind(
    "a list of lists of arguments", lambda value: value == {} or _is_list(value, lambda i: isinstance(i, list))
)
