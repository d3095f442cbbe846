"""Whatever ends a run early, its exit status is not 0."""

from __future__ import annotations

from pathlib import Path

import pytest

from lopa_bench.records.reading import read_run, read_samples
from lopa_bench.system.signals import status_of
from tests.scripted import Runs, stop_at
from tests.warm import FAULTS, Warm

ASKED = {0: 1, None: 1, 1: 1, 3: 3, 255: 255, 256: 1, 512: 1, 259: 3, -1: 255, "text": 1, 2.5: 1}


@pytest.mark.parametrize(("asked", "status"), ASKED.items())
def test_the_status_of_an_early_end_is_what_was_asked_for_but_never_0(asked: object, status: int) -> None:
    assert status_of(SystemExit(asked)) == status


EARLY = {
    "early-exit": 1, "early-exit-256": 1, "early-exit-3": 3, "early-exit-text": 1, "early-generator-exit": 1,
    "early-cancelled": 1, "early-raise": 1, "early-memory": 1, "exit": 1, "exit-3": 3, "generator-exit": 1,
}  # fmt: skip


@pytest.mark.parametrize(("fault", "code"), EARLY.items())
def test_an_early_end_of_a_single_run_is_no_success(
    warm: Warm, settings: list[str], tmp_path: Path, fault: str, code: int
) -> None:
    faulty = ("task.name=faulty", f"task.shots_style={fault}", "task.limit=4", f"run.out={tmp_path}")
    done = warm.run(*settings, *faulty, env={"PYTHONPATH": str(FAULTS)})
    assert done.code == code
    assert '"run_id"' not in done.out, "no JSON line of a run that is not complete"
    if "exit" in fault.split("-")[:2] and "generator" not in fault:
        assert "was called inside the run; the run is not complete" in done.err
    if not fault.startswith("early"):
        (folder,) = (path for path in (tmp_path / "runs").iterdir() if path.is_dir())
        assert read_run(folder)["status"].to_pylist() == ["failed"]
        assert read_samples(folder).num_rows == 4


def test_an_engine_that_gives_too_few_samples_is_no_finished_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = Runs(tmp_path, monkeypatch)
    runs.before = stop_at(3, StopIteration())  # a decoder that ends too early
    with pytest.raises(RuntimeError):
        runs.run(5)
    assert read_run(runs.folder)["status"].to_pylist() == ["failed"]
    assert read_samples(runs.folder).num_rows == 3
