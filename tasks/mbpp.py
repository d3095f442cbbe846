"""MBPP: short Python functions (Austin et al. 2021, arXiv 2108.07732), and MBPP+ with the tests of evalplus."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tasks.base import Problem, Prompt, Source, TaskConfig, TaskError
from tasks.code_extract import Extracted, extract
from tasks.code_prompts import (
    MBPP_STYLES,
    code_style,
    lm_eval_mbpp,
    mbpp_docstring,
    mbpp_text,
    number_of_shots,
    pick_style,
    question,
)
from tasks.code_score import TEST_LIMITS, CodeTask
from tasks.code_score_plus import PlusTask
from tasks.code_trees import bindings, parse
from tasks.files import Row
from tasks.mbpp_shots import SHOTS
from tasks.sandbox import Limits
from tasks.sources import HubSet, Split, load_file, load_split

FULL_SHA256 = "ccf64ceae9c5403bf50a044cb6d505bfd2a2963ee58338ba268fd65beab92a9f"
SANITIZED_SHA256 = "ca95deaa9a01ef0a6f439f88bcf0dd3db3563d22f22aad6cae04ebb9a8d8c8e9"
TEST_IDS = range(11, 511)
MBPP = Split(
    title="MBPP",
    fields=("task_id", "code", "test_list"),
    hub=HubSet("google-research-datasets/mbpp", "test", 500, ("full",), "4bb6404fdc6cacfda99d4ac4205087b89d32030c"),
    originals={FULL_SHA256: 974, SANITIZED_SHA256: 427},
    embedded="mbpp_test.jsonl",
    embedded_title="embedded programming problems (MBPP format)",
)
RELEASE_SHA256 = "af43697e8791c4c149bdfd6b489d8b5412507551ac20e28a439f650b8225db63"
ORIGIN_SHA256 = "7a5aec547b134fa297ee6c45f829298aa3f58de02547b8d8a5c3d85d9cb10efc"
MBPP_PLUS = Split(
    title="MBPP+ v0.2.0",
    fields=("task_id", "prompt"),
    hub=HubSet("evalplus/mbppplus", "test", 378, (None,), "b2d74c91837c3f2a20c1299ae98133cbe7cfa077"),
    originals={RELEASE_SHA256: 378, ORIGIN_SHA256: 378},
)
ORIGIN_FILE = "MbppPlus-OriginFmt.jsonl.gz"


class Mbpp(CodeTask):
    """The test problems (ids 11-510) of the full set, or all of the sanitized set."""

    suite = "asserts"
    scorers: tuple[str, ...] = ("lopa_bench", "lm_eval")
    prompt_styles = ("auto", *MBPP_STYLES)

    def __init__(self, config: TaskConfig, embedded_default: bool) -> None:
        rows, self.source = self._load(config, embedded_default)
        self.name = config.name
        self.scorer = config.scorer or self.scorers[0]
        self.prompt_style = pick_style(MBPP_STYLES, config.prompt_style, self.source.kind)
        style = MBPP_STYLES[self.prompt_style]
        self.shots = number_of_shots(style, self.prompt_style, config.shots)
        self.stop, self._open_fence = style.stop, style.open_fence
        self.problems: Sequence[Problem] = [self._problem(row) for row in self._select(rows)][: config.limit]

    def prompt(self, problem: Problem) -> Prompt:
        if self.prompt_style == "question":
            return question(mbpp_docstring(problem.row))
        if self.prompt_style in ("lm_eval", "lopa"):
            text, tests = mbpp_text(problem.row), problem.row["test_list"]
            return lm_eval_mbpp(text, tests, self.shots, chat=self.prompt_style == "lopa")
        return code_style(self.prompt_style, f'"""\n{mbpp_docstring(problem.row)}\n"""')

    def few_shot_ids(self, problem: Problem) -> tuple[str, ...]:
        return tuple(f"mbpp-{shot['task_id']}" for shot in SHOTS[: self.shots])

    def extract(self, problem: Problem, completion: str) -> Extracted:
        if self.scorer != "lopa_bench":
            return Extracted(completion, "raw" if completion.strip() else "empty")
        return extract(completion, self.names(problem), open_fence=self._open_fence)

    def names(self, problem: Problem) -> tuple[str, ...]:
        """What the tests use of the gold program, the first called first."""
        gold = parse(problem.gold)
        defined = bindings(gold) if gold else set()
        used = [name for name in _names(problem.row["test_list"]) if name in defined]
        if not used:
            raise TaskError(f"{problem.id}: no test uses a name that the gold program defines")
        return tuple(used)

    def job(self, problem: Problem, program: str) -> tuple[dict[str, Any], Limits]:
        tests, setup = list(problem.row["test_list"]), _setup(problem.row)
        names = list(self.names(problem))
        prepared = {name for code in setup if (tree := parse(code)) for name in bindings(tree)}
        others = [name for name in _names(tests) if name not in names and not hasattr(builtins, name)]
        job = {
            "suite": self.suite,
            "program": program,
            "gold": problem.gold,
            "setup": [] if self.scorer == "lm_eval" else setup,  # lm_eval leaves it out, so 367 cannot pass there
            "names": [*names, *(name for name in others if name in prepared)],
            "optional_names": [name for name in others if name not in prepared],
            "tests": tests,
        }
        return job, TEST_LIMITS

    def _load(self, config: TaskConfig, embedded_default: bool) -> tuple[list[Row], Source]:
        rows, source = load_split(MBPP, config.source, config.revision, embedded_default)
        for number, row in enumerate(rows, start=1):
            if not isinstance(row.get("text", row.get("prompt")), str) or not row["test_list"]:
                raise TaskError(f"{source.name}, row {number}: expected `text` or `prompt`, and tests in `test_list`")
        if source.sha256 == SANITIZED_SHA256:
            source = replace(source, name="MBPP sanitized (original file)")
        return rows, source

    def _select(self, rows: list[Row]) -> list[Row]:
        """The full file also holds the examples and the train split. No problem is one of the examples."""
        if self.source.sha256 == FULL_SHA256:
            return [row for row in rows if row["task_id"] in TEST_IDS]
        if self.source.kind == "embedded":
            return rows
        shown = {shot["task_id"] for shot in SHOTS[: self.shots]}
        return [row for row in rows if row["task_id"] not in shown]

    def _problem(self, row: Row) -> Problem:
        prefix = "embedded-mbpp" if self.source.kind == "embedded" else "mbpp"
        return Problem(f"{prefix}-{row['task_id']}", mbpp_text(row), row["code"], row)


class MbppPlus(PlusTask, Mbpp):
    """All 378 problems with all inputs; for the embedded set, inputs derived from its own tests."""

    suite = "outputs"
    family = "mbpp"
    scorers = ("lopa_bench", "evalplus")

    def names(self, problem: Problem) -> tuple[str, ...]:
        if "entry_point" in problem.row:
            return (problem.row["entry_point"],)
        return Mbpp.names(self, problem)

    def job(self, problem: Problem, program: str) -> tuple[dict[str, Any], Limits]:
        return PlusTask.job(self, problem, program)

    def _load(self, config: TaskConfig, embedded_default: bool) -> tuple[list[Row], Source]:
        if config.source == "embedded" or (config.source == "auto" and embedded_default):
            rows, source = load_split(MBPP, "embedded", config.revision)
            return rows, replace(source, name=f"{source.name} with derived inputs")
        rows, source = load_split(MBPP_PLUS, config.source, config.revision)
        style = pick_style(MBPP_STYLES, config.prompt_style, source.kind)
        if style in ("lm_eval", "lopa") and any("test_list" not in row for row in rows):
            rows = _with_origin_format(rows, Path(config.source).expanduser(), style)
        return rows, source

    def _select(self, rows: list[Row]) -> list[Row]:
        """lm_eval's three examples (ids 2, 3, 4) are problems here; they stay, as there, to give its prompts."""
        return rows

    def _problem(self, row: Row) -> Problem:
        if self.source.kind == "embedded":
            return Mbpp._problem(self, row)
        number = str(row["task_id"]).rpartition("/")[2]
        return Problem(f"mbpp-plus-{number}", mbpp_text(row), row.get("code") or row["canonical_solution"], row)


