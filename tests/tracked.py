"""A run as a tracker is told it, and a W&B that keeps what it is told."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from lopa_bench.metrics.aggregate import aggregate
from lopa_bench.records.schema import to_table
from tests.test_records import run_row, sample, step

ROWS = [sample(0), sample(1, correct=False, completion="x" * 10_000), sample(2, finish_reason="error", correct=None)]


def tables() -> dict[str, Any]:
    key = {"run_id": "r", "problem_id": "p0", "sample_index": 0}
    return {"samples": to_table("samples", ROWS), "steps": to_table("steps", [step(i) | key for i in range(3)])}


def follow(tracker: Any) -> None:
    """A whole run, as the runner tells it."""
    tracker.start(run_row(run_id="20260131-142233-gsm8k-mini-lopa-k8-3f9a"))
    for row in ROWS:
        tracker.sample(row)
    tracker.finish(aggregate(tables()["samples"]), tables())


def wait_until(condition: Callable[[], bool], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


class FakeRun:
    def __init__(self) -> None:
        self.summary: dict[str, Any] = {}
        self.settings = type("Settings", (), {"sync_dir": "somewhere"})
        self.exit_code: int | None = None
        self.logged: list[dict[str, Any]] = []

    def log(self, values: dict[str, Any]) -> None:
        self.logged.append(values)

    def finish(self, exit_code: int) -> None:
        self.exit_code = exit_code
