"""Which of a task's problems a run takes: a named split of them, and of these the first ones."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tasks.types import Problem, TaskConfig, TaskError

ALLOWED = "allowed: FIRST-LAST or FIRST- with 1 <= FIRST <= LAST, such as 1-150 or 151-, or null for all problems"


def bounds(rows: str | None) -> tuple[int, int | None]:
    """First and last problem, counted from 1; the last is None where all that follow are meant. Raises TaskError."""
    if rows is None:
        return 1, None
    match = re.fullmatch(r"([0-9]{1,18})-([0-9]{1,18})?", rows) if isinstance(rows, str) else None
    first, last = (int(match[1]), int(match[2]) if match[2] else None) if match else (0, None)
    if first < 1 or (last is not None and last < first):
        raise TaskError(f"task.rows={rows!r} is not allowed; {ALLOWED}")
    return first, last


def taken_of(problems: Sequence[Problem], config: TaskConfig) -> Sequence[Problem]:
    """The problems of `config.rows`, of these the first `config.limit`.

    Raises TaskError for rows that are not there: a split that is smaller than its name says would be another one.
    """
    first, last = bounds(config.rows)
    if config.rows is not None and max(first, last or 0) > len(problems):
        raise TaskError(f"task.rows={config.rows}: task={config.name} has {len(problems)} problems; {ALLOWED}")
    return problems[first - 1 : last][: config.limit]
