"""The files of a run: what may be stored, what survives, what a reader gets."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from lopa_bench.errors import RecordError
from lopa_bench.metrics.varied import Measured
from lopa_bench.records import writing as records
from lopa_bench.records.reading import read_run, read_samples, read_steps
from lopa_bench.records.runs import as_run
from lopa_bench.records.schema import COLUMNS, SCHEMA_VERSION, schema, to_json
from lopa_bench.records.writing import RunStore, new_run_id


def sample(index: int = 0, **changes: Any) -> dict[str, Any]:
    row: dict[str, Any] = {
        "run_id": "r", "problem_id": f"p{index}", "problem_index": index, "sample_index": 0,
        "prompt_tokens": 5, "window_tokens": 32, "eos_tokens": 12, "content_tokens": 11,
        "rounds": 8, "forwards": 8, "rows": 8, "tokens_processed": 261,
        "prefill_s": 0.5, "decode_s": 1.5, "total_s": 2.0, "finish_reason": "eos",
        "prompt": "Question", "completion": "#### 4", "answer_text": "#### 4", "extracted": "4", "gold": "4",
        "correct": True, "scorer": "lopa_bench", "score_status": "ok", "score_details": {"strict": "4"},
        "stop": ["\n\nQuestion:"], "token_ids": [1, 2, 3], "token_source": "ids",
        "batch": 1, "approximate": False,
    }  # fmt: skip
    return row | changes


def step(index: int = 0, **changes: Any) -> dict[str, Any]:
    row: dict[str, Any] = {
        "step": index, "window_start": 5, "window_width": 32, "branches": 3, "winner": 1,
        "winner_score": 0.9, "anchor_score": 0.8, "scores": [0.8, 0.9, 0.7], "lookahead_positions": [7, 8],
        "lookahead_tokens": [70, 80], "positions": [5, 6], "tokens": [1, 2], "probs": [0.99, 0.95],
        "masks_left": 30, "cached": 5, "tokens_processed": 96, "seconds": 0.1,
    }  # fmt: skip
    return row | changes


def run_row(**changes: Any) -> dict[str, Any]:
    row: dict[str, Any] = {
        "run_id": "r", "version": "0.1.0", "schema_version": SCHEMA_VERSION, "status": "running",
        "created": "2026-01-31T14:22:33+00:00", "task": "gsm8k", "scorer": "lopa_bench",
        "source_kind": "embedded", "source_name": "embedded word problems", "source_sha256": "0" * 64,
        "source_rows": 256, "model": "mini", "model_is_toy": True, "decoder": "lopa", "base": "d2f", "k": "8",
        "backend": "local", "device": "cpu", "dtype": "float32", "seed": 0, "batch": 1,
        "config": {"decoder": {"k": 8}}, "versions": {}, "host": {}, "argv": ["decoder=lopa", "decoder.k=8"],
    }  # fmt: skip
    return row | changes


def measured(numbers: Mapping[str, Any], *folders: Path, overrides: Sequence[str] = (), **row: Any) -> Measured:
    """A run with these numbers, whose row has a few other values than the usual one."""
    return Measured(as_run(run_row(**row), *folders), numbers, overrides)


def test_what_is_written_is_what_is_read(tmp_path: Path) -> None:
    with RunStore(tmp_path) as store:
        store.add(sample(), [step(0), step(1)])
        store.write_run(run_row())

    row = read_samples(tmp_path).to_pylist()[0]
    assert {name: row[name] for name in sample()} == sample() | {"score_details": '{"strict": "4"}'}
    assert row["energy_j"] is None
    assert [s["step"] for s in read_steps(tmp_path).to_pylist()] == [0, 1]
    assert read_steps(tmp_path).to_pylist()[0]["problem_id"] == "p0"
    assert json.loads(read_run(tmp_path).to_pylist()[0]["config"]) == {"decoder": {"k": 8}}


def test_the_schema_does_not_depend_on_the_values(tmp_path: Path) -> None:
    with RunStore(tmp_path) as store:
        store.add(sample(forwards=None, total_s=None, extracted=None, correct=None, token_ids=[], stop=[]))
    assert read_samples(tmp_path).schema.equals(schema("samples"), check_metadata=True)
    assert read_samples(tmp_path / "nothing here").schema.equals(schema("samples"))
    assert schema("steps").metadata[b"lopa_bench.schema_version"] == str(SCHEMA_VERSION).encode()


@pytest.mark.parametrize("text", ["\x00", "\udce9t\ud83d", "\U0001f600 − 数", "\r\n\u2028\ufffe", "'\"\\", ""])
def test_any_text_can_be_stored(tmp_path: Path, text: str) -> None:
    with RunStore(tmp_path) as store:
        store.add(sample(problem_id=text, completion=text, stop=[text], error=text), [step()])
    row = read_samples(tmp_path).to_pylist()[0]
    expected = text.encode("utf-8", "backslashreplace").decode()
    assert row["completion"] == row["problem_id"] == row["stop"][0] == row["error"] == expected
    assert read_steps(tmp_path).num_rows == 1


@pytest.mark.parametrize(
    ("row", "named"),
    [
        (sample(forward=8), "unknown columns in samples: forward"),
        (sample(gold=None), "without a value: gold"),
        (sample(finish_reason="done"), "allowed: eos, stop, length"),
        (sample(forwards="eight"), "eight"),
    ],
)
def test_a_row_that_does_not_fit_is_refused_and_harms_no_other(tmp_path: Path, row: dict[str, Any], named: str) -> None:
    with RunStore(tmp_path) as store:
        store.add(sample(0))
        with pytest.raises(ValueError, match=named):
            store.add(row)
    assert read_samples(tmp_path).num_rows == 1
    assert issubclass(RecordError, ValueError)


def test_rows_reach_the_disk_every_16_samples_or_30_seconds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = RunStore(tmp_path)
    for index in range(17):
        store.add(sample(index))
    assert read_samples(tmp_path).num_rows == 16
    later = time.monotonic() + 31
    monkeypatch.setattr(records.time, "monotonic", lambda: later)
    store.add(sample(17))
    assert read_samples(tmp_path).num_rows == 18


def test_an_exception_loses_nothing(tmp_path: Path) -> None:
    with suppress(KeyboardInterrupt), RunStore(tmp_path) as store:
        store.add(sample(), [step()])
        raise KeyboardInterrupt
    assert read_samples(tmp_path).num_rows == 1


@pytest.mark.skipif(os.name != "posix", reason="needs SIGKILL")
def test_kill_9_after_6_of_10_samples_loses_at_most_one_flush(tmp_path: Path) -> None:
    script = (
        "import os, signal, sys; sys.path.insert(0, sys.argv[2])\n"
        "from lopa_bench.records import writing; from tests_rows import sample, step\n"
        "writing.FLUSH_SAMPLES = 2\n"
        "with writing.RunStore(sys.argv[1]) as store:\n"
        "    for i in range(10):\n"
        "        if i == 5: os.kill(os.getpid(), signal.SIGKILL)\n"
        "        store.add(sample(i), [step()])\n"
    ).replace("tests_rows", Path(__file__).stem)
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path), str(Path(__file__).parent)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert read_samples(tmp_path)["problem_id"].to_pylist() == ["p0", "p1", "p2", "p3"]
    assert not list(tmp_path.rglob("*.tmp"))


def test_two_writers_give_two_files_and_one_read_gives_20_distinct_rows(tmp_path: Path) -> None:
    first, second = RunStore(tmp_path), RunStore(tmp_path)
    for index in range(10):
        first.add(sample(index), [step()])
        second.add(sample(10 + index), [step()])
    first.flush()
    second.flush()
    assert len(list((tmp_path / "samples").iterdir())) == 2
    assert read_samples(tmp_path)["problem_index"].to_pylist() == list(range(20))
    assert read_steps(tmp_path).num_rows == 20


@pytest.mark.parametrize("damage", [b"", b"PAR1 not really", None])
def test_a_reader_names_a_broken_file_each_time_and_changes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: bytes | None
) -> None:
    for index in range(2):
        with RunStore(tmp_path) as store:
            store.add(sample(index))
    broken = min((tmp_path / "samples").iterdir())
    broken.write_bytes(broken.read_bytes()[:200] if damage is None else damage)
    before = sorted(tmp_path.rglob("*"))

    for time_read in (1, 2):
        with caplog.at_level(logging.WARNING):
            assert read_samples(tmp_path)["problem_id"].to_pylist() == ["p1"]
        assert [record.getMessage().count(broken.name) for record in caplog.records] == [1] * time_read
    assert sorted(tmp_path.rglob("*")) == before


def test_of_a_sample_done_twice_the_newest_row_and_its_own_steps_count(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    store.add(sample(finish_reason="error", correct=None), [step(0), step(1), step(2)])
    store.flush()
    store.add(sample(1), [step(0)])
    store.add(sample(0), [step(0, masks_left=1)])
    store.flush()
    assert read_samples(tmp_path)["finish_reason"].to_pylist() == ["eos", "eos"]
    assert read_steps(tmp_path)["masks_left"].to_pylist() == [1, 30]


def test_steps_without_their_sample_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, write = RunStore(tmp_path), records.write_table

    def dies_between(path: Path, table: Any) -> None:
        if path.parent.name == "samples":
            raise KeyboardInterrupt
        write(path, table)

    store.add(sample(), [step()])
    monkeypatch.setattr(records, "write_table", dies_between)
    with pytest.raises(KeyboardInterrupt):
        store.flush()
    assert read_steps(tmp_path).num_rows == 0
    monkeypatch.undo()
    store.flush()  # the rows are still in the buffer
    assert read_samples(tmp_path).num_rows == read_steps(tmp_path).num_rows == 1


def test_a_file_of_an_older_version_is_read_with_nulls(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    with RunStore(tmp_path) as store:
        store.add(sample(energy_j=3.0))
    (path,) = (tmp_path / "samples").iterdir()
    pq.write_table(pq.ParquetFile(path).read().drop_columns(["energy_j"]), path)
    assert read_samples(tmp_path)["energy_j"].to_pylist() == [None]


def test_a_folder_name_with_an_equals_sign_is_no_column(tmp_path: Path) -> None:
    folder = tmp_path / "decoder=lopa" / "k=8"
    with RunStore(folder) as store:
        store.add(sample())
    assert read_samples(folder).column_names == list(COLUMNS["samples"])


def test_run_ids_are_readable_and_never_shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    suffixes = iter(["3f9a", "3f9a", "77aa"])
    monkeypatch.setattr(records.secrets, "token_hex", lambda _: next(suffixes))
    monkeypatch.setattr(records, "datetime", _FrozenClock)
    names = [new_run_id(tmp_path, "gsm8k", "Mini/AR v1", "lopa", "k8") for _ in range(3)]
    stem = "20260131-142233-gsm8k-mini-ar-v1-lopa-k8"
    assert names == [stem, f"{stem}-3f9a", f"{stem}-77aa"]
    assert all((tmp_path / name).is_dir() for name in names)


class _FrozenClock(records.datetime):
    @classmethod
    def now(cls, tz: Any = None) -> Any:
        return records.datetime(2026, 1, 31, 14, 22, 33, tzinfo=tz)


def test_a_folder_without_a_run_says_so(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no run at"):
        read_run(tmp_path)


def test_json_is_strict() -> None:
    import numpy as np

    assert to_json({"a": float("nan"), "b": [float("inf"), np.float64(2.0)], "p": Path("x")}) == (
        '{"a": null, "b": [null, 2.0], "p": "x"}'
    )


def test_importing_the_records_loads_nothing_heavy() -> None:
    heavy = "{'pyarrow', 'pandas', 'numpy', 'torch', 'wandb', 'scipy', 'transformers'}"
    script = f"import sys, lopa_bench.records.writing; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
