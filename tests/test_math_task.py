"""The MATH tasks: sources, prompts and verdicts."""

import json
import warnings
from collections import Counter
from pathlib import Path

import pytest

from tasks.math.grader import Comparison, GraderPool
from tasks.math.task import Math, Math500, subjects_in_proportion
from tasks.registry import make_task
from tasks.types import Problem, Prompt, TaskConfig, TaskError
from tests.benchmark_files import MATH500, golden_prompts

ROWS = [
    {"problem": "What is $\\frac{1}{4} + \\frac{1}{4}$?", "solution": "It is $\\boxed{\\frac{1}{2}}$."},
    {"problem": "What is $2^3$?", "solution": "It is $\\boxed{8}$."},
]


@pytest.fixture
def math_file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return path


def _task(source: Path, **settings: object) -> Math:
    return Math(TaskConfig(name="math", source=str(source), **settings), embedded_default=False)


def test_there_is_no_embedded_set() -> None:
    with pytest.raises(
        TaskError, match=r"there is no embedded set for MATH test: give task\.source=hub or task\.source=<path"
    ):
        Math(TaskConfig(name="math", source="embedded"), embedded_default=False)
    with pytest.raises(TaskError, match="there is no embedded set for MATH-500"):
        Math500(TaskConfig(name="math500"), embedded_default=True)


def test_a_verdict_and_its_status(math_file: Path) -> None:
    task = _task(math_file)
    half, eight = task.problems
    scores = task.score_all(
        [(half, r"\boxed{0.5}"), (half, r"\boxed{\frac13}"), (eight, r"\boxed{8"), (eight, r"\boxed{8}")]
    )
    assert [(score.correct, score.status, score.extracted) for score in scores] == [
        (True, "ok", "0.5"),
        (False, "ok", r"\frac13"),
        (False, "none", None),
        (True, "ok", "8"),
    ]
    assert task.score(half, r"\boxed{0.5}") == scores[0]


