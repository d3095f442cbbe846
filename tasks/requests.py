"""Texts to be continued that another program made, from a file: prompts as they are, no examples, no verdicts.

lm-eval's requests come this way (lopa_bench/lm_eval); it judges the answers itself.
"""

from __future__ import annotations

from typing import Any

from tasks.base import Task
from tasks.sources.fields import ID, TEXT, TEXTS_OR_NONE
from tasks.sources.split import Split
from tasks.types import Problem, Prompt, Score, TaskConfig, TaskError

UNJUDGED = "judged_elsewhere"  # the score status of every answer


class Requests(Task):
    """Rows have `id`, `context` and, the same in all rows, `until` (stop strings) and `task` (what records call it)."""

    split = Split("requests", fields={"id": ID, "context": TEXT}, optional={"until": TEXTS_OR_NONE, "task": TEXT})
    scorers = ("none",)
    id_field = "id"

    def __init__(self, config: TaskConfig, embedded_default: bool) -> None:
        super().__init__(config, embedded_default)
        self.stop = tuple(self._shared("until") or ())
        self.name = self._shared("task") or config.name

    def _shared(self, field: str) -> Any:
        """What all rows of the file say. Raises TaskError where they differ."""
        values = [problem.row.get(field) for problem in self.in_source]
        if any(value != values[0] for value in values):
            raise TaskError(f"{self.source.where}: its rows differ in {field}; allowed: one value in all of them")
        return values[0]

    def problem(self, number: int, row: dict[str, Any]) -> Problem:
        return Problem(str(row["id"]), row["context"], "", row)

    def prompt(self, problem: Problem) -> Prompt:
        return Prompt(problem.question)

    def score(self, problem: Problem, completion: str) -> Score:
        return Score(None, UNJUDGED)
