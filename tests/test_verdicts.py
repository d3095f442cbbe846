"""A completion never ends a run: what goes wrong while it is judged is a status of that one sample."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tasks.base import Task
from tasks.types import Problem, Prompt, Score, TaskError
from tasks.verdicts import judge

PROBLEM = Problem("p-0", "?", "1", {})


class Own(Task):
    """A task as a user writes one: `answers` says what its scorer does with a completion."""

    def __init__(self, **answers: Any) -> None:
        self.answers = answers

    def prompt(self, problem: Problem) -> Prompt:
        return Prompt("?")

    def score(self, problem: Problem, completion: str) -> Score:
        answer = self.answers[completion]
        if isinstance(answer, Exception):
            raise answer
        return answer


GOOD = Score(True, "ok")


def judged(task: Task, *completions: str) -> list[Score]:
    return judge(task, [(PROBLEM, completion) for completion in completions])


@pytest.mark.parametrize("error", [ValueError("x"), RecursionError("deep"), MemoryError(), KeyError("k")])
def test_an_exception_is_the_status_of_its_own_sample(error: Exception) -> None:
    first, second, third = judged(Own(good=GOOD, bad=error), "good", "bad", "good")
    assert (first, third) == (GOOD, GOOD)
    assert (second.correct, second.status, second.extracted) == (None, "scorer_error", None)
    assert second.details["reason"].startswith(f"{type(error).__name__}: ")
    assert "test_verdicts.py:" in second.details["reason"], "where it was raised"


class Cyclic(dict[str, Any]):
    def __init__(self) -> None:
        self["self"] = self


@pytest.mark.parametrize(
    "answer",
    [
        None,
        True,
        Score("yes", "ok"),
        Score(1, "ok"),
        Score(True, None),
        Score(True, "ok", 18),
        Score(True, "ok", details=[1]),
        Score(True, "ok", details=Cyclic()),
    ],
)
def test_what_is_no_score_is_not_taken_for_one(answer: Any) -> None:
    first, second = judged(Own(good=GOOD, odd=answer), "odd", "good")
    assert (first.correct, first.status) == (None, "scorer_error")
    assert "which is no Score" in first.details["reason"]
    assert second == GOOD


def test_details_may_hold_what_json_knows_no_form_of() -> None:
    score = Score(False, "ok", details={"set": {1}, ("a", 1): 2})
    assert judged(Own(good=score), "good") == [score]


def test_a_batch_with_too_few_scores_is_judged_one_by_one() -> None:
    class Short(Own):
        def score_all(self, pairs: Sequence[tuple[Problem, str]]) -> list[Score]:
            return [GOOD]

    other = Score(False, "ok")
    assert judged(Short(good=GOOD, other=other), "other", "good") == [other, GOOD]


@pytest.mark.parametrize("where", ["score", "score_all"])
def test_an_error_of_the_task_itself_is_no_verdict(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> Score:
        raise TaskError("the data are broken")

    monkeypatch.setattr(Own, where, broken)
    with pytest.raises(TaskError, match="the data are broken"):
        judged(Own(good=GOOD), "good")
