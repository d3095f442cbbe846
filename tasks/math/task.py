"""MATH: competition problems with an answer in LaTeX (Hendrycks et al. 2021, arXiv 2103.03874), and MATH-500."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tasks.base import Task
from tasks.math import opencompass
from tasks.math.answers import final_answer, same_text, solution_answer
from tasks.math.forms import LONGEST
from tasks.math.golds import LIBRARIES, unequal_golds
from tasks.math.grader import Comparison, GraderPool
from tasks.math.shots import MINERVA_SHOTS
from tasks.prompts import Style, asked_without_examples, chat_prompt
from tasks.sources.fields import ID, TEXT, TEXT_OR_BLANK
from tasks.sources.files import Row
from tasks.sources.split import HubSet, Split
from tasks.sources.taken import taken_of
from tasks.types import Problem, Prompt, Score, TaskConfig, TaskError

# The order of lm_eval's group minerva_math.
SUBJECTS = (
    "algebra",
    "counting_and_probability",
    "geometry",
    "intermediate_algebra",
    "number_theory",
    "prealgebra",
    "precalculus",
)
MATH = Split(
    title="MATH test",
    fields={"problem": TEXT, "solution": TEXT},
    optional={"answer": TEXT_OR_BLANK, "unique_id": ID, "type": TEXT_OR_BLANK},
    hub=HubSet("EleutherAI/hendrycks_math", "test", 5000, SUBJECTS, "21a5633873b6a120296cce3e2df9d5550074f4a3"),
)
# The 500 problems that "Let's Verify Step by Step" (Lightman et al. 2023, arXiv 2305.20050) kept for evaluation.
MATH500 = Split(
    title="MATH-500",
    fields={"problem": TEXT, "solution": TEXT, "answer": TEXT},
    optional={"unique_id": ID, "type": TEXT_OR_BLANK},
    hub=HubSet("HuggingFaceH4/MATH-500", "test", 500, revision="6e4ed1a2a79af7d8630a6b768ec859cb5af4d3be"),
    originals={"35dc41080a3680858b27fa7e0533d2d547825316fc5dafe5d316f4ccc5a06132": 500},
)

FRAME = "Problem:\n{question}\n\nSolution:"
FRAME_ZERO_SHOT = "{question}\n\nReason step by step, and put your final answer within \\boxed{}."
# Fast-dLLM v2 puts this in place of lm_eval's "Solution:", with braces that stand twice (v2/eval.py).
FRAME_V2 = "Problem:\n{question}\n\nPlease reason step by step, and put your final answer within \\boxed{{}}."
STOP = ("\n\nProblem:", "</s>", "<|im_end|>")
LM_EVAL_STOP = ("Problem:",)

STYLES = {
    "chat": Style(FRAME, STOP, "turns", MINERVA_SHOTS),
    "plain": Style(FRAME, STOP, "text", MINERVA_SHOTS),
    "lm_eval": Style(FRAME, LM_EVAL_STOP, "text", MINERVA_SHOTS),
    "lm_eval_turn": Style(FRAME, LM_EVAL_STOP, "turn", MINERVA_SHOTS),
    "lm_eval_turns": Style(FRAME, LM_EVAL_STOP, "turns", MINERVA_SHOTS),
    "opencompass": Style(opencompass.FRAME, (), "turns", opencompass.SHOTS, opencompass.FRAME_SHOT),
    **asked_without_examples(FRAME_V2, LM_EVAL_STOP),
}


class Math(Task):
    """`problems` hold the subjects in proportion from the first one on, so that a limit is a fair sample of MATH."""

    split = MATH
    prompt_styles = ("auto", *STYLES)
    scorers = ("math_verify",)
    most_shots = len(MINERVA_SHOTS)
    id_field = "unique_id"
    libraries = LIBRARIES

    def __init__(self, config: TaskConfig, embedded_default: bool) -> None:
        super().__init__(config, embedded_default)
        self.stop = STYLES[self.prompt_style].stop
        self._graders = GraderPool()
        self._check_golds()

    def number_of_shots(self, asked: int | None) -> int:
        return STYLES[self.prompt_style].number_of_shots(asked, self.prompt_style)

    def problem(self, number: int, row: Row) -> Problem:
        gold = row.get("answer") or solution_answer(row["solution"])
        if not gold:
            raise TaskError(f"{self.source.where}, row {number + 1}: the solution has no \\boxed answer")
        given = row.get("unique_id")
        return Problem(f"math-test-{number}" if given is None else str(given), row["problem"], gold, row)

    def arrange(self, problems: Sequence[Problem]) -> Sequence[Problem]:
        ordered = subjects_in_proportion(problems)
        if len(taken_of(ordered, self.config)) < len(ordered) and ordered != problems:
            self.source = replace(self.source, name=f"{self.source.name}, subjects in proportion")
        return ordered

    def prompt(self, problem: Problem) -> Prompt:
        if self.prompt_style == "chat" and not self.shots:
            return chat_prompt(problem.question, (), FRAME_ZERO_SHOT)
        style = STYLES[self.prompt_style]
        return style.prompt(problem.question, (style.shots or ())[: self.shots])

    def score(self, problem: Problem, completion: str) -> Score:
        return self.score_all([(problem, completion)])[0]

    def score_all(self, pairs: Sequence[tuple[Problem, str]]) -> list[Score]:
        answers = [final_answer(completion) for _, completion in pairs]
        asked = [
            (problem.gold, answer)
            for (problem, _), answer in zip(pairs, answers, strict=True)
            if answer is not None and len(answer) <= LONGEST and not same_text(problem.gold, answer)
        ]
        verdicts = dict(zip(asked, self._graders.compare_all(asked), strict=True)) if asked else {}
        return [_score(problem.gold, answer, verdicts) for (problem, _), answer in zip(pairs, answers, strict=True)]

    def _check_golds(self) -> None:
        """Every gold must equal itself under the scorer, else no answer to its problem could be found right."""
        unequal = set(unequal_golds([problem.gold for problem in self.problems], self._graders))
        failed = [problem.id for problem in self.problems if problem.gold in unequal]
        if failed:
            names = ", ".join(failed[:5])
            warnings.warn(
                f"math-verify does not find {len(failed)} of {len(self.problems)} golds of {self.source.name} equal to "
                f"themselves; only the same text will count as right for: {names}",
                stacklevel=2,
            )


class Math500(Math):
    split = MATH500


def subjects_in_proportion(problems: Sequence[Problem]) -> list[Problem]:
    """Spreads each subject (MATH's field `type`) evenly over the whole: any first N hold every subject by its share.

    The source holds one subject after the other. Rows without the field keep their order.
    """
    subjects = [problem.row.get("type") for problem in problems]
    sizes, seen = Counter(subjects), Counter[Any]()
    places = []
    for subject in subjects:
        places.append((seen[subject] + 0.5) / sizes[subject])
        seen[subject] += 1
    return [problems[index] for index in sorted(range(len(problems)), key=places.__getitem__)]


def _score(gold: str, answer: str | None, verdicts: dict[tuple[str, str], Comparison]) -> Score:
    if answer is None:
        return Score(False, "none")
    if same_text(gold, answer):
        verdict = Comparison("ok", True, "same text")
    else:
        verdict = verdicts.get((gold, answer)) or Comparison("ok", False, f"longer than {LONGEST} characters")
    details: dict[str, Any] = {"reason": verdict.reason} if verdict.reason else {}
    return Score(verdict.correct, verdict.status, answer, details)
