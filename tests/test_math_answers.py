"""The final answer of a MATH completion, and what counts as equal to the gold."""

import json
import threading
import time

import pytest

from tasks.math.answers import final_answer, same_text, solution_answer
from tasks.math.grader import GraderPool
from tasks.types import TaskError
from tests.benchmark_files import MATH500


@pytest.fixture(scope="module")
def graders() -> GraderPool:
    return GraderPool(size=2)


ANSWERS = [  # completion, answer
    (r"So it is \boxed{5}. Wrong: \boxed{7}", "7"),
    (r"So it is \boxed{3", None),
    (r"\boxed{7}, or is it \boxed{3", "7"),
    (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
    (r"\boxed{\left\{ 1, 2 \right\}}", r"\left\{ 1, 2 \right\}"),
    (r"\boxed{$5$}", "5"),
    (r"\boxed{7, that is \boxed{5}}", "5"),  # the one that opens last
    (r"\fbox{5}", "5"),
    (r"\boxed{}", None),
    (r"The answer is 5. \boxed{}", None),
    (r"It is \boxed{5}. \boxed{ }", None),
    ("Final Answer: The final answer is $[2,5)$. I hope it is correct.", "[2,5)"),
    ("The answer is 0.5.", "0.5"),
    (r"**Answer:** \(x = 5\)", "x = 5"),
    (r"The answer is \boxed{3", None),
    ("<think>\\boxed{7}</think>It is \\boxed{5}.", "5"),
    ("<think>It is \\boxed{5}.", None),
    ("It is \\boxed{5}.\n\nProblem:\nWhat is 3+4?\n\nSolution: \\boxed{7}", "5"),
    ("I cannot tell.", None),
    ("", None),
]


@pytest.mark.parametrize(("completion", "answer"), ANSWERS)
def test_the_last_balanced_box_counts(completion: str, answer: str | None) -> None:
    assert final_answer(completion) == answer


def test_some_solutions_box_without_braces() -> None:
    assert solution_answer(r"Thus $x = \boxed 2$.") == "2"
    assert solution_answer("Thus x = 2.") is None


EQUAL = [  # gold, answer
    (r"\frac{1}{2}", r"\dfrac12"),
    (r"\frac{1}{2}", "0.5"),
    ("1000", "1{,}000"),
    ("90", r"90^\circ"),
    (r"90^\circ", "90"),
    ("28", r"28\%"),
    (r"28\%", "28"),
    ("5", "x=5"),
    ("[2,5)", "[2,5)"),
    (r"11\sqrt2", r"11\sqrt{2}"),
    ("6 - 5i", "-5i+6"),
    (r"\text{Evelyn}", "Evelyn"),
    (r"\text{(C)}", "C"),
    ("5", r"5 \text{ cm}"),
    ("1,-2", "-2,1"),
    (r"\left( 3, \frac{\pi}{2} \right)", r"(3, \pi/2)"),
]
DIFFERENT = [
    (r"\frac{1}{2}", r"\frac{1}{3}"),
    ("[2,5)", "(2,5]"),
    ("(2,5)", "(5,2)"),
    ("(2,5)", "(2,5]"),
    ("5", "-5"),
    (r"28\%", "0.28"),
    (r"\text{even}", r"\text{odd}"),
    (r"\pi", "3.14"),
    (r"\begin{pmatrix}1\\2\end{pmatrix}", r"\begin{pmatrix}2\\1\end{pmatrix}"),
]


@pytest.mark.parametrize(
    ("gold", "answer", "equal"), [(*pair, True) for pair in EQUAL] + [(*pair, False) for pair in DIFFERENT]
)
def test_what_is_equal(graders: GraderPool, gold: str, answer: str, equal: bool) -> None:
    verdict = graders.compare(gold, answer)
    assert (verdict.status, verdict.correct) == ("ok", equal)


def test_words_are_compared_as_text() -> None:
    assert same_text(r"\text{June 20}", "June 20")
    assert same_text(r"\frac{1}{2}", r"\frac{ 1 }{ 2 }.")
    assert not same_text("x", "X")
    assert not same_text("", "")


ENDLESS = r"\sum_{n=1}^{10^{9}} \sin(n!)^{n}"


def test_a_comparison_that_does_not_end_is_a_timeout_and_no_verdict() -> None:
    pool = GraderPool(size=1, seconds=2)
    assert pool.compare("1", "1").correct
    begin = time.monotonic()
    verdict = pool.compare("1", ENDLESS)
    assert (verdict.status, verdict.correct) == ("timeout", None)
    assert time.monotonic() - begin < 4
    assert pool.compare("0.5", r"\frac{1}{2}").correct  # a new worker has taken over


def test_a_comparison_that_needs_too_much_memory_is_an_error_and_no_verdict() -> None:
    pool = GraderPool(size=1, seconds=20, memory_bytes=300 * 1024**2)
    verdict = pool.compare("1", "x" * 60_000_000)
    assert (verdict.status, verdict.correct) == ("error", None)
    assert pool.compare("2", "2.0").correct


def test_any_thread_may_ask(graders: GraderPool) -> None:
    verdicts: list[bool | None] = []
    ask = lambda: verdicts.append(graders.compare(r"\frac{1}{2}", "0.5").correct)  # noqa: E731
    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert verdicts == [True] * 8


@pytest.mark.data
def test_all_500_golds_equal_themselves_and_their_solutions(graders: GraderPool) -> None:
    rows = [json.loads(line) for line in MATH500.read_text().splitlines()]
    assert len(rows) == 500
    pairs = [(row["answer"], row["answer"]) for row in rows]
    pairs += [(row["answer"], final_answer(row["solution"]) or "") for row in rows]
    assert [pair for pair, verdict in zip(pairs, graders.compare_all(pairs), strict=True) if not verdict.correct] == []


def test_a_grader_that_cannot_be_started_is_no_verdict_on_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasks.math.grader.sys.executable", "/nowhere/python")
    with pytest.raises(TaskError, match=r"math-verify does not start: .*'/nowhere/python'"):
        GraderPool(1).compare("x + 1", "1 + x")
