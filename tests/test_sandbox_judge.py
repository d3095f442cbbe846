"""What a judge that dies, or never answers, says of the program that it judged."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest

from tasks.sandbox import runner
from tasks.sandbox.outputs import OutputsError, OutputWriter, read_outputs
from tasks.sandbox.runner import Limits, Verdict, run_job
from tests.sandbox_modes import FINE


def verdict_of(code: str, monkeypatch: pytest.MonkeyPatch) -> Verdict:
    """Of a judge that runs this code instead."""
    monkeypatch.setattr(runner, "JUDGE", "import os, signal, sys, time\nsys.stdin.read()\n" + code)
    return run_job(FINE, Limits())


STARTED = "os.write(1, b'started\\n')\n"


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("os.kill(os.getpid(), 9)", "sandbox"), (STARTED + "os.kill(os.getpid(), 9)", "error"),
        ("raise OSError", "sandbox"), (STARTED + "raise OSError", "error"),
        (STARTED + "print('{\"status\": \"pa')", "error"), (STARTED + "print('[]')", "error"),
        (STARTED + "print('{\"status\": \"pass\"}')", "pass"), ("print('{\"status\": \"sandbox\"}')", "sandbox"),
        (STARTED + "os.kill(os.getpid(), signal.SIGXCPU)", "timeout"),
        ("os.kill(os.getpid(), signal.SIGXCPU)", "sandbox"),
    ],
)  # fmt: skip
def test_a_judge_that_fails_after_the_program_began_was_made_to_fail(
    code: str, status: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert verdict_of(code, monkeypatch).status == status


def test_a_program_whose_judge_failed_is_judged_again_alone() -> None:
    """Another program may have been the one that made it fail."""
    answers = [Verdict("error", judge_failed=True), Verdict("pass"), Verdict("error")]
    given = iter(answers)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runner, "cores", lambda: 1)
        verdicts = runner.run_jobs([(FINE, Limits()), (FINE, Limits())], lambda *_: next(given))
    assert [verdict.status for verdict in verdicts] == ["error", "pass"]
    assert not verdicts[0].judge_failed


@pytest.mark.parametrize(("code", "status"), [("", "sandbox"), (STARTED, "timeout")])
def test_so_was_one_that_never_answers(code: str, status: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "BACKSTOP_S", 1.0 - 4 * Limits().wall_s)
    assert verdict_of(code + "time.sleep(60)", monkeypatch).status == status


@pytest.mark.parametrize("damage", ["short", "cut", "bytes", "absent"])
def test_expected_outputs_that_cannot_be_read_are_the_harness_own_failure(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "outputs.gz"
    with OutputWriter(str(path)) as writer:
        for number in range(200):
            writer.add(b"V", str(number**40).encode())
    data = path.read_bytes()
    assert [one.payload for one, _ in zip(read_outputs(str(path)), range(3), strict=False)] == [
        b"0",
        b"1",
        b"1099511627776",
    ]
    if damage == "absent":
        path.unlink()
    elif damage != "short":
        path.write_bytes(data[: len(data) // 2] if damage == "cut" else data[:99] + bytes(200) + data[299:])
    with pytest.raises(OutputsError):
        for _ in read_outputs(str(path)):
            pass


def test_the_judge_computes_no_longer_than_the_program_had_left() -> None:
    before = resource.getrlimit(resource.RLIMIT_CPU)
    code = (
        "import resource, time\nfrom tasks.sandbox import patience\nfrom tasks.sandbox.ended import Ended\n"
        "patience.LEAST_S, patience.GRACE_S = 0.05, 0.05\nstart = time.process_time()\n"
        "try:\n    with patience.limited(0.1):\n        while True: pass\n"
        "except Ended as end: print(end.status, 0.1 < time.process_time() - start < 0.5)\n"
        "print(resource.getrlimit(resource.RLIMIT_CPU)[0])\n"
    )
    root = Path(runner.ROOT)
    run = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert run.stdout.split("\n")[:2] == ["timeout True", str(before[1])]
