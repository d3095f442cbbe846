"""MBPP: short Python functions (Austin et al. 2021, arXiv 2108.07732), and MBPP+ with the tests of evalplus."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tasks.code.extraction.extract import Extracted, extract
from tasks.code.extraction.trees import bindings, parse
from tasks.code.mbpp_shots import SHOTS
from tasks.code.prompts import MBPP_STYLES, auto_style, code_style, lm_eval_mbpp, mbpp_docstring, mbpp_text, question
from tasks.code.published import MBPP_TURNS, mbpp_turns, unquoted
from tasks.code.score import TEST_LIMITS, CodeTask
from tasks.code.score_plus import PLUS_FIELDS, PlusTask
from tasks.sandbox import Limits
from tasks.sources.fields import ID, NAME, TEXT, TEXT_OR_BLANK, TEXTS, TEXTS_OR_NONE, shown
from tasks.sources.files import Row
from tasks.sources.load import load_file, load_split, resolve_source, user_path
from tasks.sources.problems import plain_id
from tasks.sources.split import HubSet, Split
from tasks.types import Problem, Prompt, Source, TaskError

FULL_SHA256 = "ccf64ceae9c5403bf50a044cb6d505bfd2a2963ee58338ba268fd65beab92a9f"
SANITIZED_SHA256 = "ca95deaa9a01ef0a6f439f88bcf0dd3db3563d22f22aad6cae04ebb9a8d8c8e9"
TEST_IDS = range(11, 511)
QUESTION = {"text": TEXT, "prompt": TEXT}  # one of them
MBPP = Split(
    title="MBPP",
    fields={"task_id": ID, "code": TEXT, "test_list": TEXTS},
    optional=QUESTION | {"test_setup_code": TEXT_OR_BLANK, "test_imports": TEXTS_OR_NONE},
    hub=HubSet("google-research-datasets/mbpp", "test", 500, ("full",), "4bb6404fdc6cacfda99d4ac4205087b89d32030c"),
    originals={FULL_SHA256: 974, SANITIZED_SHA256: 427},
    embedded="mbpp_test.jsonl",
    embedded_title="embedded programming problems (MBPP format)",
)
RELEASE_SHA256 = "af43697e8791c4c149bdfd6b489d8b5412507551ac20e28a439f650b8225db63"
ORIGIN_SHA256 = "7a5aec547b134fa297ee6c45f829298aa3f58de02547b8d8a5c3d85d9cb10efc"
MBPP_PLUS = Split(
    title="MBPP+ v0.2.0",
    fields={"task_id": ID, "prompt": TEXT},
    optional=PLUS_FIELDS | {"test_list": TEXTS, "code": TEXT, "canonical_solution": TEXT, "entry_point": NAME},
    hub=HubSet("evalplus/mbppplus", "test", 378, (None,), "b2d74c91837c3f2a20c1299ae98133cbe7cfa077"),
    originals={RELEASE_SHA256: 378, ORIGIN_SHA256: 378},
)
LM_EVAL_LAYOUTS = {"lm_eval": "text", "lm_eval_turn": "turn", "lopa": "turns"}
ORIGIN_FILE = "MbppPlus-OriginFmt.jsonl.gz"


class Mbpp(CodeTask):
    """The test problems (ids 11-510) of the full set, or all of the sanitized set."""

    suite = "asserts"
    split = MBPP
    scorers: tuple[str, ...] = ("lopa_bench", "lm_eval")
    styles = MBPP_STYLES
    prompt_styles = ("auto", *MBPP_STYLES)
    most_shots = len(SHOTS)

    def prompt(self, problem: Problem) -> Prompt:
        if self.prompt_style == "question":
            return question(mbpp_docstring(problem.row))
        if self.prompt_style in LM_EVAL_LAYOUTS:
            text, tests = mbpp_text(problem.row), problem.row["test_list"]
            return lm_eval_mbpp(text, tests, self.shots, LM_EVAL_LAYOUTS[self.prompt_style])
        if self.prompt_style in MBPP_TURNS:
            return mbpp_turns(self.prompt_style, mbpp_text(problem.row), problem.row["test_list"], self.shots)
        return code_style(self.prompt_style, f'"""\n{mbpp_docstring(problem.row)}\n"""')

    def few_shot_ids(self, problem: Problem) -> tuple[str, ...]:
        return tuple(f"mbpp-{shot['task_id']}" for shot in SHOTS[: self.shots])

    def extract(self, problem: Problem, completion: str) -> Extracted:
        if self.scorer != "lopa_bench":
            return Extracted(completion, "raw" if completion.strip() else "empty")
        if self.prompt_style == "opencompass":
            completion = unquoted(completion)
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

    def load(self) -> tuple[list[Row], Source]:
        rows, source = load_split(MBPP, self.config.source, self.config.revision, self.embedded_model)
        if source.sha256 == SANITIZED_SHA256:
            source = replace(source, name="MBPP sanitized (original file)")
        return rows, source

    def takes(self, row: Mapping[str, Any]) -> bool:
        """The full file also holds the examples and the train split. No problem is one of the examples."""
        if self.source.sha256 == FULL_SHA256:
            return row["task_id"] in TEST_IDS
        shown = {str(shot["task_id"]) for shot in SHOTS[: self.shots]}
        return self.source.kind == "embedded" or plain_id(str(row["task_id"])) not in shown

    def problem(self, number: int, row: Row) -> Problem:
        _check_row(row, f"{self.source.where}, row {number + 1}")
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

    def load(self) -> tuple[list[Row], Source]:
        if resolve_source(self.config.source, self.embedded_model) == "embedded":
            rows, source = load_split(MBPP, "embedded", self.config.revision)
            return rows, replace(source, name=f"{source.name} with derived inputs")
        rows, source = load_split(MBPP_PLUS, self.config.source, self.config.revision)
        style = auto_style(source.kind) if self.config.prompt_style == "auto" else self.config.prompt_style
        if style in (*LM_EVAL_LAYOUTS, *MBPP_TURNS) and any("test_list" not in row for row in rows):
            rows = _with_origin_format(rows, user_path(self.config.source), style)
        return rows, source

    def takes(self, row: Mapping[str, Any]) -> bool:
        """lm_eval's three examples (ids 2, 3, 4) are problems here; they stay, as there, to give its prompts."""
        return True

    def problem(self, number: int, row: Row) -> Problem:
        if self.source.kind == "embedded":
            return Mbpp.problem(self, number, row)
        gold = row.get("code") or row.get("canonical_solution")
        if gold is None:
            raise TaskError(f"{self.source.where}, row {number + 1}: no value for code or canonical_solution")
        last = str(row["task_id"]).rpartition("/")[2]
        return Problem(f"mbpp-plus-{last}", mbpp_text(row), gold, row)


