"""Values of the code tasks' rules: tolerances, special problems, limits, restored types, derived inputs, details."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import tasks.code.score as code_score
from tasks.code.expected import Reference
from tasks.code.extraction.extract import Extracted
from tasks.code.extraction.trees import bindings, parse, unbound
from tasks.code.humaneval import HumanEvalPlus
from tasks.code.inputs import restore_mbpp_types
from tasks.code.plus_rows import plus_problem
from tasks.code.score import TEST_LIMITS, _score
from tasks.sandbox import Limits, Verdict
from tasks.sandbox.oracles import Oracle
from tasks.types import TaskConfig, TaskError
from tests.test_code_score import PLUS, ROW, write


@pytest.mark.parametrize(
    ("output", "expected", "atol", "right"),
    [
        (1000.0001, 1000.0, 1e-6, True),  # 1e-6 and 1e-7 of a thousand
        (1000.00011, 1000.0, 1e-6, False),
        (1.000002, 1.0, 1e-6, False),
        (1.000001, 1.0, 1e-6, True),
        (1e6 + 0.2, 1e6, 1e-4, False),
        (1e6 + 0.09, 1e6, 1e-4, True),
        (0.0, 1e-6, 0, True),
        (0.0, 1.2e-6, 0, False),
        (1.0, 2, 0, False),
        ([1.0000005], [1.0], 0, True),
        ((1.0000005, 2.0), (1.0, 2.0), 0, True),
        (complex(1, 1e-7), complex(1, 0), 1e-6, True),
    ],
)
def test_tolerances_are_those_of_evalplus(output: Any, expected: Any, atol: float, right: bool) -> None:
    assert Oracle("mbpp", "f", atol).accepts(output, expected, ()) is right


@pytest.mark.parametrize(
    "name",
    [
        "similar_elements", "find_char_long", "common_in_nested_lists", "extract_singly", "larg_nnum",
        "intersection_array", "find_dissimilar", "Diff",
    ],
)  # fmt: skip
def test_lists_in_any_order_for_eight_problems(name: str) -> None:
    assert Oracle("mbpp", name, 0).accepts([2, 1, 1], [1, 2], ())
    assert not Oracle("mbpp", name, 0).accepts([2, 1, 3], [1, 2], ())
    assert not Oracle("humaneval", name, 0).accepts([2, 1], [1, 2], ())


@pytest.mark.parametrize("name", ["check_str", "text_match_three", "text_starta_endb"])
def test_match_objects_for_three_problems(name: str) -> None:
    assert Oracle("mbpp", name, 0).accepts(object(), object(), ())
    assert not Oracle("mbpp", name, 0).accepts(None, object(), ())


def test_lists_in_order_for_all_others() -> None:
    assert not Oracle("mbpp", "f", 0).accepts([2, 1], [1, 2], ())


def _plus_task(tmp_path: Path, reference: Reference) -> tuple[HumanEvalPlus, Any]:
    made = HumanEvalPlus(
        TaskConfig(name="humaneval_plus", source=write(tmp_path / "rows.jsonl", {**ROW, **PLUS})), False
    )
    (problem,) = made.problems
    made._plus[problem.id] = plus_problem(problem.id, problem.row, "humaneval", ("tri_area",)), reference
    return made, problem


def test_an_input_may_take_four_times_its_reference_time_and_four_seconds_at_least(tmp_path: Path) -> None:
    made, problem = _plus_task(tmp_path, Reference(tmp_path, (0.1, 1.0, 2.0, 0.0, 10.0), 1024))
    job, limits = made.job(problem, "pass")
    assert [part["name"] for part in job["parts"]] == ["base", "plus"]
    assert [part["cpu_s"] for part in job["parts"]] == [[4.0, 4.0], [8.0, 4.0, 40.0]]
    assert limits == Limits(cpu_s=60 + 4 * 13.1, wall_s=3 * (60 + 4 * 13.1), memory_mb=1024)
    assert made.cost(problem) == pytest.approx(13.1)


def test_memory_is_twice_that_of_the_reference_and_a_gigabyte_at_least(tmp_path: Path) -> None:
    for rss_kb, memory_mb in ((1024, 1024), (256 * 1024, 1024), (1 << 20, 512 + 2048)):
        made, problem = _plus_task(tmp_path, Reference(tmp_path, (0.0,) * 5, rss_kb))
        assert made.job(problem, "pass")[1].memory_mb == memory_mb


def test_the_limits_of_plain_tests() -> None:
    assert (TEST_LIMITS.cpu_s, TEST_LIMITS.wall_s, TEST_LIMITS.memory_mb) == (5.0, 15.0, 1024)


@pytest.mark.parametrize("status", ["wrong", "error", "timeout", "memory", "syntax", "missing", "exit"])
def test_a_program_that_did_not_pass_is_wrong_and_says_why(status: str) -> None:
    score = _score(Extracted("x = 1", "text"), Verdict(status, "why", passed=2, total=5, cpu_s=0.5))
    assert (score.correct, score.status, score.extracted) == (False, status, "x = 1")
    assert (score.details["reason"], score.details["tests_passed"], score.details["tests"]) == ("why", 2, 5)
    assert (score.details["cpu_s"], score.details["extraction"]) == (0.5, "text")


def test_an_empty_program_is_wrong_and_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, problem = _plus_task(tmp_path, Reference(tmp_path, (0.0,) * 5, 0))
    monkeypatch.setattr(code_score, "check_canaries", lambda suite: None)
    monkeypatch.setattr(code_score, "run_jobs", lambda jobs: [pytest.fail("run")] if jobs else [])
    score = made.score(problem, " \n")
    assert (score.correct, score.status, score.extracted) == (False, "empty", "")


@pytest.mark.parametrize(
    ("number", "arguments", "restored"),
    [
        (2, [[1], [2]], [(1,), (2,)]),
        (63, [[[1, 2]]], [[(1, 2)]]),
        (259, [[[1, 2]], [[3]]], [((1, 2),), ((3,),)]),
        (580, [[1, [2, [3]]]], [(1, (2, (3,)))]),
        (115, [[[], [1]]], [[{}, {1}]]),
        (106, [[1], [2]], [[1], (2,)]),
        (250, [[1], [2]], [(1,), [2]]),
        (722, [{"a": [1]}, 2], [{"a": (1,)}, 2]),
        (124, [1, 2], [1.0, 2 + 0j]),
        (1, [[1]], [[1]]),
    ],
)
def test_types_that_json_lost(number: int, arguments: list[Any], restored: list[Any]) -> None:
    found = restore_mbpp_types(number, arguments)
    assert found == restored
    assert list(map(type, found)) == list(map(type, restored))


def test_inputs_of_a_plain_row_are_derived_from_its_tests() -> None:
    row = {"code": "def f(x, n):\n    return x", "test_list": ["assert f([1, 2, 3], 2) == 1", "assert f([], 5) == 1"]}
    plus = plus_problem("p", row, "mbpp", ("f",))
    parts = {name: [tuple(eval(text)) for text in inputs] for name, inputs in plus.parts}
    assert plus.derived
    assert parts["base"] == [([1, 2, 3], 2), ([], 5)]
    assert parts["plus"] == [
        ([3, 2, 1], 2), ([2, 3], 2), ([1, 2], 2), ([1, 3], 2), ([1, 2, 3, 1, 2, 3], 2), ([], 2), ([1, 2, 3], 5),
    ]  # fmt: skip


def test_an_input_with_a_name_is_no_literal() -> None:
    row = {"code": "def f(x):\n    return x", "test_list": ["assert f(open) == 1"]}
    with pytest.raises(TaskError, match="an input uses the name 'open'"):
        plus_problem("p", row, "mbpp", ("f",))


def test_what_a_program_binds_and_lacks() -> None:
    tree = parse(
        "import a.b, c as d\nfrom e import f\nx = y\nfor z in x:\n    w = q\nclass C: pass\ndef g(h): return i\n"
    )
    assert tree is not None
    assert bindings(tree) == {"a", "d", "f", "x", "z", "w", "C", "g"}
    assert unbound(tree) == {"y", "q", "i"}
