"""What a setting takes, said where it is declared; one checker and one wording for every group of settings.

A declaration is plain data in the metadata of a dataclass field, so that packages which import nothing of this one can
write it too. `choices`: the words that are allowed (`numbered`: also with a number behind, as in cuda:1). `range`: the
lowest and the highest number, None for no highest; `above`: the lowest itself is not allowed; `word`: what is allowed
beside numbers. Without any of these a value has to be of the field's type.
"""

from __future__ import annotations

import math
import re
import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from functools import lru_cache
from numbers import Integral, Real
from typing import Any, Union, get_args, get_origin, get_type_hints

WORDS: Mapping[Any, str] = {
    int: "an integer",
    float: "a finite number",
    bool: "true or false",
    str: "text",
    dict: "a mapping",
    list: "a list",
}
# What stands for a type beside itself.
KINDS: Mapping[Any, Any] = {int: Integral, float: Real, dict: Mapping, list: (list, tuple)}


def choice(default: str | None, *words: str, numbered: bool = False) -> Any:
    """A field that takes one of these words."""
    return field(default=default, metadata={"choices": words, "numbered": numbered})


def number(default: Any, low: float, high: float | None = None, above: bool = False, word: str | None = None) -> Any:
    """A field that takes numbers of a range."""
    return field(default=default, metadata={"range": (low, high), "above": above, "word": word})


@dataclass(frozen=True)
class Setting:
    """One field of a group: its type and what it declares."""

    kind: Any
    declared: Mapping[str, Any]

    @property
    def kinds(self) -> list[Any]:
        """The types of its values, None apart."""
        several = get_origin(self.kind) in (Union, types.UnionType)
        return [kind for kind in (get_args(self.kind) if several else (self.kind,)) if kind is not type(None)]

    @property
    def is_optional(self) -> bool:
        return type(None) in get_args(self.kind)

    @property
    def takes(self) -> str:
        """What it takes, in words for a message."""
        return self._words() + (", or null" if self.is_optional else "")

    def _words(self) -> str:
        kind = self.kinds[0]
        if "choices" in self.declared:
            return ", ".join(self.declared["choices"])
        if is_dataclass(kind):
            return f"{', '.join(one.name for one in fields(kind))} (settings below it)"
        text = WORDS.get(get_origin(kind) or kind, "a value")
        if "range" in self.declared:
            low, high = self.declared["range"]
            text += f" {'above' if self.declared.get('above') else 'from'} {low:g}" + (
                "" if high is None else f" to {high}"
            )
        return text + (f", or {self.declared['word']}" if self.declared.get("word") else "")

    def accepts(self, value: Any) -> bool:
        if value is None:
            return self.is_optional
        if "choices" in self.declared:
            word = re.sub(r":\d+$", "", str(value)) if self.declared.get("numbered") else value
            return isinstance(value, str) and word in self.declared["choices"]
        if "range" in self.declared:
            word = self.declared.get("word")
            return (word is not None and isinstance(value, str) and value == word) or self._is_in_range(value)
        return any(_is_a(value, kind) for kind in self.kinds)

    def _is_in_range(self, value: Any) -> bool:
        if not _is_a(value, self.kinds[0]):
            return False
        low, high = self.declared["range"]
        return low <= value <= (math.inf if high is None else high) and not (
            value == low and self.declared.get("above")
        )


def _is_a(value: Any, kind: Any) -> bool:
    plain = get_origin(kind) or kind
    if plain is Any:
        return True
    if isinstance(value, bool) or not isinstance(value, KINDS.get(plain, plain)):
        return plain is bool and isinstance(value, bool)
    return plain is not float or -math.inf < value < math.inf


@lru_cache
def settings_of(group: Any) -> Mapping[str, Setting]:
    """The settings of a dataclass by name."""
    hints = get_type_hints(group)
    return {one.name: Setting(hints[one.name], one.metadata) for one in fields(group)}


def wrong_values(group: Any) -> Iterator[tuple[str, Any, Setting]]:
    """Name, value and declaration of every setting of a group with a value that it does not take."""
    kind: Any = type(group)
    for name, setting in settings_of(kind).items():
        value = getattr(group, name)
        if not setting.accepts(value):
            yield name, value, setting


def refused(name: str, value: Any, allowed: str) -> str:
    """The message for a value that a setting cannot have."""
    return f"{name}={shown(value)} is not allowed; allowed: {allowed}"


def shown(value: Any) -> str:
    """A value in a message of one line, as the user would write it."""
    text = "null" if value is None else str(value)
    if not text.isprintable():
        text = repr(text)
    return text if len(text) <= 80 else text[:79] + "…"
