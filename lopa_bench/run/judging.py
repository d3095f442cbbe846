"""Verdicts on samples that are on disk: scoring starts from the rows, so that it can be stopped and gone on with."""

from __future__ import annotations

from typing import Any

from lopa_bench.records.schema import NOT_SCORED
from lopa_bench.records.writing import RunStore
from tasks.base import Task
from tasks.types import Score
from tasks.verdicts import judge

Row = dict[str, Any]


def judge_part(store: RunStore, task: Task, name: str) -> tuple[list[Row], list[Row]]:
    """The rows of a part, and those of them that had no verdict and were scored; the part is written again.

    Whenever this is stopped, the part has all its verdicts or none, and its rows are on disk either way.
    """
    rows = store.rows(name)
    waiting = [row for row in rows if row["score_status"] == NOT_SCORED]
    if waiting:
        scores = judge(task, [(task.problems[row["problem_index"]], row["answer_text"]) for row in waiting])
        for row, score in zip(waiting, scores, strict=True):
            row.update(verdict(score))
        store.replace(name, rows)
    return rows, waiting


def verdict(score: Score) -> Row:
    """The columns that a score fills."""
    return {
        "correct": score.correct,
        "score_status": score.status,
        "score_details": dict(score.details),
        "extracted": score.extracted,
    }
