"""The scorer of the code tasks: it proves itself first, scores many at a time, and says why a program failed."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

import tasks.code.canary as code_canary
import tasks.code.score as code_score
from lopa_bench.metrics.statistics import mean_pass_at, pass_at
from tasks.code.humaneval import HumanEval, HumanEvalPlus
from tasks.code.mbpp import Mbpp
from tasks.sandbox import Limits, Verdict, run_jobs
from tasks.types import TaskConfig, TaskError
from tasks.verdicts import judge
from tests.test_sandbox import RIGHT, function, tri_area_job

ROW = {
    "task_id": "Test/0",
    "prompt": 'def tri_area(b, h):\n    """Area of a triangle."""\n',
    "entry_point": "tri_area",
    "canonical_solution": "    return b * h / 2\n",
    "test": "def check(candidate):\n    assert candidate(4, 3) == 6\n    assert candidate(0, 9) == 0\n",
}
PLUS = {"base_input": [[4, 3], [0, 9]], "plus_input": [[1, 1], [5, 2], [7, 3]], "atol": 0}


def write(path: Path, *rows: dict[str, Any]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


@pytest.fixture
def humaneval(tmp_path: Path) -> HumanEval:
    return HumanEval(TaskConfig(name="humaneval", source=write(tmp_path / "rows.jsonl", ROW)), False)


@pytest.fixture
def plus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HumanEvalPlus:
    monkeypatch.setenv("LOPA_BENCH_CACHE", str(tmp_path / "cache"))
    source = write(tmp_path / "rows.jsonl", {**ROW, **PLUS})
    return HumanEvalPlus(TaskConfig(name="humaneval_plus", source=source), False)


TABLE = [
    ("    return b * h / 2", True, "pass"),
    (f"It is:\n```python\n{function(RIGHT)}```\nDone.", True, "pass"),
    ("     return b * h / 2", False, "syntax"),
    ("\treturn b * h / 2", False, "syntax"),
    ("    x = b\n\treturn x * h / 2", False, "syntax"),
    (function(RIGHT) + 'if __name__ == "__main__":\n    print(tri_area(int(input()), 2))\n', True, "pass"),
    ("", False, "empty"),
    ('    """Area."""\n', False, "wrong"),
    ("    pass\n", False, "wrong"),
    ("    return 6\n", False, "wrong"),
    ("    return 1 / 0\n", False, "error"),
    ("    while True: pass\n", False, "timeout"),
]


def test_completions_and_their_scores(humaneval: HumanEval, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasks.code.humaneval.TEST_LIMITS", Limits(cpu_s=1, wall_s=10))
    problem = humaneval.problems[0]
    scores = humaneval.score_all([(problem, completion) for completion, _, _ in TABLE])
    assert [(score.correct, score.status) for score in scores] == [(right, status) for _, right, status in TABLE]
    assert scores[0].extracted == ROW["prompt"] + "    return b * h / 2"
    assert "rlimits" in scores[0].details["sandbox"]


def test_base_and_plus_are_told_apart(plus: HumanEvalPlus) -> None:
    problem = plus.problems[0]
    right, base_only, wrong = plus.score_all(
        [(problem, text) for text in ("    return b * h / 2", "    return {4: 6, 0: 0}[b]", "    return 1")]
    )
    assert (right.correct, right.details["base_passed"], right.details["plus_passed"]) == (True, True, True)
    assert (base_only.correct, base_only.details["base_passed"]) == (False, True)
    assert "plus_passed" not in base_only.details
    assert (wrong.correct, "base_passed" in wrong.details, wrong.details["tests"]) == (False, False, 5)


def judged_again(rows: Path) -> bool | None:
    """The verdict of a new process's task on the right program."""
    task = HumanEvalPlus(TaskConfig(name="humaneval_plus", source=str(rows)), False)
    return task.score(task.problems[0], "    return b * h / 2").correct


@pytest.mark.slow
def test_expected_outputs_are_computed_once_and_again_when_damaged(plus: HumanEvalPlus, tmp_path: Path) -> None:
    """Also where the damaged file is as long as before, and is a whole gzip file of other outputs."""
    assert plus.score(plus.problems[0], "    return b * h / 2").correct
    (outputs,) = (tmp_path / "cache").rglob("*.gz")
    written, whole = outputs.stat().st_mtime_ns, outputs.read_bytes()
    assert judged_again(tmp_path / "rows.jsonl")
    assert outputs.stat().st_mtime_ns == written
    others = gzip.decompress(whole).replace(b"6", b"7")
    for damaged in (whole[:-4], whole[:-1] + b"\x01", gzip.compress(others, 4, mtime=0), b""):
        outputs.write_bytes(damaged)
        assert judged_again(tmp_path / "rows.jsonl")
        assert outputs.read_bytes() == whole
    outputs.unlink()
    assert judged_again(tmp_path / "rows.jsonl")


