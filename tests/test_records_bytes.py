"""What is in a file of rows: no byte of it can change unseen, and a merge loses none."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lopa_bench.records.integrity import Broken, damage, parts, tables
from lopa_bench.records.reading import read_samples, read_steps
from lopa_bench.records.repair import read_back
from lopa_bench.records.writing import RunStore, compact
from tests.test_records import sample, step
from tests.test_records_damage import inverted


@pytest.mark.parametrize("table", ["samples", "steps"])
def test_no_byte_of_a_part_can_change_a_value_unseen(tmp_path: Path, table: str) -> None:
    with RunStore(tmp_path) as store:
        store.add(sample(completion="some words"), [step(0), step(1)])
    (path,) = parts(tmp_path, table)
    whole, right = path.read_bytes(), pa.concat_tables(list(tables(path, table)))
    seen = 0
    for at in range(0, len(whole), 61):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
        if damage(path, table) is None:
            assert pa.concat_tables(list(tables(path, table))).equals(right), at
        else:
            seen += 1
    assert seen > 20


def test_a_number_that_changed_on_the_disk_is_seen_by_the_checksum_of_its_page(tmp_path: Path) -> None:
    """Numbers that do not compress are stored as they are: without checksums another one would simply be read."""
    ids = [int.from_bytes(hashlib.sha256(bytes([n])).digest()[:4], "little") >> 1 for n in range(200)]
    with RunStore(tmp_path) as store:
        store.add(sample(token_ids=ids))
    (path,) = parts(tmp_path, "samples")
    content, stored = path.read_bytes(), ids[100].to_bytes(4, "little")
    assert content.count(stored) == 1
    path.write_bytes(content.replace(stored, (ids[100] ^ 1).to_bytes(4, "little")))
    assert pq.ParquetFile(path).read()["token_ids"].to_pylist()[0][100] == ids[100] ^ 1
    assert damage(path, "samples") is not None
    assert read_samples(tmp_path).num_rows == 0


def test_a_file_of_an_older_version_is_whole_and_one_of_a_newer_too(tmp_path: Path) -> None:
    with RunStore(tmp_path) as store:
        store.add(sample(), [step()])
    (path,) = parts(tmp_path, "samples")
    table = pq.ParquetFile(path).read()
    pq.write_table(table.drop_columns(["machine", "energy_j"]), path)
    assert damage(path, "samples") is None
    newer = table.append_column("of_tomorrow", pa.array([1]))
    pq.write_table(newer.replace_schema_metadata({b"lopa_bench.schema_version": b"99"}), path)
    assert damage(path, "samples") is None
    pq.write_table(newer, path)
    assert "of_tomorrow" in str(damage(path, "samples"))


def test_a_merge_never_takes_steps_that_broke_since_they_were_read_for_none(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    for index in range(2):
        store.add(sample(index), [step()])
        store.flush()
    back = read_back(tmp_path, "r")
    inverted(parts(tmp_path, "steps")[0], 0.5)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(Broken):
        compact(RunStore(tmp_path), back)
    assert sorted(tmp_path.rglob("*")) == before


def test_of_a_sample_done_twice_in_parts_that_share_others_the_newest_counts(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    for index in range(2):
        store.add(sample(index, rounds=None), [step()])
    store.flush()
    store.add(sample(1, rounds=None, completion="again"), [step(0), step(1)])
    store.flush()
    assert read_samples(tmp_path)["completion"].to_pylist() == [sample()["completion"], "again"]
    assert read_steps(tmp_path)["problem_id"].to_pylist() == ["p0", "p1", "p1"]
