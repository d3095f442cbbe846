"""Values cross the wall as data: what arrives is what was sent, and can never be code."""

from __future__ import annotations

import math
import re
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.sandbox.inside.codec import BadValue, decode, encode, encode_parts


def through(value: Any) -> Any:
    return decode(encode(value, lambda _: 7), lambda number, name, truth: (number, name, truth))


SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary()
    | st.complex_numbers(allow_nan=False)
)
KEYS = st.none() | st.booleans() | st.integers() | st.text() | st.tuples(st.integers(), st.text())
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner)
        | st.lists(inner).map(tuple)
        | st.dictionaries(KEYS, inner)
        | st.sets(KEYS)
        | st.frozensets(KEYS)
        | st.lists(st.tuples(st.integers(), st.text()))
    ),
    max_leaves=20,
)  # fmt: skip


def same(left: Any, right: Any) -> bool:
    if type(left) is not type(right):
        return False
    if isinstance(left, (list, tuple)):
        return len(left) == len(right) and all(same(a, b) for a, b in zip(left, right, strict=True))
    if isinstance(left, dict):
        return left == right and all(same(a, b) for a, b in zip(left.items(), right.items(), strict=True))
    return bool(left == right)


@given(VALUES)
def test_plain_values_come_back_with_their_types(value: Any) -> None:
    assert same(through(value), value)


@pytest.mark.parametrize(
    "value",
    [
        -(10**30), range(3, 9, 2), deque([1, 2], maxlen=2), Decimal("1.10"), Fraction(1, 3),
        bytearray(b"\x00\xff"), "\ud800", [(1, "a"), (2, "b")], [(10**30, 1)], [()], ((),), {1: {2: {3}}}, -0.0,
    ],
)  # fmt: skip
def test_less_usual_values_come_back_too(value: Any) -> None:
    assert same(through(value), value)


@pytest.mark.parametrize("item", [1, "a", (1, "a"), [1], 10**30, None])
def test_a_long_list_has_the_same_text_in_parts_as_in_one(item: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    value = [item] * 25
    whole = encode(value, lambda _: 7)
    monkeypatch.setattr("tasks.sandbox.inside.codec.SLICE", 10)
    assert len(list(encode_parts(value, lambda _: 7))) == 5
    assert encode(value, lambda _: 7) == whole
    assert same(through(value), value)


def test_a_number_of_many_digits_comes_back() -> None:
    assert through([10**5000, 1]) == [10**5000, 1]


def test_nan_stays_nan() -> None:
    assert math.isnan(through(math.nan))


def test_subclasses_count_as_their_base_and_keep_no_methods() -> None:
    class Liar(int):
        def __eq__(self, other: object) -> bool:
            return True

        __hash__ = int.__hash__

    assert type(through(Liar(3))) is int
    assert through(Liar(3)) != 4
    Point = namedtuple("Point", "x y")
    for value, plain in (
        (Counter("aab"), {"a": 2, "b": 1}),
        (OrderedDict(a=1), {"a": 1}),
        (defaultdict(list, a=[1]), {"a": [1]}),
        (Point(1, 2), (1, 2)),
        (np.float64(0.5), 0.5),
        (np.int64(3), 3),
        (np.bool_(True), True),
    ):
        assert same(through(value), plain)


def test_iterators_are_read_to_the_end_and_endless_ones_are_cut() -> None:
    assert list(through(map(str, [1, 2]))) == ["1", "2"]
    assert list(through(iter([1, 2]))) == [1, 2]
    assert set(through({1: 2}.keys())) == {1}
    assert through({1: 2}.items()) == {(1, 2)}
    assert sum(1 for _ in through(1 for _ in iter(int, 1))) == 1_000_000


@pytest.mark.parametrize("value", [object(), len, int, re.match("a", "a"), np.array([1, 2]), math])
def test_other_objects_are_handles(value: Any) -> None:
    number, name, truth = through([value])[0]
    assert (number, truth) == (7, True)
    assert name == f"{type(value).__module__}.{type(value).__qualname__}"


@pytest.mark.parametrize(
    "text",
    [
        "", "[", "{}", '{"x":1}', '{"t":1,"s":2}', '{"i":"zz"}', '{"s":[[1]]}', '{"c":"ab"}', '{"d":[[1]]}', '{"o":1}',
        '{"dec":"x"}', '{"fr":[1,0]}', '{"b":"zz"}', '{"dq":[[1],"x"]}', '{"o":["a","b",1]}', "9" * 5000, "[" * 100_000,
    ],
)  # fmt: skip
def test_a_malformed_text_is_refused(text: str) -> None:
    with pytest.raises(BadValue):
        decode(text, lambda number, name, truth: None)
