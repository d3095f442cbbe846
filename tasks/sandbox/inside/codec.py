"""Python values as JSON, and back, without pickle: what comes from a solution is data and can never be code.

JSON keeps None, bool, str, float, small int and list as they are; every other type becomes an object with one key
that names it. A value of any other class becomes a handle (a number), which the judge can hand back as an argument or
call, but which is equal to nothing: a class with an `__eq__` of its own cannot make a test hold.

This file is sent to the worker as source text, so it imports nothing of this project.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal
from fractions import Fraction
from itertools import chain, islice
from typing import Any

Hold = Callable[[Any], int]
Resolve = Callable[[int, str, bool], Any]

NoneType = type(None)
SIMPLE = frozenset({NoneType, bool, str, float, int})
SMALL = 1 << 63
SLICE = 100_000
ITERATOR_LIMIT = 1_000_000  # an endless generator is cut here
ITERATORS: tuple[type, ...] = (
    map,
    filter,
    zip,
    enumerate,
    reversed,
    type(_ for _ in ()),
    type(islice((), 0)),
    type(chain()),
)
VIEWS = {"dk": type({}.keys()), "dv": type({}.values()), "di": type({}.items())}
BASES: tuple[type, ...] = (int, float, complex, str, bytes, bytearray, tuple, list, dict, set, frozenset)


class BadValue(ValueError):
    """A text that no encoder of ours makes."""


def encode(value: Any, hold: Hold) -> str:
    return "".join(encode_parts(value, hold))


def encode_parts(value: Any, hold: Hold) -> Iterator[str]:
    """The text of a value in parts, so that that of a huge list is never in memory as a whole."""
    plain = _Encoder(hold).plain
    if type(value) is not list or len(value) <= SLICE:
        yield _dumps(plain(value))
        return
    rows = not _all_simple(lambda: value) and _all_rows(value)
    yield '{"lt":[' if rows else "["
    for start in range(0, len(value), SLICE):
        part = value[start : start + SLICE]
        yield ("," if start else "") + _dumps(part if rows else [plain(item) for item in part])[1:-1]
    yield "]}" if rows else "]"


def _dumps(plain: Any) -> str:
    return json.dumps(plain, separators=(",", ":"))


def decode(text: str | bytes, resolve: Resolve) -> Any:
    try:
        return build(json.loads(text), resolve)
    except BadValue:
        raise
    except (ValueError, TypeError, KeyError, IndexError, RecursionError, ArithmeticError) as error:
        raise BadValue(f"not a value: {type(error).__name__}: {str(error)[:100]}") from None


def has_handle(text: bytes) -> bool:
    """Whether an encoded value may hold a handle: two of them can look alike and be different objects."""
    return b'{"o":' in text


class _Encoder:
    def __init__(self, hold: Hold) -> None:
        self.hold = hold

    def plain(self, value: Any) -> Any:
        kind = type(value)
        if kind is int:
            return value if -SMALL <= value < SMALL else {"i": hex(value)}
        if kind in SIMPLE:
            return value
        if kind is list:
            return self._list(value)
        if kind is tuple:
            return {"t": self._list(list(value))}
        if kind is dict:
            return {"d": [[self.plain(key), self.plain(item)] for key, item in value.items()]}
        return self._less_usual(value, kind)

    def _list(self, values: list[Any]) -> Any:
        """Lists of numbers and texts, and lists of such tuples, go to the C encoder as they are."""
        if _all_simple(lambda: values):
            return values
        if _all_rows(values):
            return {"lt": values}
        return [self.plain(value) for value in values]

    def _less_usual(self, value: Any, kind: type) -> Any:
        if kind is set or kind is frozenset:
            return {"s" if kind is set else "fs": [self.plain(item) for item in value]}
        if kind is bytes or kind is bytearray:
            return {"b" if kind is bytes else "ba": value.hex()}
        if kind is complex:
            return {"c": [value.real, value.imag]}
        if kind is range:
            return {"r": [self.plain(n) for n in (value.start, value.stop, value.step)]}
        if kind is Decimal:
            return {"dec": str(value)}
        if kind is Fraction:
            return {"fr": [self.plain(value.numerator), self.plain(value.denominator)]}
        if kind is deque:
            return {"dq": [self._list(list(value)), value.maxlen]}
        for tag, view in VIEWS.items():
            if kind is view:
                return {tag: [self.plain(item) for item in value]}
        if kind in ITERATORS or kind.__name__.endswith("_iterator"):
            return {"it": self._list(list(islice(value, ITERATOR_LIMIT)))}
        return self._foreign(value, kind)

    def _foreign(self, value: Any, kind: type) -> Any:
        """A subclass of a built-in type counts as its base; a NumPy scalar as its number; the rest is a handle."""
        if kind.__module__ == "numpy" and hasattr(value, "item") and getattr(value, "ndim", None) == 0:
            return self.plain(value.item())
        for base in BASES:
            if issubclass(kind, base):
                return self.plain(base(value))
        try:
            truth = bool(value)
        except Exception:
            truth = True  # an array; the judge never takes this for an answer
        return {"o": [self.hold(value), f"{kind.__module__}.{kind.__qualname__}", truth]}


def _all_rows(values: list[Any]) -> bool:
    """Whether a list holds nothing but tuples of simple values."""
    return set(map(type, values)) == {tuple} and _all_simple(lambda: chain.from_iterable(values))


def _all_simple(values: Callable[[], Iterable[Any]]) -> bool:
    kinds = set(map(type, values()))
    if not kinds <= SIMPLE:
        return False
    if int not in kinds:
        return True
    if kinds == {int}:
        return min(values()) >= -SMALL and max(values()) < SMALL
    return all(-SMALL <= value < SMALL for value in values() if type(value) is int)


def build(plain: Any, resolve: Resolve) -> Any:
    """The value behind what `json.loads` gave."""
    if type(plain) is list:
        return plain if _all_simple(lambda: plain) else [build(item, resolve) for item in plain]
    if type(plain) is not dict:
        return plain
    if len(plain) != 1:
        raise BadValue(f"an object with {len(plain)} keys")
    ((tag, content),) = plain.items()
    if tag == "o":
        number, name, truth = content
        return resolve(int(number), str(name), bool(truth))
    if tag == "d":
        return {build(key, resolve): build(item, resolve) for key, item in content}
    if tag == "dq":
        return deque(build(content[0], resolve), content[1])
    if tag not in BUILDERS:
        raise BadValue(f"an unknown tag {tag[:20]!r}")
    return BUILDERS[tag](content if tag in LITERAL else build(content, resolve))


def _iterator(items: list[Any]) -> Iterator[Any]:
    return (item for item in items)


LITERAL = frozenset({"i", "b", "ba", "dec", "lt"})
BUILDERS: dict[str, Callable[[Any], Any]] = {
    "i": lambda text: int(text, 16),
    "t": tuple,
    "lt": lambda rows: [tuple(row) for row in rows],
    "s": set,
    "fs": frozenset,
    "b": bytes.fromhex,
    "ba": bytearray.fromhex,
    "c": lambda parts: complex(*parts),
    "r": lambda parts: range(*parts),
    "dec": Decimal,
    "fr": lambda parts: Fraction(*parts),
    "it": _iterator,
    "dk": lambda items: dict.fromkeys(items).keys(),
    "dv": lambda items: dict(enumerate(items)).values(),
    "di": lambda items: dict(items).items(),
}
