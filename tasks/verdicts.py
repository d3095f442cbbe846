"""Verdicts on completions of any task. Whatever a scorer does with one of them, the others are judged."""

from __future__ import annotations

import json
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path

from tasks.base import Task
from tasks.types import Problem, Score, TaskError

SCORER_ERROR = "scorer_error"


def judge(task: Task, pairs: Sequence[tuple[Problem, str]]) -> list[Score]:
    """One score a pair. An exception of the scorer is the status of the one sample that it was raised for.

    Raises TaskError as the scorer does: that one is about the task (its data, a missing library), not a completion.
    """
    try:
        scores = task.score_all(pairs)
        if len(scores) == len(pairs) and all(_is_storable(score) for score in scores):
            return list(scores)
    except TaskError:
        raise
    except Exception:
        pass  # met again below, by the sample that it belongs to
    return [_alone(task, problem, completion) for problem, completion in pairs]


def _alone(task: Task, problem: Problem, completion: str) -> Score:
    try:
        score = task.score(problem, completion)
    except TaskError:
        raise
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        reason = f"{type(error).__name__}: {error}"[:300]
        return Score(None, SCORER_ERROR, details={"reason": f"{reason} ({Path(place.filename).name}:{place.lineno})"})
    if _is_storable(score):
        return score
    return Score(None, SCORER_ERROR, details={"reason": f"the scorer gave {score!r:.300}, which is no Score"})


def _is_storable(score: object) -> bool:
    """Whether each field is of its type, and the details can be written as JSON."""
    if not isinstance(score, Score) or not isinstance(score.correct, bool | None):
        return False
    if not isinstance(score.status, str) or not isinstance(score.extracted, str | None):
        return False
    try:
        json.dumps(score.details, default=str, skipkeys=True)
    except (TypeError, ValueError, RecursionError):
        return False
    return isinstance(score.details, Mapping)
