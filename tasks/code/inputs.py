"""The types that MBPP+ inputs lost when they were written as JSON, which has no tuples, sets and complex numbers.

The table states for each problem what its arguments are (as evalplus 0.3.1 restores them); problems without an entry
take their arguments as JSON gives them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Restore = Callable[[Any], Any]


def _same(value: Any) -> Any:
    return value


def _list_of(item: Restore) -> Restore:
    return lambda values: [item(value) for value in values]


def _tuple_of(item: Restore) -> Restore:
    return lambda values: tuple(item(value) for value in values)


def _tuple_if_list(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _all_tuples(value: Any) -> Any:
    return tuple(_all_tuples(item) for item in value) if isinstance(value, list) else value


def _set_or_empty_dict(value: Any) -> Any:
    """MBPP/115 asks whether all dictionaries of a list are empty; the others in it are sets."""
    return set(value) if isinstance(value, list) and value else {}


def _tuple_values(value: dict[str, Any]) -> dict[str, Any]:
    return {key: tuple(item) for key, item in value.items()}


# Every argument alike.
EACH: dict[Restore, tuple[int, ...]] = {
    tuple: (
        *(2, 116, 132, 143, 222, 261, 273, 394, 399, 421, 424),
        *(429, 470, 560, 579, 596, 616, 630, 726, 740, 744, 809),
    ),
    _list_of(tuple): (63, 64, 70, 94, 120, 237, 272, 299, 400, 409, 417, 438, 473, 614, 780),
    _tuple_of(tuple): (259, 401, 445),
    _tuple_of(_tuple_if_list): (278,),
    _all_tuples: (580, 615, 791),
    _list_of(_set_or_empty_dict): (115,),
    complex: (252,),
}
# One after the other; arguments beyond these stay as they are.
IN_ORDER: dict[tuple[Restore, ...], tuple[int, ...]] = {
    (_list_of(tuple),): (75, 413, 444, 753),
    (_same, tuple): (106, 750),
    (tuple,): (250, 307, 405, 446, 617, 720, 763, 808),
    (_tuple_values,): (722,),
    (float, complex): (124,),
}
_EACH = {number: restore for restore, numbers in EACH.items() for number in numbers}
_IN_ORDER = {number: restores for restores, numbers in IN_ORDER.items() for number in numbers}


def restore_mbpp_types(number: int, arguments: list[Any]) -> list[Any]:
    """The arguments of one input of the MBPP+ problem with this number."""
    if number in _EACH:
        return [_EACH[number](argument) for argument in arguments]
    restores = _IN_ORDER.get(number, ())
    restored = [restore(argument) for restore, argument in zip(restores, arguments, strict=False)]
    return [*restored, *arguments[len(restored) :]]