@pytest.mark.parametrize("obstacle", ["no home", "a file in the cache's place"])
def test_expected_outputs_need_no_cache(
    obstacle: str, plus: HumanEvalPlus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if obstacle == "no home":
        monkeypatch.setattr("tasks.code.expected.cache_folder", lambda: None)
    else:
        (tmp_path / "cache").write_bytes(b"")
    right, wrong = (plus.score(plus.problems[0], f"    return b * h / {part}").correct for part in (2, 3))
    assert (right, wrong) == (True, False)


def test_two_problems_with_one_solution_have_outputs_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LOPA_BENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("tasks.remembered.PATIENCE_SECONDS", 0.01)
    rows = [{**ROW, **PLUS, "task_id": f"HumanEval/{number}"} for number in (1, 2)]
    task = HumanEvalPlus(TaskConfig(name="humaneval_plus", source=write(tmp_path / "rows.jsonl", *rows)), False)
    pairs = [(problem, "    return b * h / 2") for problem in task.problems]
    assert [score.correct for score in task.score_all(pairs)] == [True, True]
    assert "running 2 canonical solutions once, for their outputs ...\n" in capsys.readouterr().err


def test_a_canonical_solution_that_fails_is_an_error_of_the_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOPA_BENCH_CACHE", str(tmp_path / "cache"))
    source = write(tmp_path / "rows.jsonl", {**ROW, **PLUS, "canonical_solution": "    return 1 / 0\n"})
    task = HumanEvalPlus(TaskConfig(name="humaneval_plus", source=source), False)
    with pytest.raises(TaskError, match="canonical solution gave error"):
        task.score(task.problems[0], "    return 1")


@pytest.mark.parametrize("suite", ["asserts", "check", "outputs"])
def test_the_canaries_sing(suite: str) -> None:
    code_canary.check_canaries(suite)


@pytest.mark.parametrize("status", ["pass", "wrong", "timeout", "sandbox"])
def test_a_scorer_that_misjudges_a_canary_writes_no_score(
    status: str, humaneval: HumanEval, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(code_canary, "run_jobs", lambda jobs: [Verdict(status)] * len(jobs))
    monkeypatch.setattr(code_score, "run_jobs", lambda jobs: pytest.fail("something was scored"))
    with pytest.raises(code_canary.ScorerError, match="nothing was scored"):
        humaneval.score(humaneval.problems[0], "    return b * h / 2")


@pytest.mark.parametrize("step", ["check_canaries", "run_jobs"])
def test_an_error_of_the_machine_is_none_of_a_program(
    step: str, humaneval: HumanEval, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(code_score, "check_canaries", lambda suite: None)
    monkeypatch.setattr(code_score, step, full)
    with pytest.raises(TaskError, match=r"cannot be judged here: .*No space left on device; TMPDIR names"):
        judge(humaneval, [(humaneval.problems[0], "    return b * h / 2")])


def test_a_failure_of_the_harness_judges_nothing(humaneval: HumanEval, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code_score, "check_canaries", lambda suite: None)
    monkeypatch.setattr(code_score, "run_jobs", lambda jobs: [Verdict("sandbox", "no processes left")] * len(jobs))
    score = humaneval.score(humaneval.problems[0], "    return b * h / 2")
    assert (score.correct, score.status, score.details["reason"]) == (None, "sandbox", "no processes left")


def test_equal_programs_are_judged_once(humaneval: HumanEval, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs: list[int] = []
    monkeypatch.setattr(code_score, "check_canaries", lambda suite: None)
    monkeypatch.setattr(code_score, "run_jobs", lambda given: jobs.append(len(given)) or [Verdict("pass")] * len(given))
    scores = humaneval.score_all([(humaneval.problems[0], "    return b * h / 2")] * 5)
    assert (jobs, [score.correct for score in scores]) == ([1], [True] * 5)


def test_what_the_harness_failed_to_judge_gets_a_second_try() -> None:
    answers = {"lost": [Verdict("sandbox"), Verdict("pass")], "endless": [Verdict("timeout")]}
    asked: list[str] = []

    def judge(job: Any, limits: Limits) -> Verdict:
        asked.append(job["program"])
        return answers[job["program"]].pop(0)

    verdicts = run_jobs([({"program": name}, Limits()) for name in answers], judge)
    assert [verdict.status for verdict in verdicts] == ["pass", "timeout"]
    assert sorted(asked) == ["endless", "lost", "lost"]


def test_scoring_changes_nothing_of_the_harness() -> None:
    import os
    import signal
    import threading

    before = (
        os.getcwd(),
        dict(os.environ),
        signal.getsignal(signal.SIGALRM),
        threading.active_count(),
        os.listdir("/proc/self/fd"),
    )
    run_jobs([(tri_area_job(function("import os", "os.chdir('/')", RIGHT)), Limits())] * 3)
    after = (
        os.getcwd(),
        dict(os.environ),
        signal.getsignal(signal.SIGALRM),
        threading.active_count(),
        os.listdir("/proc/self/fd"),
    )
    assert before == after


def test_a_scorer_may_take_the_completion_as_it_is(tmp_path: Path) -> None:
    """lm_eval's rule: no extraction, so prose around a right function fails."""
    source = write(tmp_path / "rows.jsonl", ROW)
    task = HumanEval(TaskConfig(name="humaneval", source=source, scorer="lm_eval"), False)
    body, fenced = task.score_all(
        [(task.problems[0], text) for text in ("    return b * h / 2", f"```\n{function(RIGHT)}```")]
    )
    assert (body.status, fenced.status) == ("pass", "syntax")
    assert task.scorer == "lm_eval"
    assert isinstance(task, HumanEval)
    assert Mbpp.scorers == ("lopa_bench", "lm_eval")


def test_pass_at_k_is_the_unbiased_estimate() -> None:
    assert pass_at(1, 5, 2) == pytest.approx(0.4)
    assert pass_at(2, 5, 2) == pytest.approx(0.7)
    assert pass_at(5, 3, 3) is None
    assert (pass_at(1, 1, 1), pass_at(1, 1, 0), pass_at(2, 1, 1)) == (1.0, 0.0, None)
    assert mean_pass_at(2, [(5, 2), (5, 0)]) == pytest.approx(0.35)
    assert mean_pass_at(5, [(5, 2), (3, 3)]) is None
