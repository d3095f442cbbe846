"""Runs that differ in how they computed and in nothing else: what came out otherwise is counted and named."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from analysis.__main__ import main
from analysis.tables.invariance import tables
from lopa_bench.console.invariance import invariance_table
from lopa_bench.lm_eval.settings import composed
from lopa_bench.metrics.invariance import invariance, same_settings
from lopa_bench.metrics.varied import Measured
from lopa_bench.plan.plan import make_plan
from lopa_bench.records.finding import find_runs
from lopa_bench.records.runs import Run
from lopa_bench.records.writing import RunStore
from lopa_bench.run.start import run_here
from lopa_bench.run.workers.opening import way_of
from lopa_bench.settings.validate import validate
from tests.test_records import run_row, sample, step

IDS = ([5, 6, 7], [5, 6, 8], [9, 9, 9])


def write(
    out: Path, name: str, changes: Mapping[int, Mapping[str, Any]] | None = None, batch: int = 1, **row: Any
) -> None:
    """A run of three samples of one call a token; `changes` by sample."""
    config = {
        "decoder": {"name": "lopa", "k": 8, "tau_conf": row.pop("tau_conf", 0.9)},
        "model": {"dtype": "auto"},
        "backend": {"device": "auto", "attention": row.pop("attention", None)},
        "run": {
            "batch": batch,
            "preset": "effective",
            "json": row.pop("json", "auto"),
            "devices": row.pop("devices", None),
        },
    }
    with RunStore(out / "runs" / name) as store:
        for index, ids in enumerate(IDS):
            own = {"token_ids": ids, "correct": index == 0, **(changes or {}).get(index, {})}
            order = own.pop("order", range(len(own["token_ids"])))
            calls = [
                step(at) | {"positions": [place], "tokens": [own["token_ids"][place]]} for at, place in enumerate(order)
            ]
            store.add(sample(index) | own, calls)
        store.write_run(run_row(run_id=name, config=config, status="finished", n=3, batch=batch, accuracy=1 / 3) | row)


def runs(out: Path) -> list[Run]:
    (group,) = same_settings(find_runs(out))
    return group


@pytest.fixture
def several(tmp_path: Path) -> Path:
    write(tmp_path, "a-reference")
    write(tmp_path, "b-batch", batch=4, json="never")
    write(
        tmp_path, "c-dtype", {1: {"token_ids": [5, 4, 8], "correct": True}, 2: {"order": [2, 0, 1]}}, dtype="bfloat16"
    )
    write(tmp_path, "d-both", {0: {"token_ids": [5, 6]}}, dtype="bfloat16", batch=4)
    write(tmp_path, "e-other-setting", batch=8, tau_conf=0.5)
    write(tmp_path, "f-unfinished", batch=2, status="failed")
    return tmp_path


def test_each_run_stands_beside_the_one_that_is_nearest_to_all(several: Path) -> None:
    found = invariance(runs(several))
    assert found.reference.id == "a-reference"
    assert [(one.run.id, one.name) for one in found.others] == [
        ("b-batch", "run.batch=4"),
        ("c-dtype", "model.dtype=bfloat16"),
        ("d-both", "run.batch=4 model.dtype=bfloat16"),
    ]
    assert [(one.samples, one.ids, one.verdicts, one.ways) for one in found.others] == [
        (3, 0, 0, 0), (3, 1, 1, 1), (3, 1, 0, 0),
    ]  # fmt: skip
    assert found.not_run.split() == [
        "model.dtype=float16", "backend.attention=products,fused", "backend.device=cuda,mps,npu",
    ]  # fmt: skip


def test_the_first_token_and_the_first_call_that_differ_are_named(several: Path) -> None:
    _, dtype, both = invariance(runs(several)).others
    changed, turned = dtype.changes
    assert (changed.key, changed.token, changed.step) == (("p1", 0), 1, 1)
    assert (changed.before, changed.after) == (False, True)
    assert (turned.key, turned.token, turned.step, turned.in_verdict) == (("p2", 0), None, 0, False)
    (shorter,) = both.changes
    assert (shorter.token, shorter.step) == (2, 2)  # where the shorter one ends


def test_a_sample_that_failed_in_one_run_is_another_one(tmp_path: Path) -> None:
    write(tmp_path, "a")
    write(tmp_path, "b", {0: {"finish_reason": "error", "correct": None, "token_ids": []}}, batch=2)
    (beside,) = invariance(runs(tmp_path)).others
    assert [(change.key[0], change.token, change.after) for change in beside.changes] == [("p0", 0, None)]


def test_a_run_by_several_devices_stands_beside_one_by_this_process(tmp_path: Path) -> None:
    write(tmp_path, "a")
    write(tmp_path, "b", {1: {"token_ids": [5, 6, 7]}}, devices="2")
    (beside,) = invariance(runs(tmp_path)).others
    assert (beside.name, beside.ids) == ("run.devices=2", 1)


def test_a_sweep_shows_it_only_where_nothing_else_was_varied(several: Path) -> None:
    measured = [Measured(run, {}) for run in find_runs(several) if run.status == "finished"]
    assert invariance_table(measured) is None  # another threshold is among them
    assert invariance_table(measured[:1]) is None
    assert invariance_table(measured[:4]) is not None


def test_the_analysis_writes_runs_and_samples(several: Path, capsys: pytest.CaptureFixture[str]) -> None:
    of_runs, of_samples = tables(find_runs(several))
    assert [(row["run"], row["reference"], row["run.batch"], row["other_ids"]) for row in of_runs.values] == [
        ("a-reference", "a-reference", "1", 0),
        ("b-batch", "a-reference", "4", 0),
        ("c-dtype", "a-reference", "1", 1),
        ("d-both", "a-reference", "4", 1),
    ]
    assert [(row["run"], row["problem_id"], row["token"], row["call"]) for row in of_samples.values] == [
        ("c-dtype", "p1", 1, 1), ("c-dtype", "p2", None, 0), ("d-both", "p0", 2, 2),
    ]  # fmt: skip
    assert main(["invariance", str(several)]) == 0
    printed = capsys.readouterr().out
    assert "right (was wrong)" in printed
    assert (several / "report" / "tables" / "invariance_samples.csv").is_file()


@pytest.mark.parametrize(
    ("words", "is_the_same"),
    [
        (["run.devices=1"], True),  # a run goes on with any number of workers
        (["run.devices=1", "run.same_devices=true"], False),
        (["backend.device=auto", "run.same_devices=true"], True),
    ],
)
def test_jobs_over_devices_take_up_what_the_same_devices_began(
    words: list[str], is_the_same: bool, settings: list[str], tmp_path: Path
) -> None:
    common = [*settings, "task.limit=1", f"run.out={tmp_path}", "run.progress=false"]
    first = run_here(composed(common))
    made = composed([*common, *words])
    config: Any = OmegaConf.to_object(made)
    valid = validate(config)
    plan = make_plan(config, OmegaConf.to_container(made), valid)  # of a mapping it is one
    claimed, _ = way_of(config, valid, None).take(plan, tmp_path / "runs")
    claimed.release()
    assert (claimed.folder == first.folder) == is_the_same


def test_without_two_such_runs_it_says_what_makes_some(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, "a")
    assert main(["invariance", str(tmp_path)]) == 2
    assert "+experiment=invariance makes some" in capsys.readouterr().err