def _check_row(row: Row, where: str) -> None:
    """Raises TaskError for a row whose tests could judge no program."""
    if row.get("text") is None and row.get("prompt") is None:
        raise TaskError(f"{where}: no value for text or prompt; the question is wanted in one of them")
    gold = parse(row["code"])
    for name, code in [("code", row["code"]), *(("test_list", test) for test in row["test_list"])]:
        if parse(code) is None:
            raise TaskError(f"{where}: {name} holds {shown(code)}; allowed: programs in Python")
    if gold is None or not set(_names(row["test_list"])) & bindings(gold):
        raise TaskError(f"{where}: no test uses a name that the gold program defines")


def _with_origin_format(rows: list[Row], path: Path, style: str) -> list[Row]:
    """The release file lacks the three tests that lm_eval shows; evalplus' other file of the same release has them."""
    other = path.with_name(ORIGIN_FILE)
    if not other.is_file():
        raise TaskError(
            f"task.prompt_style={style} needs the tests in {ORIGIN_FILE}, which is not in {path.parent.absolute()}"
        )
    origin = {str(row["task_id"]): row for row in load_file(MBPP_PLUS, other)[0]}
    merged = []
    for number, row in enumerate(rows, start=1):
        found = origin.get(str(row["task_id"]).rpartition("/")[2])
        if found is None or not found.get("test_list"):
            raise TaskError(f"{other} has no tests for task_id {shown(row['task_id'])} ({path}, row {number})")
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
