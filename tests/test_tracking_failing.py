"""A service that fails, hangs, ends the process or answers late cannot harm a run."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from lopa_bench.metrics.aggregate import aggregate
from lopa_bench.system.bounded import bounded
from lopa_bench.tracking import tracker as tracking
from lopa_bench.tracking.tracker import WandbTracker
from tests.import_graph import ROOT
from tests.test_records import run_row, sample
from tests.tracked import ROWS, FakeRun, follow, tables, wait_until

pytestmark = pytest.mark.usefixtures("no_wandb_settings")


@pytest.mark.parametrize("broken", ["init", "log", "finish"])
def test_a_failing_wandb_costs_one_warning_and_not_the_run(
    broken: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    import wandb

    run = FakeRun()
    monkeypatch.setattr(wandb, "init", lambda **_: run)
    target: Any = wandb if broken == "init" else run
    monkeypatch.setattr(target, broken, _raise)
    with caplog.at_level(logging.WARNING):
        follow(WandbTracker(dir=tmp_path))
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "no space left" in caplog.text
    assert "goes on without it" in caplog.text


@pytest.mark.parametrize("slow", ["init", "log", "finish"])
def test_what_was_given_up_logs_nothing_when_it_comes_back_and_ends_as_failed(
    slow: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    import wandb

    run, back = FakeRun(), threading.Event()

    def wait(*_: Any, **__: Any) -> Any:
        assert back.wait(60)
        return run

    monkeypatch.setattr(wandb, "init", wait if slow == "init" else lambda **_: run)
    if slow == "log":
        monkeypatch.setattr(run, "log", wait)
    monkeypatch.setattr(tracking, "WAIT_SECONDS", 0.2 if slow == "init" else 10.0)
    monkeypatch.setattr(tracking, "LOG_SECONDS", 0.2)
    tracker = WandbTracker(dir=tmp_path)
    tracker.start(run_row())
    tracker.sample(ROWS[0])
    logged = list(run.logged)
    if slow == "finish":
        monkeypatch.setattr(tracking, "WAIT_SECONDS", 0.2)
        monkeypatch.setattr(tracking, "sample_rows", lambda _: wait() and [])
        tracker.finish(aggregate(tables()["samples"]), tables())
    back.set()
    wait_until(lambda: run.exit_code is not None)
    tracker.sample(ROWS[1])
    tracker.finish(aggregate(tables()["samples"]), tables())
    assert run.logged == logged
    assert (run.exit_code, run.summary) == (1, {"failed": "given up: W&B took too long or failed"})
    assert [record.getMessage() for record in caplog.records] == [
        f"W&B could not {'start' if slow == 'init' else slow} (no answer within 0.2 s); this run goes on without it"
    ]


def test_after_an_error_the_rest_of_a_run_is_not_tracked_and_wandb_calls_it_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import wandb

    run = FakeRun()
    monkeypatch.setattr(wandb, "init", lambda **_: run)
    tracker = WandbTracker(dir=tmp_path)
    tracker.start(run_row())
    with monkeypatch.context() as patch:
        patch.setattr(run, "log", _raise)
        tracker.sample(ROWS[0])
    tracker.sample(ROWS[1])
    tracker.finish({"tpf": 3.0}, tables())
    assert (run.logged, run.exit_code, "tpf" in run.summary) == ([], 1, False)


def test_a_library_that_wants_to_end_the_process_ends_only_the_tracking(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    import wandb

    monkeypatch.setattr(wandb, "init", lambda **_: sys.exit(0))
    follow(WandbTracker(dir=tmp_path))
    assert "W&B could not start (SystemExit: 0)" in caplog.text


def test_a_failed_run_is_marked_as_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import wandb

    run = FakeRun()
    monkeypatch.setattr(wandb, "init", lambda **_: run)
    tracker = WandbTracker(dir=tmp_path)
    tracker.start(run_row())
    tracker.fail("out of memory")
    tracker.sample(sample())  # too late, and harmless
    assert (run.exit_code, run.summary) == (1, {"failed": "out of memory"})


@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
def test_online_without_a_key_never_asks_for_one(tmp_path: Path) -> None:
    """On a terminal W&B would ask; here it fails at once, and the exit code stays that of the run."""
    script = (
        "import os, pty, sys; sys.path.insert(0, os.getcwd())\n"
        "from lopa_bench.tracking.tracker import WandbTracker; from tests.test_records import run_row\n"
        f"tracker = WandbTracker('online', dir={str(tmp_path)!r}); tracker.start(run_row()); print('went on')\n"
    )
    environment = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "WANDB_BASE_URL": "http://127.0.0.1:9"}
    code = f"import pty, sys; sys.exit(pty.spawn([sys.executable, '-c', {script!r}]) >> 8)"
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, cwd=ROOT, timeout=60, text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=False,
    )  # fmt: skip
    assert "went on" in done.stdout
    assert "W&B could not start" in done.stdout
    assert "choice" not in done.stdout
    assert done.returncode == 0


def test_a_server_that_never_answers_holds_a_run_up_for_less_than_30_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    import wandb

    run = FakeRun()
    monkeypatch.setattr(wandb, "init", lambda **_: run)
    monkeypatch.setattr(run, "log", lambda _: time.sleep(1000))
    monkeypatch.setattr(tracking, "LOG_SECONDS", 0.1)
    began = time.monotonic()
    follow(WandbTracker(dir=tmp_path))
    assert time.monotonic() - began < 5
    assert "no answer within 0.1 s" in caplog.text
    assert 2 * tracking.WAIT_SECONDS < 30


def test_what_comes_back_after_the_deadline_is_closed_and_not_taken() -> None:
    answer, closed = threading.Event(), threading.Event()
    late: list[object] = []

    def close(what: object) -> None:
        late.append(what)
        closed.set()

    with pytest.raises(TimeoutError, match=r"no answer within 0\.01 s"):
        bounded(lambda: answer.wait(9) and "a run", 0.01, late=close)
    answer.set()
    assert closed.wait(9)
    assert late == ["a run"]


def test_what_comes_back_in_time_is_taken() -> None:
    assert bounded(lambda: "a run", 9, late=lambda what: pytest.fail(f"{what} is not late")) == "a run"


def _raise(*_: Any, **__: Any) -> None:
    raise OSError("no space left on device")