def test_a_solution_without_an_answer_is_named(tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_text(json.dumps(ROWS[0]) + "\n" + json.dumps({"problem": "Why?", "solution": "Because."}))
    with pytest.raises(TaskError, match=r"mine\.jsonl, row 2: the solution has no \\boxed answer"):
        _task(path)


def test_a_gold_that_does_not_equal_itself_is_reported_at_the_start(tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_text(json.dumps({"problem": "Which?", "solution": "x", "answer": "\\frac{0}{0}"}))
    with pytest.warns(UserWarning, match="1 of 1 golds .* equal to themselves.*: math-test-0"):
        task = _task(path)
    assert task.problems[0].id == "math-test-0"


def test_a_proof_of_the_golds_holds_for_the_same_golds_grader_and_libraries(
    math_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOPA_BENCH_CACHE", str(tmp_path / "cache"))
    proved: list[int] = []

    def compare_all(_: GraderPool, pairs: list[tuple[str, str]]) -> list[Comparison]:
        proved.append(len(pairs))
        return [Comparison("ok", gold != "8") for gold, _ in pairs]

    monkeypatch.setattr(GraderPool, "compare_all", compare_all)
    for _ in range(2):  # the warning is of the golds, not of the proof
        with pytest.warns(UserWarning, match="1 of 2 golds .*: math-test-1"):
            _task(math_file)
    assert proved == [2]
    _task(math_file, limit=1)
    assert proved == [2, 1]
    with monkeypatch.context() as other:
        other.setattr("tasks.math.golds.version", lambda _: "9.9.9")
        _task(math_file, limit=1)
    assert proved == [2, 1, 1]
    monkeypatch.setattr("tasks.math.golds._code_sha256", lambda: "changed")
    _task(math_file, limit=1)
    assert proved == [2, 1, 1, 1]


def test_a_timeout_proves_nothing(math_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOPA_BENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(GraderPool, "compare_all", lambda _, pairs: [Comparison("timeout") for _ in pairs])
    for _ in range(2):
        with pytest.warns(UserWarning, match="2 of 2 golds"):
            _task(math_file)
    monkeypatch.setattr(GraderPool, "compare_all", lambda _, pairs: [Comparison("ok", True) for _ in pairs])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _task(math_file)


def test_any_first_problems_hold_the_subjects_by_their_share() -> None:
    sizes = {"Algebra": 120, "Geometry": 40, "Precalculus": 20}  # one after the other, as on the Hub
    subjects = [subject for subject, size in sizes.items() for _ in range(size)]
    whole = [Problem(str(number), "?", "1", {"type": subject}) for number, subject in enumerate(subjects)]
    ordered = subjects_in_proportion(whole)
    assert sorted(ordered, key=whole.index) == whole
    for limit in range(1, 181):
        counts = Counter(problem.row["type"] for problem in ordered[:limit])
        assert all(abs(counts[subject] - size * limit / 180) < 1.5 for subject, size in sizes.items())
    for subject in sizes:  # inside a subject the order of the source stays
        assert [p for p in ordered if p.row["type"] == subject] == [p for p in whole if p.row["type"] == subject]


def test_a_limit_takes_the_first_problems_of_the_whole_and_says_how_they_were_chosen(tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    rows = [{**ROWS[1], "type": subject} for subject in ("Algebra",) * 6 + ("Geometry",) * 2]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    whole, limited = _task(path), _task(path, limit=4)
    assert limited.problems == whole.problems[:4]
    assert [problem.id for problem in limited.problems] == [f"math-test-{number}" for number in (0, 1, 6, 2)]
    assert limited.source.name == f"{whole.source.name}, subjects in proportion"


def test_rows_without_a_subject_keep_their_order(math_file: Path) -> None:
    task = _task(math_file, limit=1)
    assert ([problem.id for problem in task.problems], "in proportion" in task.source.name) == (["math-test-0"], False)


def test_the_chat_prompt_asks_for_a_box(math_file: Path) -> None:
    task = _task(math_file, shots=0)
    messages = task.prompt(task.problems[1]).messages
    assert messages is not None
    assert messages[0]["content"].startswith("What is $2^3$?")
    assert "\\boxed{}" in messages[0]["content"]


def test_chat_shots_are_turns(math_file: Path) -> None:
    task = _task(math_file)
    messages = task.prompt(task.problems[1]).messages
    assert messages is not None
    assert len(messages) == 9
    assert messages[-1]["content"] == "Problem:\nWhat is $2^3$?\n\nSolution:"
    with pytest.raises(TaskError, match=r"task\.shots=5: task=math has 4 fixed examples; allowed: at most 4"):
        make_task(TaskConfig(name="math", source=str(math_file), shots=5), embedded_default=False)


@pytest.mark.parametrize("key", ["minerva_math_algebra-k4-rank0of1", "minerva_math_algebra-k4-rank1of8"])
def test_lm_eval_prompts_are_equal_byte_for_byte(tmp_path: Path, key: str) -> None:
    entries = golden_prompts(key)
    questions = [entry["prompt"].rpartition("Problem:\n")[2].removesuffix("\n\nSolution:") for entry in entries]
    path = tmp_path / "mine.jsonl"
    rows = [{"problem": question, "solution": "$\\boxed{1}$"} for question in questions]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    task = _task(path, prompt_style="lm_eval")
    for entry, problem in zip(entries, task.problems, strict=True):
        assert task.prompt(problem) == Prompt(entry["prompt"])
        assert tuple(entry["gen_kwargs"]["until"]) == task.stop


@pytest.mark.data
@pytest.mark.filterwarnings("error::UserWarning")  # of golds that are not equal to themselves
def test_math500_has_500_problems_whose_solutions_are_right() -> None:
    task = Math500(TaskConfig(name="math500", source=str(MATH500)), embedded_default=False)
    assert task.source.name == "MATH-500 (original file)"
    assert len({problem.id for problem in task.problems}) == 500
    scores = task.score_all([(problem, problem.row["solution"]) for problem in task.problems])
    assert all(score.correct for score in scores)
