"""When an output of HumanEval+ or MBPP+ counts as right: the rules of evalplus 0.3.1, including its special cases.

Pure Python on plain values, since it runs in the judge, which starts once for every program.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

RELATIVE = 1e-7  # of numpy.testing.assert_allclose
FLOAT_TOLERANCE = 1e-6  # for floats of a problem that states none

# Two lists hold the same elements in any order.
SET_EQUAL = frozenset(
    {
        "similar_elements",
        "find_char_long",
        "common_in_nested_lists",
        "extract_singly",
        "larg_nnum",
        "intersection_array",
        "find_dissimilar",
        "Diff",
    }
)
# These return match objects; only whether there is one counts.
NOT_NONE = frozenset({"check_str", "text_match_three", "text_starta_endb"})


class Oracle:
    """Judges the outputs of one part (base or plus) of one problem, in order.

    evalplus sets the tolerance to 1e-6 at the first expected float and leaves it there for the later inputs of the
    part, so this has a memory. (A result like [1, 2.5] is compared exactly before, and with a tolerance after.)
    """

    def __init__(self, family: str, entry_point: str, atol: float) -> None:
        self.family = family
        self.entry_point = entry_point
        self.atol = atol
        self.needs_inputs = (family, entry_point) in SPECIAL

    def note(self, expected: Any) -> None:
        """Takes notice of an expected value without judging."""
        if self.atol == 0 and _is_floats(expected):
            self.atol = FLOAT_TOLERANCE

    def accepts(self, output: Any, expected: Any, inputs: Any) -> bool:
        try:
            if (self.family, self.entry_point) == ("humaneval", "find_zero"):
                return abs(_polynomial(inputs[0], output)) <= self.atol
            exact = self._exact(output, expected, inputs)
            self.note(expected)
            if exact or self.atol == 0:
                return exact
            return _all_close(output, expected, self.atol)
        except (TypeError, ValueError, ArithmeticError, AttributeError, IndexError, RecursionError):
            return False  # values that cannot be compared are not equal

    def _exact(self, output: Any, expected: Any, inputs: Any) -> bool:
        if self.family == "mbpp":
            if self.entry_point in SET_EQUAL:
                return set(output) == set(expected)
            if self.entry_point in NOT_NONE:
                found = expected is not None if not isinstance(expected, bool) else expected
                return output == found if isinstance(output, bool) else found == (output is not None)
        if output == expected:
            return True
        special = SPECIAL.get((self.family, self.entry_point))
        return bool(special and special(output, inputs, self.atol))


def _is_floats(value: Any) -> bool:
    if isinstance(value, (list, tuple)) and value:
        return all(isinstance(item, float) for item in value)
    return isinstance(value, float)


def _all_close(output: Any, expected: Any, atol: float) -> bool:
    """numpy.allclose of two values of the same type and length."""
    if type(output) is not type(expected):
        return False
    return _close(output, expected, atol)


def _close(output: Any, expected: Any, atol: float) -> bool:
    if isinstance(expected, (list, tuple)):
        same_shape = isinstance(output, (list, tuple)) and len(output) == len(expected)
        return same_shape and all(_close(a, b, atol) for a, b in zip(output, expected, strict=True))
    if not (isinstance(output, (int, float, complex)) and isinstance(expected, (int, float, complex))):
        return False
    if output == expected:
        return True
    distance, size = abs(output - expected), abs(expected)
    return math.isfinite(distance) and math.isfinite(size) and distance <= atol + RELATIVE * size


def _polynomial(coefficients: Sequence[float], x: float) -> float:
    """HumanEval/32 asks for any root."""
    return sum(c * math.pow(x, power) for power, c in enumerate(coefficients))


def _always(_output: Any, _inputs: Any, _atol: float) -> bool:
    """MBPP/164 has a question that no answer can be checked against."""
    return True


def _is_zero(output: Any, _inputs: Any, _atol: float) -> bool:
    """MBPP/295: the sum of the divisors of a number that has none may be zero."""
    return bool(output == 0)


def _pyramid_surface(output: Any, inputs: Any, atol: float) -> bool:
    """MBPP/581, with the height taken as that of the pyramid and not of its faces."""
    base, height = inputs
    slant = math.sqrt((base / 2) ** 2 + height**2)
    return abs(output - round(base**2 + 4 * (base * slant) / 2)) <= atol


def _digit_distance(output: Any, inputs: Any, _atol: float) -> bool:
    """MBPP/558, with the shorter number filled up with zeros."""
    first, second = map(str, inputs)
    width = max(len(first), len(second))
    pairs = zip(first.zfill(width), second.zfill(width), strict=True)
    return bool(output == sum(abs(int(a) - int(b)) for a, b in pairs))


SPECIAL = {
    ("humaneval", "find_zero"): _always,  # judged before anything is compared
    ("mbpp", "are_equivalent"): _always,
    ("mbpp", "sum_div"): _is_zero,
    ("mbpp", "surface_Area"): _pyramid_surface,
    ("mbpp", "digit_distance_nums"): _digit_distance,
}
