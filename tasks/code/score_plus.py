"""Scoring of HumanEval+ and MBPP+: every base and plus input, against the outputs of the canonical solution."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

from tasks.code.expected import Reference, references
from tasks.code.plus_rows import PlusProblem, plus_problem
from tasks.code.score import CodeTask
from tasks.sandbox import Limits
from tasks.sources.fields import INPUTS, NUMBER, TEXT
from tasks.types import Problem

# evalplus allows 4 times the reference time for an input and at least 1 s (4 s since its version 0.4).
CALL_SECONDS, CALL_FACTOR = 4.0, 4.0
TOTAL_SECONDS, TOTAL_FACTOR = 60.0, 4.0
MEMORY_MB = 1024
PLUS_FIELDS = {"base_input": INPUTS, "plus_input": INPUTS, "atol": NUMBER, "test": TEXT}  # of one format or another


class PlusTask(CodeTask):
    """`family` is humaneval or mbpp, which decides the special oracles."""

    suite = "outputs"
    family: str

    @abstractmethod
    def names(self, problem: Problem) -> tuple[str, ...]:
        """The functions that a program must define; the first is the one that is tested."""

    def prepare(self, problems: Sequence[Problem]) -> None:
        known = self._plus
        new = {p.id: p for p in problems if p.id not in known}
        made = [plus_problem(p.id, p.row, self.family, self.names(p)) for p in new.values()]
        found = references(made)
        known.update({plus.key: (plus, found[plus.key]) for plus in made})

    def cost(self, problem: Problem) -> float:
        return sum(self._plus[problem.id][1].times)

    def job(self, problem: Problem, program: str) -> tuple[dict[str, Any], Limits]:
        plus, reference = self._plus[problem.id]
        times = iter(reference.times)
        parts = [
            {
                "name": name,
                "inputs": inputs,
                "cpu_s": [round(max(CALL_SECONDS, CALL_FACTOR * next(times)), 3) for _ in inputs],
            }
            for name, inputs in plus.parts
        ]
        job = {
            "suite": self.suite,
            "program": program,
            "entry_point": plus.entry_point,
            "family": self.family,
            "atol": plus.atol,
            "parts": parts,
            "expected": str(reference.path),
        }
        return job, _limits(reference)

    @property
    def _plus(self) -> dict[str, tuple[PlusProblem, Reference]]:
        return self.__dict__.setdefault("_plus_problems", {})


def _limits(reference: Reference) -> Limits:
    cpu = TOTAL_SECONDS + TOTAL_FACTOR * sum(reference.times)
    memory = max(MEMORY_MB, 512 + 2 * reference.rss_kb // 1024)
    return Limits(cpu_s=cpu, wall_s=3 * cpu, memory_mb=memory)
