"""A run on several devices: the rows of one process, whoever decoded what and whichever workers ended on the way."""

from __future__ import annotations

import json
import re
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lopa_bench.errors import CheckpointError, WorkerError
from lopa_bench.plan.units import Unit
from lopa_bench.records.reading import read_run, read_samples, read_steps
from lopa_bench.records.runs import Run
from lopa_bench.run.workers import pool, worker
from tests.worker_threads import ENDED, Dies, SharedRuns, ThreadCrew, this_worker

TIMES = ("wall_s", "prefill_s", "decode_s", "total_s", "workers", "machine", "run_id")


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SharedRuns:
    return SharedRuns(tmp_path, monkeypatch)


def rows(folder: Path) -> dict[tuple[str, int], dict[str, Any]]:
    """All but what may differ between two runs of the same."""
    found = {(row["problem_id"], row["sample_index"]): row for row in read_samples(folder).to_pylist()}
    return {key: {name: value for name, value in row.items() if name not in TIMES} for key, row in found.items()}


def steps(folder: Path) -> list[dict[str, Any]]:
    table = [{**step, "run_id": "", "seconds": None} for step in read_steps(folder).to_pylist()]
    return sorted(table, key=lambda step: (step["problem_id"], step["sample_index"], step["step"]))


def workers(folder: Path) -> list[int]:
    return [row["workers"] for row in read_samples(folder).to_pylist()]


def recorded_in(folder: Path) -> Any:
    """How many workers the run row names."""
    return json.loads(read_run(folder)["host"].to_pylist()[0])["workers"]


def recorded(result: Run) -> Any:
    return recorded_in(result.folder)


def die_at(problem: int, *, times: int = 1) -> Any:
    """The first workers that are handed this problem die of it."""
    deaths, lock = [], threading.Lock()

    def before(unit: Unit) -> None:
        with lock:
            if unit.index == problem and len(deaths) < times:
                deaths.append(this_worker())
                raise Dies

    return before


def test_the_rows_do_not_depend_on_the_number_of_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = SharedRuns(tmp_path / "1", monkeypatch)
    alone = runs.share(None)
    for devices in ("1", "cpu:3"):
        runs.out = tmp_path / devices
        shared = runs.share(devices)
        assert rows(shared.folder) == rows(alone.folder)
        assert steps(shared.folder) == steps(alone.folder)
        assert shared.row["key"] == alone.row["key"]
    assert len(rows(alone.folder)) == 12
    assert (recorded(alone), set(workers(alone.folder))) == ([1], {1})
    assert alone.row["aggregates"]["workers"] == {"1": 12}


def test_each_worker_takes_the_next_problem_when_it_is_done_and_the_records_say_how_many_there_were(
    runs: SharedRuns,
) -> None:
    taken: dict[int, list[int]] = {0: [], 1: []}

    def before(unit: Unit) -> None:
        taken[this_worker()].append(unit.index)
        time.sleep(0.2 if this_worker() == 0 else 0.002)

    runs.before = before
    shared = runs.share("2")
    assert sorted(taken[0] + taken[1]) == list(range(12))
    assert len(taken[0]) < 3  # a share that is handed out at the start would be six
    assert (recorded(shared), set(workers(shared.folder))) == ([2], {2})
    assert shared.row["aggregates"]["workers"] == {"2": 12}


def test_no_more_workers_are_started_than_there_are_samples(runs: SharedRuns) -> None:
    shared = runs.share("4", limit=2)
    assert (recorded(shared), set(workers(shared.folder))) == ([2], {2})
    assert len(runs.engines) == 2


