"""Tracking is offline first, optional, and cannot harm a run."""

from __future__ import annotations

import logging
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from lopa_bench.metrics.aggregate import aggregate
from lopa_bench.records.reading import read_samples
from lopa_bench.records.schema import to_table
from lopa_bench.settings.tracker import PACKAGES, TrackerConfig
from lopa_bench.system.bounded import bounded
from lopa_bench.tracking import tracker as tracking
from lopa_bench.tracking.board import TensorboardTracker
from lopa_bench.tracking.making import make_tracker
from lopa_bench.tracking.mlflow import MlflowTracker
from lopa_bench.tracking.sweep import track_sweep
from lopa_bench.tracking.tracker import Tracker, WandbTracker, step_histogram
from tests.test_records import measured, run_row, sample, step
from tests.warm import Warm

ROWS = [sample(0), sample(1, correct=False, completion="x" * 10_000), sample(2, finish_reason="error", correct=None)]
CONF = Path(__file__).parents[1] / "conf" / "tracker"


@pytest.fixture(autouse=True)
def no_wandb_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("WANDB_MODE", "WANDB_API_KEY", "WANDB_BASE_URL", "WANDB_DIR", "WANDB_PROJECT"):
        monkeypatch.delenv(name, raising=False)


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


@pytest.mark.parametrize("path", sorted(CONF.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_yaml_makes_its_tracker(path: Path, tmp_path: Path) -> None:
    config = TrackerConfig(**yaml.safe_load(path.read_text()))
    if config.name in PACKAGES and find_spec(config.name) is None:
        pytest.skip(f"{config.name} is not installed ([{config.name}])")
    tracker = make_tracker(config, tmp_path)
    assert config.name == path.stem
    kinds = {"none": Tracker, "wandb": WandbTracker, "mlflow": MlflowTracker, "tensorboard": TensorboardTracker}
    assert type(tracker) is kinds[path.stem]
    if isinstance(tracker, WandbTracker):
        assert tracker.mode == "offline"


def test_wrong_settings_name_the_right_ones(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="none, wandb, mlflow, tensorboard"):
        make_tracker(TrackerConfig(name="comet"), tmp_path)
    with pytest.raises(ValueError, match="offline, online, disabled"):
        make_tracker(TrackerConfig(name="wandb", mode="of"), tmp_path)


def test_a_run_is_tracked_offline_and_can_be_synced_later(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    random.seed(0)
    np.random.seed(0)
    before = random.getstate(), str(np.random.get_state())
    with caplog.at_level(logging.WARNING):
        follow(WandbTracker(dir=tmp_path))
    assert (random.getstate(), str(np.random.get_state())) == before  # results cannot depend on it
    assert not caplog.records
    (folder,) = (tmp_path / "wandb").glob("offline-run-*")
    (record,) = folder.glob("*.wandb")
    wait_until(lambda: b"running/tpf" in record.read_bytes())  # W&B's own process writes it
    assert list(folder.rglob("samples*.table.json"))
    out, err = capfd.readouterr()
    assert out == ""  # stdout belongs to the table and the JSON line
    assert f"wandb sync {folder}" in err


@pytest.mark.parametrize("broken", ["init", "log", "finish"])
def test_a_failing_wandb_costs_one_warning_and_not_the_run(
    broken: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    import wandb

    run = _FakeRun()
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

    run, back = _FakeRun(), threading.Event()

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

    run = _FakeRun()
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


def test_live_numbers_summary_name_group_and_what_was_varied_reach_wandb(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import wandb

    run, asked = _FakeRun(), {}
    monkeypatch.setattr(wandb, "init", lambda **options: asked.update(options) or run)
    settings = TrackerConfig("wandb", "offline", "project", "sweep-1", "task=gsm8k decoder.tau_conf=0.9")
    tracker = make_tracker(settings, tmp_path)
    tracker.start(run_row(run_id="r", model="a[/b]"))
    tracker.sample(sample(0))
    tracker.sample(sample(1, correct=False, content_tokens=21))
    tracker.finish({"tpf": 2.0, "tps": 8.0, "accuracy": 0.5, "pass_at": None}, {})
    assert (asked["project"], asked["group"], asked["mode"]) == ("project", "sweep-1", "offline")
    assert (asked["id"], asked["name"]) == ("r", "task=gsm8k decoder.tau_conf=0.9 r")
    assert asked["config"]["varied"] == "task=gsm8k decoder.tau_conf=0.9"
    assert (asked["config"]["model"], asked["config"]["config"]) == ("a[/b]", {"decoder": {"k": 8}})
    assert run.logged[1] == {
        "running/accuracy": 0.5, "running/tpf": 2.0, "running/tps": 8.0, "running/errors": 0,
        "sample/content_tokens": 21, "sample/forwards": 8, "sample/total_s": 2.0,
    }  # fmt: skip
    assert run.summary == {"tpf": 2.0, "tps": 8.0, "accuracy": 0.5, "varied": "task=gsm8k decoder.tau_conf=0.9"}
    assert run.exit_code == 0


def test_a_name_or_a_group_of_any_length_and_any_folder_name_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import wandb

    asked: dict[str, Any] = {}
    monkeypatch.setattr(wandb, "init", lambda **options: asked.update(options) or _FakeRun())
    WandbTracker(dir=tmp_path, group="g" * 500, varied="v" * 500).start(run_row(run_id="my [sweep]: a/b"))
    assert (len(asked["group"]), len(asked["name"])) == (128, 128)
    assert asked["id"] == "my-sweep-a-b"


def test_a_failed_run_is_marked_as_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import wandb

    run = _FakeRun()
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
        [sys.executable, "-c", code], env=environment, cwd=CONF.parents[1], timeout=60, text=True,
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

    run = _FakeRun()
    monkeypatch.setattr(wandb, "init", lambda **_: run)
    monkeypatch.setattr(run, "log", lambda _: time.sleep(1000))
    monkeypatch.setattr(tracking, "LOG_SECONDS", 0.1)
    began = time.monotonic()
    follow(WandbTracker(dir=tmp_path))
    assert time.monotonic() - began < 5
    assert "no answer within 0.1 s" in caplog.text
    assert 2 * tracking.WAIT_SECONDS < 30


def test_a_run_that_is_resumed_is_tracked_under_a_number_of_its_own(tmp_path: Path) -> None:
    tracker = WandbTracker(dir=tmp_path)
    assert tracker._id("r") == "r"
    (tmp_path / "wandb" / "offline-run-20260131_142233-r").mkdir(parents=True)
    assert tracker._id("r") == "r-2"


def test_a_whole_run_is_tracked_offline_and_is_the_same_as_without(
    warm: Warm, settings: list[str], tmp_path: Path
) -> None:
    plain = warm.run(*settings, "task.limit=3", f"run.out={tmp_path}/plain")
    tracked = warm.run(*settings, "task.limit=3", f"run.out={tmp_path}/tracked", "tracker=wandb")
    assert tracked.code == 0
    ids = [read_samples(done.values["path"])["token_ids"].to_pylist() for done in (plain, tracked)]
    assert ids[0] == ids[1]
    (folder,) = Path(tracked.values["path"]).glob("wandb/offline-run-*")
    assert f"wandb sync {folder}" in tracked.err
    (record,) = folder.glob("*.wandb")
    for name in (b"running/tpf", b"winning_branch", b"tokens_per_step", b"samples"):
        wait_until(lambda name=name: name in record.read_bytes())  # type: ignore[misc]


def test_a_sweep_has_a_run_of_its_own_with_branch_scaling_curves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import wandb

    run, asked = _FakeRun(), {}
    monkeypatch.setattr(wandb, "init", lambda **options: asked.update(options) or run)
    logged: dict[str, Any] = {}
    monkeypatch.setattr(run, "log", logged.update)
    numbers = {"tpf": 3.0, "tps": 5.0, "accuracy": 0.5, "n": 3}
    runs: Any = [measured(numbers, k=k, run_id=f"r{k}") for k in ("0", "4")]
    track_sweep(TrackerConfig(name="wandb"), tmp_path / "sweep-1", runs)
    assert (asked["group"], asked["id"], asked["config"]["runs"]) == ("sweep-1", "sweep-1", ["r0", "r4"])
    assert sorted(logged) == ["accuracy_over_k", "runs", "tpf_over_k", "tps_over_k"]
    assert run.exit_code == 0


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


def test_steps_are_counted_by_the_tokens_they_fill() -> None:
    counts, edges = step_histogram(tables()["steps"])
    assert counts.tolist() == [0, 0, 3]
    assert edges.tolist() == [-0.5, 0.5, 1.5, 2.5]


def test_nothing_is_imported_that_is_not_used() -> None:
    script = (
        "import sys, lopa_bench.tracking.tracker, lopa_bench.console.report; "
        "print('wandb' in sys.modules, 'rich' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


class _FakeRun:
    def __init__(self) -> None:
        self.summary: dict[str, Any] = {}
        self.settings = type("Settings", (), {"sync_dir": "somewhere"})
        self.exit_code: int | None = None
        self.logged: list[dict[str, Any]] = []

    def log(self, values: dict[str, Any]) -> None:
        self.logged.append(values)

    def finish(self, exit_code: int) -> None:
        self.exit_code = exit_code


def _raise(*_: Any, **__: Any) -> None:
    raise OSError("no space left on device")
