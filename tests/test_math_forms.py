"""Two LaTeX answers that differ by their form alone: bases, lists, words, units, and spaces between digits."""

from __future__ import annotations

import time

import pytest

from tasks.math.answers import final_answer, same_text
from tasks.math.forms import LONGEST, by_form, plain
from tasks.math.grader import Comparison, GraderPool
from tasks.math.task import Math
from tasks.types import Problem


class NoWorker(GraderPool):
    """Says what came to math-verify instead of asking it."""

    def __init__(self) -> None:
        super().__init__(size=1)
        self.asked: list[tuple[str, str]] = []
        worker = self._free.get()
        worker.compare = lambda *pair: self.asked.append(pair) or Comparison("ok", True)
        self._free.put(worker)


DIFFERENT = [  # gold, answer
    ("123", "1 2 3"),
    ("123", r"1\,2\,3"),
    ("1,2,3", "123"),
    ("2516_8", "2516_9"),
    ("2516_8", "2517_8"),
    ("2516_8", "2516_{10}"),
    ("10", "10_8"),
    ("1", "1,1"),
    ("2,3", "2,2,3"),
    ("2,2,3", "2,3"),
    ("5", r"5 \text{ or } 4"),
    ("5", "5 and 4"),
    ("(1,1)", "(1,1,1)"),
    ("(3,5)", r"\{3,5\}"),
    ("[3,5]", "(3,5)"),
    ("[2,5)", "(2,5]"),
    (r"\left(3,5\right)", r"\left[3,5\right]"),
    (r"1\pm\sqrt{19}", r"1+\sqrt{19}"),
    ("x = 3", "x = 3, 4"),
    ("5x - 7y + 4 = 0", "0"),
    ("x^2 + y^2 = 4", "4"),
    (r"\text{even}", "neve"),
    (r"\text{Evelyn}", r"\text{Carla}"),
    ("even", "odd"),
    (r"5.4\text{ cents}", r"5.4\text{ dollars}"),
    (r"\$5", r"5\text{ cents}"),
    (r"90^\circ", r"90\text{ radians}"),
    (r"15\mbox{ cm}^2", r"15\mbox{ m}^2"),
]


@pytest.mark.parametrize(("gold", "answer"), DIFFERENT)
def test_what_differs_by_form_is_wrong_without_a_formula_read(gold: str, answer: str) -> None:
    pool = NoWorker()
    verdict = pool.compare(gold, answer)
    assert (verdict.status, verdict.correct, pool.asked) == ("ok", False, [])
    assert verdict.reason
    assert not same_text(gold, answer)


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        ("2516_8", "2516_{8}"),
        ("2516_8", "02516_8"),
        ("5", "5_{10}"),
        ("8", "10_8"),
        (r"\text{even}", "Even."),
        (r"\text{Evelyn}", r"\textbf{Evelyn}"),
        ("east", r"\text{east}"),
    ],
)
def test_what_is_equal_by_form_is_right(gold: str, answer: str) -> None:
    pool = NoWorker()
    assert (pool.compare(gold, answer).correct, pool.asked) == (True, [])


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        ("2516_8", "2516"),  # the question names the base
        ("x_1", "x_2"),
        ("(3,5)", "3,5"),
        ("5", r"\{5\}"),
        (r"\{1,1\}", r"\{1\}"),
        ("(2,5)", "2 < x < 5"),
        ("[2,5]", r"x \in [2,5]"),
        ("(3,5)", "(x,y)=(3,5)"),
        (r"1\pm\sqrt{19}", r"1+\sqrt{19}, 1-\sqrt{19}"),
        (r"5, 4", r"5 \text{ or } 4"),
        (r"(-\infty,2)\cup(3,\infty)", r"x<2 \text{ or } x>3"),
        ("5.4", r"5.4\text{ cents}"),
        (r"5.4\text{ cents}", "5.4"),
        (r"\text{(C)}", "C"),
        ("ab", "ba"),
        ("y = 2x + 3", "2x + 3"),
        ("f(x) = 2x", "2x"),
        ("(x,y) = (3,5)", "(3,5)"),
        ("5x - 7y + 4 = 0", "-5x + 7y - 4 = 0"),
        ("5", "x + y = 5"),
        ("5", "5,"),
    ],
)
def test_what_the_form_leaves_open_is_for_math_verify(gold: str, answer: str) -> None:
    assert by_form(plain(gold), plain(answer)) is None


@pytest.mark.parametrize(
    ("answer", "form"),
    [
        ("10,080", "10080"),
        (r"10,\!080", "10080"),
        (r"10\,080", "10080"),
        ("1 234 567", "1234567"),
        ("10{,}080", "10080"),
        ("1, 080", "1, 080"),
        ("1234 567", "1234, 567"),
        ("1,08", "1,08"),
        ("0.123 456", "0.123, 456"),
        ("1 2 3", "1, 2, 3"),
        ("1 1/2", r"1\frac{1}{2}"),
        (r"1\ 1/2", r"1\frac{1}{2}"),
        (r"\frac 1 2", r"\frac 1 2"),
        ("(2, 5)", "(2, 5)"),
    ],
)
def test_the_plain_form(answer: str, form: str) -> None:
    assert plain(answer) == form


def test_spaces_between_digits_are_no_matter_of_taste() -> None:
    assert not same_text("123", "1 2 3")
    assert same_text("1 2", "1  2")
    assert same_text("x + 1", "x+1")


@pytest.mark.parametrize(
    "piece",
    [r"\boxed{", r"\boxed{1}", "{", "answer: ", "answer is a ", "answer: a ", "$", r"\(", r"\text{", " ", "1, ", "\n"],
)
def test_finding_an_answer_takes_time_in_proportion_to_the_length(piece: str) -> None:
    text = "The answer is " + piece * (60_000 // len(piece)) + "x"
    begin = time.process_time()
    answer = final_answer(text)
    same_text("1", answer or "")
    by_form(plain("1,2"), plain((answer or "")[:LONGEST]))
    assert time.process_time() - begin < 5


def test_an_answer_beyond_the_bound_is_wrong_and_not_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    task = object.__new__(Math)
    task._graders = pool = NoWorker()
    problem = Problem("p", "?", "5", {})
    for answer in ("9" * 4300, "9" * (LONGEST + 1), "{" * LONGEST + "}" * LONGEST + "5", "\\frac" * 5000):
        score = task.score(problem, rf"\boxed{{{answer}}}")
        assert (score.correct, score.status) == (False, "ok")
        assert score.details == {"reason": f"longer than {LONGEST} characters"}
    assert pool.asked == []
    long_gold = Problem("p", "?", "9" * 5000, {})
    assert task.score(long_gold, rf"\boxed{{{'9' * 5000}}}").correct is True


def test_neither_a_timeout_nor_an_error_of_the_grader_is_a_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    task = object.__new__(Math)
    task._graders = GraderPool(size=1)
    problem = Problem("p", "?", "5", {})
    for status in ("timeout", "error"):
        monkeypatch.setattr(task._graders, "compare", lambda *_, s=status: Comparison(s, None, "why"))
        score = task.score(problem, r"\boxed{6}")
        assert (score.correct, score.status, score.extracted, score.details) == (None, status, "6", {"reason": "why"})