def _with_origin_format(rows: list[Row], path: Path, style: str) -> list[Row]:
    """The release file lacks the three tests that lm_eval shows; evalplus' other file of the same release has them."""
    other = path.with_name(ORIGIN_FILE)
    if not other.is_file():
        raise TaskError(
            f"prompt_style={style} needs the tests in {ORIGIN_FILE}, which is not in {path.parent.absolute()}"
        )
    origin = {str(row["task_id"]): row for row in load_file(MBPP_PLUS, other)[0]}
    merged = []
    for row in rows:
        found = origin[str(row["task_id"]).rpartition("/")[2]]
        merged.append({**row, "text": found["prompt"], "test_list": found["test_list"]})
    return merged


def _setup(row: Mapping[str, Any]) -> list[str]:
    """`test_setup_code` of the full set, `test_imports` of the sanitized one."""
    lines = [row.get("test_setup_code") or "", *(row.get("test_imports") or ())]
    return [line for line in lines if line.strip()]


def _names(tests: Sequence[str]) -> list[str]:
    """Every name in the tests, each once, called ones first and then in order of appearance."""
    nodes = [node for test in tests for node in ast.walk(ast.parse(test))]
    called = [node.func.id for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)]
    return list(dict.fromkeys([*called, *(node.id for node in nodes if isinstance(node, ast.Name))]))
