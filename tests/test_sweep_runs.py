"""The runs of a sweep: their unions, what they differ in, their curves over k, and the value that a search is told."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from lopa_bench.records.writing import RunStore
from lopa_bench.sweep import jobs
from lopa_bench.sweep.jobs import objective
from lopa_bench.sweep.multirun import varied_names, with_unions
from lopa_bench.tracking.sweep import branch_scaling
from tests.scripted import Runs, stop_at
from tests.test_records import measured, sample


def test_the_objective_is_tpf_where_the_accuracy_is_reached_and_else_what_is_missing() -> None:
    assert objective({"tpf": 5.0, "accuracy": 0.7}, "tpf", 0.6) == 5.0
    assert objective({"tpf": 9.0, "accuracy": 0.5}, "tpf", 0.6) == pytest.approx(-0.1)
    assert objective({"tpf": 5.0, "accuracy": None}, "tpf", None) == 5.0


def test_shards_are_shown_as_their_union_if_all_are_there() -> None:
    def shard(text: str | None, union: str = "u") -> Any:
        return measured({}, run_id=f"r{text}", shard=text, union_key=union)

    partial = [shard("0/3"), shard("1/3"), shard(None, "v")]
    assert with_unions(partial) == partial


def test_branch_scaling_curves_are_sorted_and_have_two_points() -> None:
    runs = [measured({"tpf": tpf}, k=k) for k, tpf in (("8", 5.0), ("0", 3.0), ("auto", 9.0))]
    runs.append(measured({"tpf": 1.0}, k="0", base="greedy"))
    assert branch_scaling(runs, "tpf") == {"gsm8k mini d2f": [(0, 3.0), (8, 5.0)]}


def test_a_curve_over_k_never_joins_runs_that_differ_in_something_else() -> None:
    runs = [
        measured({"tpf": float(k) + float(tau)}, overrides=[f"decoder.tau_conf={tau}", f"decoder.k={k}"], k=k)
        for tau in ("0.5", "0.75")
        for k in ("4", "0")
    ]
    assert branch_scaling(runs, "tpf") == {
        "gsm8k mini d2f decoder.tau_conf=0.5": [(0, 0.5), (4, 4.5)],
        "gsm8k mini d2f decoder.tau_conf=0.75": [(0, 0.75), (4, 4.75)],
    }


def test_a_union_of_shards_has_the_samples_of_all_of_them(tmp_path: Path) -> None:
    def shard(number: int, of: int) -> Any:
        folder = tmp_path / f"{number}-{of}"
        with RunStore(folder) as store:
            store.add(sample(number, forwards=4 * (number + 1)))
        return measured({"preset": "effective", "n": 1}, folder, shard=f"{number}/{of}", union_key="u")

    (one,) = with_unions([shard(0, 2), shard(1, 2)])
    run, numbers = one.run, one.numbers
    assert (run.id, run.shard, run.folders) == ("r and 1 other shards", None, (tmp_path / "0-2", tmp_path / "1-2"))
    assert (numbers["n"], numbers["forwards"], numbers["tpf"]) == (2, 12, 22 / 12)
    assert len(with_unions([shard(0, 3), shard(1, 3)])) == 2  # one is missing
    assert len(with_unions([shard(0, 2), shard(1, 3)])) == 2, "halves and thirds are no whole"
    counted = [replace(one, numbers=one.numbers | {"preset": "fast_dllm"}) for one in (shard(0, 2), shard(1, 2))]
    wholes = with_unions([shard(0, 2), counted[0], shard(1, 2), counted[1], shard(1, 2)])
    assert [(one.preset, one.numbers["n"]) for one in wholes] == [("effective", 2), ("fast_dllm", 2)]


def test_the_command_that_goes_on_with_a_stopped_job_has_no_setting_that_only_a_sweep_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = Runs(tmp_path, monkeypatch)
    runs.before = stop_at(3, KeyboardInterrupt())
    monkeypatch.setattr("sys.argv", ["child", "decoder.k=0", "++fail_fast=true", "keep_model=True", "against=k:0"])
    with pytest.raises(KeyboardInterrupt):
        runs.run(limit=5)
    assert capsys.readouterr().err.endswith("to go on: python -m lopa_bench decoder.k=0\n")


def test_a_job_knows_what_it_differs_in_from_the_others_of_its_sweep(tmp_path: Path) -> None:
    overrides = [["task=gsm8k", "task.limit=2", "decoder.k=0"], ["task=mbpp", "task.limit=2", "decoder.k=0"]]
    config = OmegaConf.create({"hydra": {"sweeper": {"params": None}}})
    names = varied_names(config, overrides)
    jobs.note_varied(tmp_path / "sweep", names)
    assert names == ["task"]
    assert [jobs.own_of(own, tmp_path / "sweep") for own in overrides] == [{"task": "gsm8k"}, {"task": "mbpp"}]
    assert jobs.own_of(overrides[0], tmp_path / "no sweep") == {}
    assert not jobs.is_over_devices(tmp_path / "sweep")
    jobs.note_varied(tmp_path / "sweep", ["run.batch", "run.devices"])
    assert jobs.is_over_devices(tmp_path / "sweep")
    search = OmegaConf.create({"hydra": {"sweeper": {"params": {"decoder.k": "choice(0, 8)"}}}})
    assert varied_names(search, []) == ["decoder.k"]