def test_what_a_worker_had_when_it_died_is_done_by_another(
    runs: SharedRuns, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    alone = runs.share(None)
    runs.out, runs.before = tmp_path / "shared", die_at(5)
    shared = runs.share("3")
    assert rows(shared.folder) == rows(alone.folder)
    said = capsys.readouterr().err
    assert f"(cpu) {ENDED}; what it was at is redone: " in said
    assert "2 of 3 workers go on" in said
    assert set(workers(shared.folder)) <= {3, 2}
    assert recorded(shared) in ([2, 3], [2])


def test_when_all_workers_are_dead_the_rows_are_kept_and_any_number_goes_on(
    runs: SharedRuns, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    die = die_at(7, times=2)

    def before(unit: Unit) -> None:
        time.sleep(0.1 * (unit.index > 7))  # so that three are left for three workers
        die(unit)

    runs.before = before
    with pytest.raises(WorkerError) as error:
        runs.share("2")
    message = str(error.value)
    assert message.startswith("no worker is left: worker ")
    assert message.count(f"(cpu) {ENDED}") == 2
    kept = rows(runs.folder)
    assert 7 not in {row["problem_index"] for row in kept.values()}
    assert 6 <= len(kept) < 12
    assert read_run(runs.folder)["status"].to_pylist() == ["failed"]

    runs.before = lambda unit: None
    again = runs.share("3")
    said = capsys.readouterr().err
    assert f"{12 - len(kept)} of 12 samples are missing" in said
    assert re.search("warning: workers at once: 3, for earlier samples (1 and )?2: the times of this run come", said)
    after = rows(again.folder)
    assert {key: after[key] for key in kept} == kept
    assert recorded(again)[-1] == 3
    runs.out = tmp_path / "alone"
    assert rows(runs.share(None).folder) == after


def test_a_problem_that_ends_worker_after_worker_is_given_up_and_the_others_are_done(runs: SharedRuns) -> None:
    runs.before = die_at(2, times=pool.MOST_DEATHS)
    shared = runs.share(str(pool.MOST_DEATHS + 1))
    (failed,) = (row for row in rows(shared.folder).values() if row["finish_reason"] == "error")
    assert failed["problem_index"] == 2
    assert failed["error"].startswith("given up: worker ")
    assert failed["error"].count(ENDED) == pool.MOST_DEATHS
    assert (shared.row["n"], shared.row["errors"]) == (12, 1)
    assert runs.share("1").row["errors"] == 0  # as every failed sample, it is asked for again


def test_what_no_worker_can_begin_with_is_the_error_of_the_run(
    runs: SharedRuns, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(plan: Any, folder: Any) -> Any:
        raise CheckpointError("weights.safetensors is broken; allowed: a whole file")

    monkeypatch.setattr("lopa_bench.engines.opening.open_engine", refuse)
    with pytest.raises(CheckpointError, match=r"weights\.safetensors is broken; .* \(each of 3 workers\)"):
        runs.share("3")
    assert not [path for path in (runs.out / "runs").iterdir() if path.is_dir()]


def test_a_worker_that_cannot_begin_is_named_and_the_others_do_the_run(
    runs: SharedRuns, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    opened = runs._open

    def refuse_one(plan: Any, folder: Any) -> Any:
        if this_worker() == 0:
            raise CheckpointError("no memory there")
        return opened(plan, folder)

    monkeypatch.setattr("lopa_bench.engines.opening.open_engine", refuse_one)
    assert runs.share("2").row["n"] == 12
    assert "warning: worker 0 (cpu) cannot work: no memory there; 1 of 2 workers go on" in capsys.readouterr().err


def test_a_worker_that_comes_to_another_run_is_refused(runs: SharedRuns, monkeypatch: pytest.MonkeyPatch) -> None:
    made = worker.make_plan

    def with_another_torch(*settings: Any) -> Any:
        plan = made(*settings)
        product = {**plan.identity.facts["product"], "torch": "0.9"}
        return replace(
            plan, identity=replace(plan.identity, key="f" * 64, facts={**plan.identity.facts, "product": product})
        )

    monkeypatch.setattr(worker, "make_plan", with_another_torch)
    with pytest.raises(ValueError, match=r"another run before it, since product\.torch changed while it started"):
        runs.share("1")


def test_ctrl_c_keeps_what_was_decoded(runs: SharedRuns) -> None:
    asked = iter(range(100))

    def stop(*_: Any) -> None:
        if next(asked) == 4:
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lopa_bench.console.progress.Progress.add", stop)
        with pytest.raises(KeyboardInterrupt):
            runs.share("2")
    assert len(rows(runs.folder)) == 5
    assert read_run(runs.folder)["status"].to_pylist() == ["interrupted"]
    assert runs.share("2").row["n"] == 12


def test_a_worker_that_cannot_be_started_is_one_message(runs: SharedRuns, monkeypatch: pytest.MonkeyPatch) -> None:
    start = ThreadCrew.start

    def refuse_the_second(self: ThreadCrew, name: str, *rest: Any) -> Any:
        if self.children:
            raise OSError(11, "Resource temporarily unavailable")
        return start(self, name, *rest)

    monkeypatch.setattr(ThreadCrew, "start", refuse_the_second)
    with pytest.raises(WorkerError, match=r"worker 1 of 3 cannot be started \(.*unavailable\); allowed: fewer in run"):
        runs.share("3")
