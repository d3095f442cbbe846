"""Three programs whose verdicts are known. A scorer that misjudges one of them judges nothing."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from tasks.sandbox import Limits, run_jobs
from tasks.types import TaskError

GOOD = "def tri_area(b, h):\n    return b * h / 2\n"
BAD = "def tri_area(b, h):\n    return b * h\n"
ENDLESS = "def tri_area(b, h):\n    while True:\n        pass\n"
EXPECTED = {GOOD: "pass", BAD: "wrong", ENDLESS: "timeout"}
LIMITS = Limits(cpu_s=1.0, wall_s=10.0)
INPUTS = ["[4,3]", "[0,9]"]


class ScorerError(TaskError):
    """The scorer cannot be trusted on this machine; nothing was scored."""


def check_canaries(suite: str) -> None:
    with tempfile.TemporaryDirectory(prefix="lopa_bench_") as folder:
        path = str(Path(folder) / "canary.gz")
        if suite == "outputs":
            _judge("record", {GOOD: "pass"}, path)
        _judge(suite, EXPECTED, path)


def _judge(suite: str, expected: dict[str, str], path: str) -> None:
    verdicts = run_jobs([(_job(suite, program, path), LIMITS) for program in expected])
    for program, wanted, verdict in zip(expected, expected.values(), verdicts, strict=True):
        if verdict.status != wanted:
            kind = {GOOD: "good", BAD: "bad", ENDLESS: "endless"}[program]
            raise ScorerError(
                f"the scorer is not to be trusted here: a program known to be {kind} gave {verdict.status!r} instead "
                f"of {wanted!r} ({verdict.detail[-600:] or 'no reason given'}); nothing was scored"
            )


def _job(suite: str, program: str, path: str) -> dict[str, Any]:
    """One job that holds what any of the suites reads."""
    part = {"name": "base", "inputs": INPUTS, "cpu_s": [0.8, 0.8]}
    return {
        "suite": suite,
        "program": program,
        "entry_point": "tri_area",
        "names": ["tri_area"],
        "optional_names": [],
        "setup": [],
        "gold": GOOD,
        "tests": ["assert tri_area(4, 3) == 6", "assert tri_area(0, 9) == 0"],
        "helpers": "",
        "test": "def check(candidate):\n    assert candidate(4, 3) == 6\n    assert candidate(0, 9) == 0\n",
        "family": "humaneval",
        "atol": 0.0,
        "parts": [part],
        "expected": path,
        "skip_errors": False,
    }
