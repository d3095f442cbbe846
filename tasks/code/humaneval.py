"""HumanEval: functions to complete (Chen et al. 2021, arXiv 2107.03374), and HumanEval+ with the tests of evalplus."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tasks.code.extraction.extract import Extracted, extract, preamble
from tasks.code.extraction.trees import bindings, parse
from tasks.code.prompts import HUMANEVAL_STYLES, code_style, question
from tasks.code.published import HUMANEVAL_TURNS, humaneval_turns
from tasks.code.score import TEST_LIMITS, CodeTask
from tasks.code.score_plus import PLUS_FIELDS, PlusTask
from tasks.sandbox import Limits
from tasks.sources.fields import ID, NAME, TEXT, shown
from tasks.sources.files import Row
from tasks.sources.load import load_split, resolve_source
from tasks.sources.split import HubSet, Split
from tasks.types import Problem, Prompt, Source, TaskError

FIELDS = {"task_id": ID, "prompt": TEXT, "entry_point": NAME, "canonical_solution": TEXT}
HUMANEVAL = Split(
    title="HumanEval",
    fields={**FIELDS, "test": TEXT},
    hub=HubSet("openai/openai_humaneval", "test", 164, (None,), "7dce6050a7d6d172f3cc5c32aa97f52fa1a2e544"),
    originals={"b796127e635a67f93fb35c04f4cb03cf06f38c8072ee7cee8833d7bee06979ef": 164},
    embedded="humaneval_test.jsonl",
    embedded_title="embedded programming problems (HumanEval format)",
)
HUMANEVAL_PLUS = Split(
    title="HumanEval+ v0.1.10",
    fields=FIELDS,
    optional=PLUS_FIELDS,
    hub=HubSet("evalplus/humanevalplus", "test", 164, (None,), "d32357cf319e50e9c8d8dab5ea876c72b0fd321b"),
    originals={
        "272720b90ac375502c8ed23cd791c2a93dfb22a911641a494da74a426c09f101": 164,
        "daa7661c8189924068069b0872a440b491edb60f8bdf431d5957adc88d18bae5": 164,  # OriginFmt: the rows of the Hub
    },
)
MINI_SHA256 = "91486741f1627101021fbe50523df08eebb5b0bf5e804b633dcd5ca3c14dbd2f"


class HumanEval(CodeTask):
    suite = "check"
    split = HUMANEVAL
    scorers: tuple[str, ...] = ("lopa_bench", "lm_eval")
    styles = HUMANEVAL_STYLES
    prompt_styles = ("auto", *HUMANEVAL_STYLES)

    def prompt(self, problem: Problem) -> Prompt:
        text = problem.row["prompt"]
        if self.prompt_style == "question":
            return question(text)
        if self.prompt_style in ("lm_eval", "lopa"):
            return Prompt(text)
        if self.prompt_style in HUMANEVAL_TURNS:
            return humaneval_turns(self.prompt_style, text)
        return code_style(self.prompt_style, text)

    def few_shot_ids(self, problem: Problem) -> tuple[str, ...]:
        return ()

    def extract(self, problem: Problem, completion: str) -> Extracted:
        prompt = problem.row["prompt"]
        if self.scorer != "lopa_bench":
            return Extracted(prompt + completion, "raw") if completion.strip() else Extracted("", "empty")
        return extract(completion, self.names(problem), prompt, self._open_fence)

    def names(self, problem: Problem) -> tuple[str, ...]:
        return (problem.row["entry_point"],)

    def job(self, problem: Problem, program: str) -> tuple[dict[str, Any], Limits]:
        """The tests may call the helpers of the prompt; they get those of the data set, not those of the program."""
        row = problem.row
        job = {
            "suite": self.suite,
            "program": program,
            "entry_point": row["entry_point"],
            "helpers": preamble(row["prompt"], row["entry_point"]),
            "test": row["test"],
        }
        return job, TEST_LIMITS

    def problem(self, number: int, row: Row) -> Problem:
        where = f"{self.source.where}, row {number + 1}"
        tree = parse(row["prompt"] + row["canonical_solution"])
        if tree is None or row["entry_point"] not in bindings(tree):
            raise TaskError(f"{where}: prompt and canonical_solution are no program that defines {row['entry_point']}")
        if self.suite == "check" and parse(row["test"]) is None:
            raise TaskError(f"{where}: test is {shown(row['test'])}; allowed: a program in Python")
        prefix = "embedded-" if self.source.kind == "embedded" else ""
        return Problem(f"{prefix}{self._id(row)}", row["prompt"], row["canonical_solution"], row)

    def _id(self, row: Row) -> str:
        return "humaneval-" + str(row["task_id"]).rpartition("/")[2]


class HumanEvalPlus(PlusTask, HumanEval):
    """All 164 problems with all inputs; for the embedded set, inputs derived from its own tests."""

    suite = "outputs"
    family = "humaneval"
    scorers = ("lopa_bench", "evalplus")

    def names(self, problem: Problem) -> tuple[str, ...]:
        return HumanEval.names(self, problem)

    def load(self) -> tuple[list[Row], Source]:
        if resolve_source(self.config.source, self.embedded_model) == "embedded":
            rows, source = load_split(HUMANEVAL, "embedded", self.config.revision)
            return rows, replace(source, name=f"{source.name} with derived inputs")
        rows, source = load_split(HUMANEVAL_PLUS, self.config.source, self.config.revision)
        if source.sha256 == MINI_SHA256:
            source = replace(source, name="HumanEval+ Mini v0.1.10 (original file, fewer inputs)")
        return rows, source

    def _id(self, row: Row) -> str:
        return "humaneval-plus-" + str(row["task_id"]).rpartition("/")[2]
