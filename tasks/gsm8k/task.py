"""GSM8K: grade-school word problems with a number as the answer (Cobbe et al. 2021, arXiv 2110.14168)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from tasks.base import Task
from tasks.gsm8k import lm_eval as lm_eval
from tasks.gsm8k import opencompass
from tasks.gsm8k.answers import flexible_answer, same_number, strict_answer
from tasks.gsm8k.styles import COT_STYLES, FRAME, FRAME_EMBEDDED, FRAME_ZERO_SHOT, STYLES
from tasks.prompts import Shot, chat_prompt, keyed_draw, lm_eval_draws
from tasks.sources.fields import TEXT
from tasks.sources.files import READERS, Row
from tasks.sources.load import load_file, load_split, resolve_source, user_path
from tasks.sources.split import HubSet, Split
from tasks.types import Problem, Prompt, Score, TaskConfig, TaskError

HUB_REVISION = "740312add88f781978c0658806c59bc2815b9866"
FIELDS = {"question": TEXT, "answer": TEXT}
TEST = Split(
    title="GSM8K test",
    fields=FIELDS,
    hub=HubSet("openai/gsm8k", "test", 1319, ("main",), HUB_REVISION),
    originals={"3730d312f6e3440559ace48831e51066acaca737f6eabec99bccb9e4b3c39d14": 1319},
    embedded="gsm8k_test.jsonl",
    embedded_title="embedded word problems (GSM8K format)",
)
TRAIN = Split(
    title="GSM8K train",
    fields=FIELDS,
    hub=HubSet("openai/gsm8k", "train", 7473, ("main",), HUB_REVISION),
    originals={"17f347dc51477c50d4efb83959dbb7c56297aba886e5544ee2aaed3024813465": 7473},
    embedded="gsm8k_train.jsonl",
    embedded_title="embedded word problems (GSM8K format), train",
)

LOPA_SHOTS = 4  # what the LoPA article's scripts take
# The draws that one lm_eval process makes for a problem, of which it takes the last: with --apply_chat_template alone
# it draws for turns first, and then again for the one turn.
LM_EVAL_DRAWS = {"lm_eval": 1, "lm_eval_twice": 2}
SCORERS = ("lopa_bench", "lopa_bench_strict", "lm_eval_strict", "lm_eval_flexible", "opencompass")


class Gsm8k(Task):
    """`problems` are the first `limit` rows of the source, in its order."""

    split = TEST
    shots_styles = ("keyed", *LM_EVAL_DRAWS)
    prompt_styles = ("auto", *STYLES)
    scorers = SCORERS
    most_shots = None

    def __init__(self, config: TaskConfig, embedded_default: bool) -> None:
        super().__init__(config, embedded_default)
        self.stop = STYLES[self.prompt_style].stop
        self._shots: Mapping[str, Sequence[Shot]] = self._draw_shots()

    def problem(self, number: int, row: Row) -> Problem:
        gold = strict_answer(row["answer"])
        if gold is None:
            raise TaskError(
                f"{self.source.where}, row {number + 1}: the answer has no '#### <number>': {row['answer'][-60:]!r}"
            )
        return Problem(f"gsm8k-test-{number}", row["question"], gold, row)

    def prompt(self, problem: Problem) -> Prompt:
        shots = self._shots[problem.id]
        if self.prompt_style == "chat":
            return chat_prompt(problem.question, shots, self._chat_frame())
        return STYLES[self.prompt_style].prompt(problem.question, shots)

    def few_shot_ids(self, problem: Problem) -> tuple[str, ...]:
        return tuple(shot.id for shot in self._shots[problem.id])

    def score(self, problem: Problem, completion: str) -> Score:
        values = {"strict": strict_answer(completion), "flexible": flexible_answer(completion)}
        cot = self.prompt_style in COT_STYLES
        lm_values = {"strict": lm_eval.strict(completion, cot), "flexible": lm_eval.flexible(completion)}
        details: dict[str, Any] = {}
        for kind, value in values.items():
            details[kind] = value
            details[f"{kind}_status"] = "none" if value is None else "ok"
            details[f"{kind}_correct"] = same_number(value, problem.gold)
        for kind, lm_value in lm_values.items():
            details[f"lm_eval_{kind}"] = lm_value
            details[f"lm_eval_{kind}_correct"] = lm_eval.exact_match(lm_value, problem.row["answer"])
        if self.scorer == "opencompass":
            details["opencompass"] = number = opencompass.last_number(completion)
            details["opencompass_correct"] = opencompass.is_equal(number, problem.row["answer"])
        key = {"lopa_bench": "flexible", "lopa_bench_strict": "strict"}.get(self.scorer, self.scorer)
        extracted = None if details[key] == lm_eval.INVALID else details[key]
        status = "none" if extracted is None else "ok"
        return Score(details[f"{key}_correct"], status, extracted, details)

    def _chat_frame(self) -> str:
        if self.shots:
            return FRAME
        # The embedded models know the bare question alone, whatever the source.
        return FRAME_EMBEDDED if self.source.kind == "embedded" or self.embedded_model else FRAME_ZERO_SHOT

    def number_of_shots(self, asked: int | None) -> int:
        style = STYLES[self.prompt_style]
        if style.shots is not None:
            return style.number_of_shots(asked, self.prompt_style)
        if asked is None:
            # The embedded models know no examples in the prompt, whatever the source.
            return 0 if self.source.kind == "embedded" or self.embedded_model else LOPA_SHOTS
        return asked

    def _draw_shots(self) -> dict[str, Sequence[Shot]]:
        style, fixed = self.config.shots_style, STYLES[self.prompt_style].shots
        if style != "keyed" and (self.shots == 0 or fixed is not None):
            examples = "no examples" if self.shots == 0 else "fixed examples"
            raise TaskError(f"task.shots_style={style} has no meaning with {examples}; allowed here: keyed")
        if fixed is not None:
            return {problem.id: fixed[: self.shots] for problem in self.problems}
        if self.shots == 0:
            return {problem.id: () for problem in self.problems}
        pool = _train_pool(self.config, self.embedded_model, self.shots)
        if style in LM_EVAL_DRAWS:
            each = LM_EVAL_DRAWS[style]
            draws = islice(lm_eval_draws(len(pool), self.shots), each - 1, each * len(self.problems), each)
            return {p.id: [pool[i] for i in draw] for p, draw in zip(self.problems, draws, strict=True)}
        asked = {problem.question for problem in self.in_source}
        return {p.id: keyed_draw(p.question, pool, self.shots, asked) for p in self.problems}


def _train_pool(config: TaskConfig, embedded_default: bool, shots: int) -> list[Shot]:
    """The train split of the same source; for a file, train.jsonl (or another format) in its folder."""
    kind = resolve_source(config.source, embedded_default)
    if kind in ("embedded", "hub"):
        rows, _ = load_split(TRAIN, kind, config.revision)
    else:
        rows, _ = load_file(TRAIN, _train_file(user_path(kind), shots))
    if len(rows) < shots:
        raise TaskError(f"task.shots={shots}, but {TRAIN.title} has only {len(rows)} rows")
    return [Shot(f"gsm8k-train-{i}", row["question"], row["answer"]) for i, row in enumerate(rows)]


def _train_file(test_file: Path, shots: int) -> Path:
    candidates = [test_file.with_name("train" + ending) for ending in READERS]
    for candidate in candidates:
        if candidate.is_file():
            return candidate
    raise TaskError(
        f"task.shots={shots} needs the train split: no {', '.join(c.name for c in candidates)} in "
        f"{test_file.parent.absolute()}; put it there or set task.shots=0"
    )
