"""Outputs of HumanEval+ and MBPP+ are compared as evalplus 0.3.1 compares them."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tasks.sandbox.oracles import Oracle


def accepts(
    output: Any, expected: Any, name: str = "f", family: str = "mbpp", atol: float = 0, inputs: Any = ()
) -> bool:
    return Oracle(family, name, atol).accepts(output, expected, inputs)


@pytest.mark.parametrize(
    ("output", "expected", "right"),
    [
        (1, 1, True), (1, 1.0, True), (True, 1, True), ("1", 1, False), ([1], (1,), False), (None, 0, False),
        (0.1 + 0.2, 0.3, True), (0.3001, 0.3, False), (3, 3.0000001, False), ([0.1 + 0.2], [0.3], True),
        ((0.1 + 0.2,), [0.3], False), ([0.3], [0.3, 0.3], False), ([0.1 + 0.2, 1], [0.3, 1], False),
        (math.inf, math.inf, True), (-math.inf, math.inf, False), (math.nan, math.nan, False),
        (1e20 + 1e12, 1e20, True), ({"a": 1}, {"a": 1.0}, True), ({1, 2}, {2, 1}, True), ("0.30", 0.3, False),
        ([], [], True), ([[0.3]], [0.3], False),
        (10**400, 1.0, False), (object(), object(), False),
    ],
)  # fmt: skip
def test_equal_or_close(output: Any, expected: Any, right: bool) -> None:
    assert accepts(output, expected) is right


def test_a_stated_tolerance_holds_for_nested_values_of_the_same_type() -> None:
    assert accepts([[1.00001]], [[1.0]], atol=1e-4)
    assert accepts(1.00009, 1.0, atol=1e-4)
    assert not accepts(1.0002, 1.0, atol=1e-4)
    assert not accepts(1, 1.00001, atol=1e-4)
    assert not accepts("a", "b", atol=1e-4)


def test_the_tolerance_stays_once_a_float_was_expected() -> None:
    oracle = Oracle("humaneval", "tri", 0)
    assert not oracle.accepts([0.1 + 0.2, 1], [0.3, 1], ())
    assert oracle.accepts(2.0, 2.0, ())
    assert oracle.accepts([0.1 + 0.2, 1], [0.3, 1], ())


def test_special_oracles() -> None:
    assert accepts((5, 4), (4, 5), "similar_elements")
    assert not accepts((5, 5), (4, 5), "similar_elements")
    assert not accepts(7, (4, 5), "similar_elements")
    assert accepts(False, True, "are_equivalent")
    assert accepts(0, 1, "sum_div")
    assert not accepts(2, 1, "sum_div")
    assert accepts(35, 33, "surface_Area", atol=1e-4, inputs=[3, 4])  # 9 + 6 * 4.27 = 34.6
    assert not accepts(34, 33, "surface_Area", atol=1e-4, inputs=[3, 4])
    assert accepts(8, 3, "digit_distance_nums", inputs=[5, 256])  # 2 + 5 + 1
    assert not accepts(7, 3, "digit_distance_nums", inputs=[5, 256])
    assert not accepts((5, 4), (4, 5), "similar_elements", family="humaneval")


@pytest.mark.parametrize(("output", "expected", "right"), [
    ("match", "match", True), (None, "match", False), (None, None, True), (True, True, True), (False, True, False),
    ("match", None, False), (True, "match", True),
])  # fmt: skip
def test_only_whether_there_is_a_match_counts(output: Any, expected: Any, right: bool) -> None:
    assert accepts(output, expected, "check_str") is right


def test_any_root_of_the_polynomial_will_do() -> None:
    for root, right in ((1.0, True), (-1.0, True), (1.00001, True), (1.1, False), ("1", False), (None, False)):
        assert accepts(root, 1.0, "find_zero", "humaneval", 1e-4, [[-1, 0, 1]]) is right
