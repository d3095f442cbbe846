"""keep_model=true: a job that has finished hands its process and its model to the next, and nothing else."""

from __future__ import annotations

import gc
import re
import weakref
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lopa_bench.engines import kept as models
from lopa_bench.engines.kept import is_there, kept
from lopa_bench.plan.plan import Plan
from lopa_bench.settings.backend import LocalSettings
from tests.test_sweep import FAULTY, record, start
from tests.test_workers import rows
from tests.test_workers_killed import folder_of
from tests.warm import FAULTS, Warm


@pytest.fixture(autouse=True)
def nothing_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "_last", {})


class Model:
    pass


def plan(keep_model: bool = True, batch: int = 1, weights: str = "a", dtype: str = "auto", **backend: Any) -> Plan:
    config = SimpleNamespace(keep_model=keep_model, backend=LocalSettings(**backend), run=SimpleNamespace(batch=batch))
    facts = {"model": {"dtype": dtype, "quantize": None, "weights_sha256": weights}}
    return SimpleNamespace(config=config, identity=SimpleNamespace(facts=facts))  # type: ignore[return-value]


def test_the_same_model_is_loaded_once() -> None:
    first = kept(plan(), Model)
    assert is_there(plan())
    assert kept(plan(), Model) is first


OTHERS = [{"weights": "b"}, {"dtype": "bfloat16"}, {"device": "cuda:1"}, {"batch": 8}, {"attention": "fused"}]


@pytest.mark.parametrize("other", OTHERS, ids=str)
def test_another_model_backend_or_file_is_loaded_anew_and_never_beside_the_one_before(other: dict[str, Any]) -> None:
    before = weakref.ref(kept(plan(), Model))

    def load() -> Model:
        gc.collect()
        assert before() is None
        return Model()

    assert not is_there(plan(**other))
    again = kept(plan(**other), load)
    assert kept(plan(**other), Model) is again
    assert not is_there(plan())


def test_without_the_setting_nothing_is_kept() -> None:
    assert kept(plan(keep_model=False), Model) is not kept(plan(keep_model=False), Model)
    assert not is_there(plan(keep_model=False))


def test_the_rows_are_those_of_processes_of_their_own_and_no_job_harms_another(
    warm: Warm, settings: list[str], tmp_path: Path
) -> None:
    faults = ("fine", "2nd", "early-raise", "3rd", "early-kill", "4th", "early-_exit")
    process = start(
        "-m", *settings, *FAULTY, f"task.shots_style={','.join(faults)}", "keep_model=true", f"run.out={tmp_path}"
    )
    _, err = process.communicate(timeout=600)
    assert process.returncode == 1, err
    jobs = record(tmp_path)
    assert [job["status"] for job in jobs] == [
        "finished", "finished", "failed", "finished", "killed", "finished", "vanished",
    ]  # fmt: skip
    logs = [(Path(job["folder"]) / "job.log").read_text() for job in jobs]
    pids = [re.search(r"made by process (\d+)", log)[1] for log in logs]  # type: ignore[index]
    assert pids[0] == pids[1] == pids[2] != pids[3] == pids[4] != pids[5] == pids[6]
    assert "RuntimeError: this fault was asked for" in logs[2]
    assert all(f"[{number}] loading" in err for number in (0, 1, 3, 5))

    settings = [*settings, *FAULTY, "task.shots_style=fine", f"run.out={tmp_path / 'alone'}"]
    alone = warm.run(*settings, env={"PYTHONPATH": str(FAULTS)})
    assert alone.code == 0, alone.err
    expected = rows(folder_of(tmp_path / "alone"))
    for job in jobs:
        if job["status"] == "finished":
            assert rows(Path(job["path"])) == expected
