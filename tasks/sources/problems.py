"""What holds for the problems of every task: they are there, they are text, and no two of them have one id."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

from tasks.sources.fields import TEXT, TEXT_OR_BLANK, shown
from tasks.types import Problem, TaskError


def unique_problems(problems: Sequence[Problem], where: str, rows: Sequence[int], id_field: str | None) -> None:
    """Raises TaskError for the first problem that is none, or that has the id of an earlier one.

    `rows` are the numbers of the problems' rows, from 1; `id_field` is the field that the ids were made from.
    """
    if not problems:
        raise TaskError(f"{where}: no row is a problem of this task")
    seen: dict[str, int] = {}
    for place, (problem, row) in enumerate(zip(problems, rows, strict=True)):
        if not isinstance(problem, Problem):
            raise TaskError(f"{where}, row {row}: its problem is {shown(problem)}; allowed: a tasks.types.Problem")
        for name, kind in (("id", TEXT), ("question", TEXT), ("gold", TEXT_OR_BLANK)):
            value = getattr(problem, name)
            if (fault := kind.fault(value)) is not None:
                raise TaskError(f"{where}, row {row}: the problem's {name} is {shown(value)}; {fault}")
        first = seen.setdefault(plain_id(problem.id), place)
        if first != place:
            given = _given(problems[first], problem, id_field)
            names = " and ".join(dict.fromkeys([problems[first].id, problem.id]))
            raise TaskError(
                f"{where}, rows {rows[first]} and {row} have the same id: {names}{given}; allowed: every id once"
            )


def _given(first: Problem, second: Problem, id_field: str | None) -> str:
    """What the rows say, since ids are made of it."""
    values = [problem.row.get(id_field) for problem in (first, second)] if id_field else [None]
    return "" if None in values else f" ({id_field} is {shown(values[0])} and {shown(values[1])})"


def plain_id(text: str) -> str:
    """The form in which two ids are the same one: Unicode's forms, spaces, invisible signs, and zeros in front of a
    last number make no difference.
    """
    words = " ".join(unicodedata.normalize("NFKC", text).split())
    visible = "".join(sign for sign in words if unicodedata.category(sign) not in ("Cf", "Cc"))
    return re.sub(r"(?<![\d.])0+(?=\d+$)", "", re.sub(r"\s*([/-])\s*", r"\1", visible).strip())
