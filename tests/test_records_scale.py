"""The store with more rows than a test usually has: speed, memory, many runs at once, very long texts."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lopa_bench.records.reading import read_runs, read_samples, read_steps
from lopa_bench.records.repair import read_back
from lopa_bench.records.writing import RunStore, compact
from tests.test_records import run_row, sample, step
from tests.warm import ROOT


@pytest.mark.parametrize("samples", [1000, pytest.param(20_000, marks=pytest.mark.slow)])
def test_memory_does_not_grow_with_the_run(samples: int, tmp_path: Path) -> None:
    """128 steps a sample. Last run with 20,000 samples: see docs/sweeps.md."""
    command = [sys.executable, "-m", "tests.store_scale", str(tmp_path), str(samples), "128"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    print(done.stdout)
    assert json.loads(done.stdout)["peak_mib"] < 1024


def test_a_hundred_runs_are_read_together_in_three_seconds(tmp_path: Path) -> None:
    first = tmp_path / "run-0"
    with RunStore(first) as store:
        for index in range(256):
            store.add(sample(index, completion="word " * 100, token_ids=list(range(100))), [step(0)])
        store.write_run(run_row(status="finished"))
    compact(RunStore(first), read_back(first, "r"))
    folders = [first, *(tmp_path / f"run-{number}" for number in range(1, 100))]
    for folder in folders[1:]:
        shutil.copytree(first, folder)
    began = time.process_time(), time.perf_counter()
    runs, samples = read_runs(folders), read_samples(folders)
    cpu, wall = time.process_time() - began[0], time.perf_counter() - began[1]
    print(f"100 runs, {samples.num_rows} samples: {wall:.2f} s, {cpu:.2f} s of CPU")
    assert (runs.num_rows, samples.num_rows) == (100, 25_600)
    assert cpu < 3  # not the wall: this machine may be busy


def test_parts_of_a_finished_run_are_one_file_and_still_the_same_rows(tmp_path: Path) -> None:
    with RunStore(tmp_path) as store:
        for attempt in range(3):
            for index in range(10):
                store.add(sample(index, rounds=attempt), [step(number) for number in range(attempt + 1)])
            store.flush()
    before = read_samples(tmp_path), read_steps(tmp_path)
    compact(RunStore(tmp_path), read_back(tmp_path, "r"))
    assert [len(list((tmp_path / table).iterdir())) for table in ("samples", "steps")] == [1, 1]
    assert (read_samples(tmp_path), read_steps(tmp_path)) == before
    assert read_samples(tmp_path)["rounds"].to_pylist() == [2] * 10


@pytest.mark.parametrize("kept", ["samples and steps", "steps alone"])
def test_a_merge_that_is_killed_loses_nothing(tmp_path: Path, kept: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with RunStore(tmp_path) as store:
        for index in range(40):
            store.add(sample(index), [step(0), step(1)])
    before = read_samples(tmp_path), read_steps(tmp_path)
    from lopa_bench.records import writing as records

    write = records.write_tables

    def dies(path: Path, *rest: object) -> None:
        if path.parent.name == "samples" and kept == "steps alone":
            raise KeyboardInterrupt
        write(path, *rest)
        if path.parent.name == "samples":
            raise KeyboardInterrupt

    monkeypatch.setattr(records, "write_tables", dies)
    with pytest.raises(KeyboardInterrupt):
        compact(RunStore(tmp_path), read_back(tmp_path, "r"))
    assert (read_samples(tmp_path), read_steps(tmp_path)) == before


def test_a_text_of_ten_megabytes_is_stored(tmp_path: Path) -> None:
    text = "\x00" + "数" * 3_500_000
    with RunStore(tmp_path) as store:
        store.add(sample(completion=text))
    assert read_samples(tmp_path)["completion"].to_pylist() == [text]


def test_old_and_new_runs_of_any_configuration_are_read_together(tmp_path: Path) -> None:
    """Values of mixed type, empty objects, NaN and infinity in a configuration; a file without today's columns."""
    import pyarrow.parquet as pq

    configs = [{}, {"k": 8}, {"k": "auto"}, {"k": [1, "two", None, {}]}, {"tau": float("nan"), "b": float("inf")}]
    for number, config in enumerate(configs):
        with RunStore(tmp_path / str(number)) as store:
            store.write_run(run_row(config=config, limit=None if number % 2 else 5))
    old = tmp_path / "0" / "run.parquet"
    pq.write_table(pq.ParquetFile(old).read().drop_columns(["key", "union_key", "identity", "shard", "samples"]), old)
    table = read_runs(sorted(tmp_path.iterdir()))
    assert [json.loads(text) for text in table["config"].to_pylist()] == [
        {}, {"k": 8}, {"k": "auto"}, {"k": [1, "two", None, {}]}, {"tau": None, "b": None},
    ]  # fmt: skip
    assert table["limit"].to_pylist() == [5, None, 5, None, 5]
    assert table["key"].to_pylist() == [None] * 5
