"""What the four code tasks share: from completions to verdicts, many at a time."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from tasks.base import Task
from tasks.code.canary import ScorerError, check_canaries
from tasks.code.extraction.extract import Extracted
from tasks.code.prompts import Style, auto_style, number_of_shots
from tasks.sandbox import Limits, Verdict, run_jobs
from tasks.types import Problem, Score, TaskConfig

# Reference programs take milliseconds; code_eval allows 3 s of wall clock.
TEST_LIMITS = Limits(cpu_s=5.0, wall_s=15.0)


class CodeTask(Task):
    """`suite` is the kind of tests, one of tasks/sandbox/suites.py; `styles` are the ways to put a question."""

    suite: str
    styles: Mapping[str, Style]
    id_field = "task_id"

    _checked = False

    def __init__(self, config: TaskConfig, embedded_default: bool) -> None:
        super().__init__(config, embedded_default)
        style = self.styles[self.prompt_style]
        self.stop, self._open_fence = style.stop, style.open_fence

    def auto_style(self) -> str:
        return auto_style(self.source.kind)

    def number_of_shots(self, asked: int | None) -> int:
        return number_of_shots(self.styles[self.prompt_style], self.prompt_style, asked)

    @abstractmethod
    def extract(self, problem: Problem, completion: str) -> Extracted:
        """The program that the completion stands for."""

    @abstractmethod
    def job(self, problem: Problem, program: str) -> tuple[dict[str, Any], Limits]:
        """The tests of a program, for the sandbox."""

    def prepare(self, problems: Sequence[Problem]) -> None:
        """What must be there before programs of these problems are judged."""

    def cost(self, problem: Problem) -> float:
        """Seconds that the tests of a right program take; the longest start first."""
        return 0.0

    def score(self, problem: Problem, completion: str) -> Score:
        return self.score_all([(problem, completion)])[0]

    def score_all(self, pairs: Sequence[tuple[Problem, str]]) -> list[Score]:
        """Equal programs of a problem are judged once. Without canaries that sing there is no score.

        Raises TaskError if a folder or a process that judging needs cannot be had: no program is at fault.
        """
        if not pairs:
            return []
        try:
            return self._judge(pairs)
        except OSError as error:
            raise ScorerError(
                f"programs cannot be judged here: {error}; TMPDIR names the folder for scratch files, LOPA_BENCH_CACHE "
                "that of expected outputs"
            ) from error

    def _judge(self, pairs: Sequence[tuple[Problem, str]]) -> list[Score]:
        if not self._checked:
            check_canaries(self.suite)
            self._checked = True
        self.prepare([problem for problem, _ in pairs])
        found = [self.extract(problem, completion) for problem, completion in pairs]
        wanted = {
            (problem.id, extracted.program): problem
            for (problem, _), extracted in zip(pairs, found, strict=True)
            if extracted.how != "empty"
        }
        keys = sorted(wanted, key=lambda key: -self.cost(wanted[key]))
        verdicts = dict(zip(keys, run_jobs([self.job(wanted[key], key[1]) for key in keys]), strict=True))
        return [
            _score(extracted, verdicts.get((problem.id, extracted.program)))
            for (problem, _), extracted in zip(pairs, found, strict=True)
        ]


def _score(extracted: Extracted, verdict: Verdict | None) -> Score:
    """Not passed is False, whatever the reason, and `status` holds the reason; only a failed harness judges nothing."""
    if verdict is None:
        return Score(False, "empty", "", {"extraction": extracted.how})
    correct = None if verdict.status == "sandbox" else verdict.status == "pass"
    details: dict[str, Any] = {
        "extraction": extracted.how,
        "reason": verdict.detail,
        "tests_passed": verdict.passed,
        "tests": verdict.total,
        "sandbox": "+".join(verdict.layers),
        "output_capped": verdict.output_capped,
        "cpu_s": verdict.cpu_s,
    }
    details.update({f"{part}_passed": True for part in verdict.parts})
    return Score(correct, verdict.status, extracted.program, details)
