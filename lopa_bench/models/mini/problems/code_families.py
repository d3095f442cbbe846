"""The 32 families of small Python functions. Each takes one argument and depends on one constant.

Fields: {v} the argument, {x} a loop variable, {k} the constant, {top} = k + 5, {w} the constant as a word.
The first body is the most frequent one; the families differ in whether that is a loop or a single expression.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

INDENT = "    "


@dataclass(frozen=True)
class Family:
    """`argument` is "list", "slice" (a list about as long as the constant), "word" or "number"; `constants` are
    the values of {k}.
    """

    task: str
    names: tuple[str, ...]
    bodies: tuple[str, ...]
    argument: str = "list"
    constants: Sequence[int] = range(2, 21)


def _mapped(value: str) -> tuple[str, ...]:
    return (
        f"result = []\nfor {{x}} in {{v}}:\n    result.append({value})\nreturn result",
        f"return [{value} for {{x}} in {{v}}]",
    )


def _filtered(test: str) -> tuple[str, ...]:
    return (
        f"return [{{x}} for {{x}} in {{v}} if {test}]",
        f"result = []\nfor {{x}} in {{v}}:\n    if {test}:\n        result.append({{x}})\nreturn result",
    )


def _counted(test: str) -> tuple[str, ...]:
    return (
        f"count = 0\nfor {{x}} in {{v}}:\n    if {test}:\n        count += 1\nreturn count",
        f"return sum(1 for {{x}} in {{v}} if {test})",
    )


def _summed(value: str) -> tuple[str, ...]:
    return (
        f"total = 0\nfor {{x}} in {{v}}:\n    total += {value}\nreturn total",
        f"return sum({value} for {{x}} in {{v}})",
    )


def _decided(test: str) -> tuple[str, ...]:
    return f"return {test}", f"if {test}:\n    return True\nreturn False"


SHORT = range(2, 8)

LIST_TO_LIST = (
    Family("add {k} to [each|every] number of a list", ("add_{w}",), _mapped("{x} + {k}")),
    Family("multiply [each|every] number of a list by {k}", ("multiply_by_{w}", "times_{w}"), _mapped("{x} * {k}")),
    Family("subtract {k} from [each|every] number of a list", ("subtract_{w}",), _mapped("{x} - {k}")),
    Family("find the remainder of [each|every] number of a list divided by {k}", ("remainder_{w}",),
           _mapped("{x} % {k}")),
    Family("square [each|every] number of a list and add {k}", ("square_plus_{w}",), _mapped("{x} * {x} + {k}")),
    Family("divide [each|every] number of a list by {k} rounding down", ("divide_by_{w}",), _mapped("{x} // {k}")),
    Family("limit [each|every] number of a list to at most {k}", ("limit_{w}", "clip_{w}"),
           _mapped("min({x}, {k})")),
    Family("[keep|find] the numbers of a list greater than {k}", ("greater_than_{w}", "above_{w}"),
           _filtered("{x} > {k}")),
    Family("[keep|find] the numbers of a list smaller than {k}", ("smaller_than_{w}", "below_{w}"),
           _filtered("{x} < {k}")),
    Family("[keep|find] the numbers of a list divisible by {k}", ("divisible_by_{w}", "multiples_of_{w}"),
           _filtered("{x} % {k} == 0")),
    Family("[keep|find] the numbers of a list not divisible by {k}", ("not_divisible_by_{w}",),
           _filtered("{x} % {k} != 0")),
    Family("[keep|find] the numbers of a list between {k} and {top}", ("between_{w}", "from_{w}"),
           _filtered("{k} <= {x} <= {top}")),
    Family("remove [each|every] {k} from a list", ("remove_{w}", "drop_{w}"), _filtered("{x} != {k}")),
    Family("[get|take] the first {k} elements of a list", ("first_{w}",),
           ("return {v}[:{k}]", "result = {v}[:{k}]\nreturn result"),
           argument="slice", constants=SHORT),
    Family("[get|take] the last {k} elements of a list", ("last_{w}",),
           ("return {v}[-{k}:]", "result = {v}[-{k}:]\nreturn result"),
           argument="slice", constants=SHORT),
    Family("[find|get] the {k} smallest numbers of a list in order", ("smallest_{w}",),
           ("ordered = sorted({v})\nreturn ordered[:{k}]", "return sorted({v})[:{k}]"),
           argument="slice", constants=SHORT),
    Family("[find|get] the {k} largest numbers of a list in falling order", ("largest_{w}",),
           ("ordered = sorted({v}, reverse=True)\nreturn ordered[:{k}]",
            "return sorted({v}, reverse=True)[:{k}]"),
           argument="slice", constants=SHORT),
)  # fmt: skip

LIST_TO_ONE = (
    Family("count the numbers of a list greater than {k}", ("count_above_{w}",), _counted("{x} > {k}")),
    Family("count the numbers of a list smaller than {k}", ("count_below_{w}",), _counted("{x} < {k}")),
    Family("count the numbers of a list divisible by {k}", ("count_divisible_by_{w}", "count_multiples_of_{w}"),
           _counted("{x} % {k} == 0")),
    Family("count how [often|many times] {k} occurs in a list", ("count_{w}",), _counted("{x} == {k}")),
    Family("add up the numbers of a list times {k}", ("sum_times_{w}",), _summed("{x} * {k}")),
    Family("add up the numbers of a list plus {k} each", ("sum_plus_{w}",), _summed("({x} + {k})")),
    Family("add up the squares of a list times {k}", ("sum_squares_times_{w}",), _summed("{x} * {x} * {k}")),
    Family("find the [largest|biggest] number of a list plus {k}", ("max_plus_{w}",),
           ("largest = max({v})\nreturn largest + {k}", "return max({v}) + {k}")),
    Family("find the [smallest|lowest] number of a list minus {k}", ("min_minus_{w}",),
           ("smallest = min({v})\nreturn smallest - {k}", "return min({v}) - {k}")),
    Family("check [if|whether] a list contains {k}", ("contains_{w}", "has_{w}"),
           ("for {x} in {v}:\n    if {x} == {k}:\n        return True\nreturn False", "return {k} in {v}")),
    Family("check [if|whether] all numbers of a list are greater than {k}", ("all_above_{w}",),
           ("for {x} in {v}:\n    if {x} <= {k}:\n        return False\nreturn True",
            "return all({x} > {k} for {x} in {v})")),
)  # fmt: skip

OTHERS = (
    Family("repeat a string {k} times", ("repeat_{w}",),
           ("result = ''\nfor {x} in range({k}):\n    result += {v}\nreturn result", "return {v} * {k}"),
           argument="word", constants=SHORT),
    Family("check [if|whether] a string has more than {k} characters", ("longer_than_{w}",),
           _decided("len({v}) > {k}"), argument="word", constants=SHORT),
    Family("check [if|whether] a number is divisible by {k}", ("is_divisible_by_{w}", "is_multiple_of_{w}"),
           _decided("{v} % {k} == 0"), argument="number"),
    Family("raise a number to the power {k}", ("power_{w}",),
           ("result = 1\nfor {x} in range({k}):\n    result *= {v}\nreturn result", "return {v} ** {k}"),
           argument="number", constants=SHORT),
)  # fmt: skip

FAMILIES = (*LIST_TO_LIST, *LIST_TO_ONE, *OTHERS)
