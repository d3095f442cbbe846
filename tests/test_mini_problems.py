"""The problem generator of the embedded models and the sets made with it."""

from __future__ import annotations

import re
from itertools import islice

import pytest

from lopa_bench.models.mini.problems.arithmetic import ROUND_TOTALS, calculate, is_fact
from lopa_bench.models.mini.problems.code_families import FAMILIES
from lopa_bench.models.mini.problems.code_problems import run_tests
from lopa_bench.models.mini.problems.make_sets import (
    TEST_ROWS,
    check_gold,
    embedded_questions,
    gsm8k_row,
    humaneval_row,
    mbpp_row,
    question_of,
    read_rows,
    rows_of,
)
from lopa_bench.models.mini.problems.mixture import Mixture, held_out_problems, training_problems
from lopa_bench.models.mini.problems.problem import Problem
from lopa_bench.models.mini.problems.word_templates import TEMPLATES

FACT = re.compile(r"(\d+)([-+*/])(\d+)=(\d+)")
KINDS = {"gsm8k": "word", "mbpp": "function", "humaneval": "completion"}


def training(count: int, seed: int = 0) -> list[Problem]:
    return list(islice(training_problems(Mixture(variety=0.5), seed), count))


@pytest.fixture(scope="module")
def many() -> list[Problem]:
    return training(20_000)


def test_the_same_seed_gives_the_same_problems() -> None:
    assert training(300) == training(300)
    assert training(300) != training(300, seed=1)


def test_all_templates_and_families_appear(many: list[Problem]) -> None:
    templates = {problem.key.split(":")[0] for problem in many if problem.kind == "word"}
    assert templates == {template.name for template in TEMPLATES}
    assert len(TEMPLATES) == 15
    families = {problem.key.split(":")[1] for problem in many if problem.kind in ("function", "completion")}
    assert families == {str(index) for index in range(32)}
    assert len(FAMILIES) == 32


def test_arithmetic_is_right_and_ends_in_the_answer(many: list[Problem]) -> None:
    for problem in many:
        written = FACT.findall(problem.answer)
        if problem.kind not in ("word", "drill"):
            continue
        assert ["".join((a, op, b, "=", c)) for a, op, b, c in written] == list(problem.facts)
        for a, operator, b, result in written:
            assert is_fact(int(a), operator, int(b))
            assert calculate(int(a), operator, int(b)) == int(result)
        if problem.kind == "word":
            assert problem.answer.endswith(f"\n#### {written[-1][3]}")


def test_operands_come_from_the_question_or_an_earlier_step(many: list[Problem]) -> None:
    for problem in many[:5000]:
        if problem.kind != "word":
            continue
        known = set(re.findall(r"\d+", problem.question)) | {"2"}  # the two sides of a fence
        for a, _, b, result in FACT.findall(problem.answer):
            assert {a, b} <= known
            known.add(result)


def test_differences_from_round_totals_are_frequent(many: list[Problem]) -> None:
    facts = [fact for problem in many for fact in problem.facts]
    round_ones = [f for f in facts if f.split("-")[0] in map(str, ROUND_TOTALS) and "-" in f]
    assert len(round_ones) > 0.08 * len(facts)


def test_gold_functions_pass_their_tests(many: list[Problem]) -> None:
    for problem in many[:3000]:
        if problem.tests:
            run_tests(problem.code, problem.tests)


def test_a_completion_continues_its_prompt() -> None:
    problem = next(held_out_problems("completion", 3, 0.5))
    assert problem.question.startswith(f"def {problem.function}(")
    assert problem.question.endswith('"""\n')
    assert problem.answer.startswith("    ")


@pytest.mark.parametrize("name", TEST_ROWS)
def test_embedded_sets_are_whole_and_their_gold_is_right(name: str) -> None:
    rows = read_rows(f"{name}_test")
    assert len(rows) == TEST_ROWS[name]
    assert len({question_of(row) for row in rows}) == len(rows)
    for row in rows:
        check_gold(row)


@pytest.mark.parametrize("name", TEST_ROWS)
def test_embedded_sets_are_what_the_generator_makes(name: str) -> None:
    make = {"gsm8k": gsm8k_row, "mbpp": mbpp_row, "humaneval": humaneval_row}[name]
    problems = islice(held_out_problems(KINDS[name], 2026, 0.5), 40)
    assert [make(index, problem) for index, problem in enumerate(problems)] == read_rows(f"{name}_test")[:40]


def test_training_never_meets_the_embedded_sets(many: list[Problem]) -> None:
    held_out_keys = {
        problem.key
        for name, kind in KINDS.items()
        for problem in islice(held_out_problems(kind, 2026, 0.5), TEST_ROWS[name])
    }
    questions = embedded_questions()
    assert len(questions) == sum(TEST_ROWS.values())
    assert not held_out_keys & {problem.key for problem in many}
    assert not questions & {problem.question for problem in many}


def test_excluded_questions_are_rejected() -> None:
    first = training(1)[0]
    problems = islice(training_problems(Mixture(variety=0.5), 0, exclude={first.question}), 500)
    assert first.question not in {problem.question for problem in problems}


def test_another_seed_gives_test_sets_of_new_problems() -> None:
    known = embedded_questions()
    makers = {"gsm8k": gsm8k_row, "mbpp": mbpp_row, "humaneval": humaneval_row}
    for name, kind in KINDS.items():
        rows = list(islice(rows_of(kind, makers[name], 7, True, known), 100))
        assert len({question_of(row) for row in rows} - known) == 100
