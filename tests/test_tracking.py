"""Tracking is offline first and optional: what reaches a service, under which name, and that it changes no run."""

from __future__ import annotations

import logging
import random
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from lopa_bench.records.reading import read_samples
from lopa_bench.settings.tracker import PACKAGES, TrackerConfig
from lopa_bench.tracking.board import TensorboardTracker
from lopa_bench.tracking.making import make_tracker
from lopa_bench.tracking.mlflow import MlflowTracker
from lopa_bench.tracking.sweep import track_sweep
from lopa_bench.tracking.tracker import Tracker, WandbTracker, step_histogram
from tests.import_graph import ROOT
from tests.test_records import measured, run_row, sample
from tests.tracked import FakeRun, follow, tables, wait_until
from tests.warm import Warm

CONF = ROOT / "conf" / "tracker"

pytestmark = pytest.mark.usefixtures("no_wandb_settings")


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


def test_live_numbers_summary_name_group_and_what_was_varied_reach_wandb(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import wandb

    run, asked = FakeRun(), {}
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
    monkeypatch.setattr(wandb, "init", lambda **options: asked.update(options) or FakeRun())
    WandbTracker(dir=tmp_path, group="g" * 500, varied="v" * 500).start(run_row(run_id="my [sweep]: a/b"))
    assert (len(asked["group"]), len(asked["name"])) == (128, 128)
    assert asked["id"] == "my-sweep-a-b"


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
    names = (b"running/tpf", b"winning_branch", b"tokens_per_step", b"samples")
    wait_until(lambda: all(name in record.read_bytes() for name in names))


def test_a_sweep_has_a_run_of_its_own_with_branch_scaling_curves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import wandb

    run, asked = FakeRun(), {}
    monkeypatch.setattr(wandb, "init", lambda **options: asked.update(options) or run)
    logged: dict[str, Any] = {}
    monkeypatch.setattr(run, "log", logged.update)
    numbers = {"tpf": 3.0, "tps": 5.0, "accuracy": 0.5, "n": 3}
    runs: Any = [measured(numbers, k=k, run_id=f"r{k}") for k in ("0", "4")]
    track_sweep(TrackerConfig(name="wandb"), tmp_path / "sweep-1", runs)
    assert (asked["group"], asked["id"], asked["config"]["runs"]) == ("sweep-1", "sweep-1", ["r0", "r4"])
    assert sorted(logged) == ["accuracy_over_k", "runs", "tpf_over_k", "tps_over_k"]
    assert run.exit_code == 0


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
