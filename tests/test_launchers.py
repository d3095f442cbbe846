"""Sweeps under the launchers and the sweeper of the extras, for real, on this machine.

Each needs its extra; in an environment without it, it is skipped. The last runs are in docs/sweeps.md. Slurm is a
stand-in that runs a batch script here; Ray is told of a GPU that is not there, which it hands out like a real one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml

from tests.extras import has_plugin
from tests.warm import FAULTS, ROOT

pytestmark = pytest.mark.slow


def needs(plugin: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(not has_plugin(plugin), reason=f"{plugin} is not installed")


# Three commands of Slurm, as far as submitit uses them. `srun` gets its own options and then the command.
SBATCH = """#!{python}
import os, re, subprocess, sys
script = sys.argv[-1]
first, last = map(int, re.search(r"--array=(\\d+)-(\\d+)", open(script).read()).groups())
for task in range(first, last + 1):
    job = {{"SLURM_JOB_ID": str(4712 + task), "SLURM_ARRAY_JOB_ID": "4711", "SLURM_ARRAY_TASK_ID": str(task)}}
    place = {{"SLURM_JOB_NODELIST": "here", "SLURM_JOB_NUM_NODES": "1", "SLURM_NODEID": "0"}}
    place |= {{"SLURM_NTASKS": "1", "SLURM_PROCID": "0", "SLURM_LOCALID": "0"}}
    silent = {{"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}}
    subprocess.Popen(["bash", script], env=os.environ | job | place, start_new_session=True, **silent)
print("Submitted batch job 4711")
"""
SRUN = '#!/bin/bash\nwhile [[ $1 == --* ]]; do [[ $1 == --output || $1 == --error ]] && shift; shift; done\nexec "$@"\n'
SACCT = "#!/bin/bash\necho 'JobID|State|NodeList'; for i in {0..9}; do echo \"4711_$i|RUNNING|here\"; done\n"


@pytest.fixture
def stand_in_for_slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, text in {"sbatch": SBATCH.format(python=sys.executable), "srun": SRUN, "sacct": SACCT}.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


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
        pytest.param("ray_gpu +hydra.launcher.ray.init.num_gpus=1", marks=needs("hydra_ray_launcher")),
        pytest.param("slurm", marks=needs("hydra_submitit_launcher")),
        pytest.param("submitit_local", marks=needs("hydra_submitit_launcher")),
        pytest.param("joblib", marks=needs("hydra_joblib_launcher")),
    ],
)
@pytest.mark.usefixtures("stand_in_for_slurm")
def test_shards_under_a_launcher_are_told_apart_and_add_up(launcher: str, settings: list[str], tmp_path: Path) -> None:
    shards = ("-m", *settings, "task.limit=5", *f"hydra/launcher={launcher}".split(), "run.shard=0/2,1/2")
    done, jobs = sweep(*shards, out=tmp_path / "shards")
    assert done.returncode == 0
    assert [job["status"] for job in jobs] == ["finished", "finished"]
    assert sorted(job["n"] for job in jobs) == [2, 3]
    (union,) = json.loads(done.stdout.splitlines()[-1])["table"]
    assert (union["n"], union["run_id"].endswith(" and 1 other shards")) == (5, True)
    if launcher == "slurm":
        (script,) = (tmp_path / "shards").rglob("*_submission.sh")
        asked = script.read_text()
        for option in ("gpus-per-node=1", "cpus-per-task=8", "time=720", "signal=USR2@120", "array=0-1%"):
            assert f"#SBATCH --{option}" in asked

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
