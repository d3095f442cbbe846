"""Sweeps under the launchers and the sweeper of the extras, for real, on this machine.

Each needs its extra; in an environment without it, it is skipped. The last runs are in docs/sweeps.md.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml

from tests.warm import FAULTS, ROOT

pytestmark = pytest.mark.slow


def needs(plugin: str) -> pytest.MarkDecorator:
    found = importlib.util.find_spec("hydra_plugins")
    missing = found is None or importlib.util.find_spec(f"hydra_plugins.{plugin}") is None
    return pytest.mark.skipif(missing, reason=f"{plugin} is not installed")


def sweep(*arguments: str, out: Path) -> tuple[subprocess.CompletedProcess[str], list[dict[str, Any]]]:
    done = subprocess.run(
        [sys.executable, "-m", "lopa_bench", *arguments, f"run.out={out}"], cwd=ROOT, text=True, capture_output=True,
        env=os.environ | {"PYTHONPATH": str(FAULTS)}, timeout=900,
    )  # fmt: skip
    print(done.stdout, done.stderr, sep="\n")
    (record,) = (out / "sweeps").glob("*/sweep.parquet")
    return done, pq.ParquetFile(record).read().to_pylist()


@pytest.mark.parametrize(
    "launcher",
    [
        pytest.param("ray", marks=needs("hydra_ray_launcher")),
        pytest.param("submitit_local", marks=needs("hydra_submitit_launcher")),
        pytest.param("joblib", marks=needs("hydra_joblib_launcher")),
    ],
)
def test_shards_under_a_launcher_are_told_apart_and_add_up(launcher: str, settings: list[str], tmp_path: Path) -> None:
    shards = ("-m", *settings, "task.limit=5", f"hydra/launcher={launcher}", "run.shard=0/2,1/2")
    done, jobs = sweep(*shards, out=tmp_path / "shards")
    assert done.returncode == 0
    assert [job["status"] for job in jobs] == ["finished", "finished"]
    assert sorted(job["n"] for job in jobs) == [2, 3]
    (union,) = json.loads(done.stdout.splitlines()[-1])["table"]
    assert (union["n"], union["run_id"]) == (5, "2 shards")

    faults = "task.shots_style=fine,early-raise,early-_exit,kill"
    done, jobs = sweep(*shards[:-1], "task.name=faulty", faults, out=tmp_path / "faults")
    assert done.returncode == 1
    assert [job["status"] for job in jobs] == ["finished", "failed", "vanished", "killed"]


@needs("hydra_optuna_sweeper")
def test_optuna_looks_for_the_fastest_settings_that_are_right_often_enough(settings: list[str], tmp_path: Path) -> None:
    arguments = [text for text in settings if not text.startswith("decoder.k")]
    done, jobs = sweep(
        "+experiment=search_tpf", *arguments, "task.limit=4", "objective.accuracy=0", "hydra.sweeper.n_trials=3",
        out=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0
    assert [job["status"] for job in jobs] == ["finished"] * 3
    (path,) = (tmp_path / "sweeps").glob("*/optimization_results.yaml")
    assert yaml.safe_load(path.read_text())["best_value"] == pytest.approx(max(job["tpf"] for job in jobs))
