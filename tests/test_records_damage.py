"""Damage to any file of a run: its own command does again what is lost, in the same call; readers change nothing."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lopa_bench.console.listing import details, listing
from lopa_bench.errors import RunError
from lopa_bench.records.integrity import left_out, shortfall, tables
from lopa_bench.records.reading import read_run, read_samples, read_steps
from lopa_bench.records.runs import open_run
from lopa_bench.records.schema import schema
from lopa_bench.records.writing import RunStore, write_table
from tests.scripted import STEPS, Runs, stop_at

ALL = list(range(20))
FIRST = list(range(16))  # of the first part
LATER = [16, 17, 18, 19]


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 20 that was stopped before the 19th: parts of 16 and of 2 samples."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        runs = Runs(tmp_path_factory.mktemp("stopped"), monkeypatch)
        runs.before = stop_at(18, KeyboardInterrupt())
        with pytest.raises(KeyboardInterrupt):
            runs.run()
    return runs.out


@pytest.fixture
def runs(stopped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runs:
    shutil.copytree(stopped, tmp_path / "out")
    return Runs(tmp_path / "out", monkeypatch)


def inverted(path: Path, begin: float, length: int = 200) -> None:
    content = bytearray(path.read_bytes())
    at = int(begin * (len(content) - length)) if begin >= 0 else len(content) + int(begin)
    content[at : at + length] = bytes(255 - byte for byte in content[at : at + length])
    path.write_bytes(content)


def with_a_byte_of_a_page_changed(path: Path) -> None:
    """The last one of the first column; bytes of a page's statistics mean nothing to a reader."""
    column = pq.read_metadata(path).row_group(0).column(0)
    content = bytearray(path.read_bytes())
    content[(column.dictionary_page_offset or column.data_page_offset) + column.total_compressed_size - 1] ^= 255
    path.write_bytes(content)


def becomes_a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def points_nowhere(path: Path) -> None:
    path.unlink()
    path.symlink_to("nothing")


def of_another_schema(path: Path) -> None:
    pq.write_table(pa.table({"problem_id": ["gsm8k-test-0"], "sample_index": [0]}), path)


def of_another_run(path: Path) -> None:
    table = pa.concat_tables(list(tables(path, path.parent.name)))
    column = table.schema.get_field_index("run_id")
    write_table(path, table.set_column(column, schema(path.parent.name).field("run_id"), [["elsewhere"] * len(table)]))


def with_a_column_renamed(path: Path) -> None:
    table = pa.concat_tables(list(tables(path, path.parent.name)))
    pq.write_table(
        table.rename_columns(["ttft_t" if n == "ttft_s" else n + "" for n in table.column_names[:-1]] + ["x"]), path
    )


DAMAGE: dict[str, Callable[[Path], object]] = {
    "the first bytes": lambda path: inverted(path, 0, 8),
    "the middle": lambda path: inverted(path, 0.5),
    "the middle of the first columns": lambda path: inverted(path, 0.1, 20),
    "the footer": lambda path: inverted(path, -600, 200),
    "one byte": with_a_byte_of_a_page_changed,
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:-100]),
    "cut in half": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "no bytes": lambda path: path.write_bytes(b""),
    "text": lambda path: path.write_text("PAR1 not really PAR1"),
    "a folder": becomes_a_folder,
    "a link to nothing": points_nowhere,
    "another schema": of_another_schema,
    "another run": of_another_run,
    "a renamed column": with_a_column_renamed,
}  # fmt: skip


STEPS_TOO = ("the middle", "one byte", "cut in half", "a folder", "another run")  # the rest is alike in both tables


@pytest.mark.parametrize(("how", "table"), [(how, "samples") for how in DAMAGE] + [(how, "steps") for how in STEPS_TOO])
def test_what_a_broken_part_held_is_decoded_again_in_the_same_call(
    runs: Runs, how: str, table: str, caplog: pytest.LogCaptureFixture
) -> None:
    broken = runs.parts(table)[0]
    DAMAGE[how](broken)
    result = runs.run()
    assert sorted(runs.decoded) == [*FIRST, 18, 19]
    assert f"{broken} cannot be used" in caplog.text
    assert broken.with_name(broken.name + ".broken").is_symlink() or broken.with_name(broken.name + ".broken").exists()
    assert (result.row["status"], result.row["n"]) == ("finished", 20)
    assert read_samples(runs.folder)["problem_index"].to_pylist() == ALL
    assert read_steps(runs.folder)["step"].to_pylist() == [0, 1, 2] * 20
    runs.run()
    assert len(runs.engines) == 1, "it is whole now"


@pytest.mark.parametrize("table", ["samples", "steps"])
def test_a_finished_run_that_turns_out_broken_is_not_finished(runs: Runs, table: str) -> None:
    runs.run()
    (merged,) = runs.parts(table)
    inverted(merged, 0.5)
    result = runs.run()
    assert sorted(runs.decoded) == ALL
    assert (result.row["n"], read_steps(runs.folder).num_rows) == (20, 20 * STEPS)


def test_rows_that_are_gone_from_a_whole_file_are_decoded_again(runs: Runs) -> None:
    first = runs.parts("samples")[0]
    write_table(first, pa.concat_tables(list(tables(first, "samples"))).slice(0, 12))
    steps = runs.parts("steps")[1]
    write_table(steps, pa.concat_tables(list(tables(steps, "steps"))).slice(1))  # of sample 16 one step is gone
    runs.run()
    assert sorted(runs.decoded) == [12, 13, 14, 15, 16, 18, 19]
    assert read_steps(runs.folder).num_rows == 20 * STEPS


@pytest.mark.parametrize("how", ["gone", "a file"])
@pytest.mark.parametrize("table", ["samples", "steps"])
def test_a_table_that_is_no_folder_is_decoded_again(runs: Runs, table: str, how: str) -> None:
    shutil.rmtree(runs.folder / table)
    if how == "a file":
        (runs.folder / table).write_text("no folder")
    result = runs.run()
    assert sorted(runs.decoded) == ALL
    assert result.row["n"] == 20
    assert read_steps(runs.folder).num_rows == 20 * STEPS


def two_rows(path: Path) -> None:
    row = read_run(path.parent)
    write_table(path, pa.concat_tables([row, row]))


@pytest.mark.parametrize(
    "how", ["the middle", "no bytes", "a folder", "a link to nothing", "another schema", "two rows"]
)
@pytest.mark.parametrize("status", ["interrupted", "finished"])
def test_a_damaged_run_row_costs_no_sample(runs: Runs, how: str, status: str) -> None:
    if status == "finished":
        runs.run()
    damaging = {**DAMAGE, "two rows": two_rows}[how]
    damaging(runs.folder / "run.parquet")
    result = runs.run()
    assert runs.decoded == ([18, 19] if status == "interrupted" else [])
    assert read_run(runs.folder)["status"].to_pylist() == ["finished"]
    assert (result.row["n"], result.folder) == (20, runs.folder)


def test_a_run_row_that_tells_another_number_of_rows_is_written_again(runs: Runs) -> None:
    runs.run()
    row = read_run(runs.folder).to_pylist()[0]
    with RunStore(runs.folder) as store:
        store.write_run(row | {"n": 13})
    runs.run()
    assert len(runs.engines) == 1, "there is nothing to decode"
    assert read_run(runs.folder)["n"].to_pylist() == [20]


def test_a_renamed_folder_is_gone_on_with(runs: Runs) -> None:
    moved = runs.folder.with_name("moved-" + runs.folder.name)
    runs.folder.rename(moved)
    result = runs.run()
    assert (runs.decoded, result.folder) == ([18, 19], moved)
    assert len(set(read_samples(moved)["run_id"].to_pylist())) == 1


def test_what_was_set_aside_before_stays_beside_it(runs: Runs) -> None:
    first = runs.parts("samples")[0]
    first.with_name(first.name + ".broken").write_text("an earlier one")
    inverted(first, 0.5)
    runs.run()
    assert first.with_name(first.name + ".broken").read_text() == "an earlier one"
    assert first.with_name(first.name + ".broken-2").exists()


def test_damage_that_comes_while_the_run_goes_on_is_mended_before_it_ends(runs: Runs) -> None:
    def damage_the_first_part(unit: object) -> None:
        if len(runs.engines) == 1 and not runs.decoded:
            inverted(runs.parts("samples")[0], 0.5)

    runs.before = damage_the_first_part
    result = runs.run()
    assert sorted(runs.decoded) == [*FIRST, 18, 19]
    assert result.row["n"] == 20


def files(folder: Path) -> dict[str, bytes | None]:
    return {str(path): path.read_bytes() if path.is_file() else None for path in sorted(folder.rglob("*"))}


@pytest.mark.parametrize("table", ["samples", "steps"])
@pytest.mark.parametrize("how", ["the middle", "truncated", "a folder", "a link to nothing", "another run"])
def test_readers_leave_a_damaged_run_out_and_touch_nothing(
    runs: Runs, table: str, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    runs.run()
    row = read_run(runs.folder).to_pylist()[0]
    assert shortfall(runs.folder, row) is None
    broken = runs.parts(table)[0]
    DAMAGE[how](broken)
    before = files(runs.out)
    for _ in range(2):
        caplog.clear()
        assert left_out(runs.folder, row)
        assert f"{runs.folder} is left out" in caplog.text
        assert broken.name in caplog.text
    read_samples(runs.folder)
    assert files(runs.out) == before


def test_the_listing_leaves_out_a_run_whose_rows_are_too_few(runs: Runs, caplog: pytest.LogCaptureFixture) -> None:
    runs.run()
    table = listing(runs.out)
    assert table.row_count == 1
    inverted(runs.parts("samples")[0], 0.5)
    for _ in range(2):
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            table = listing(runs.out)
        assert table.row_count == 0
        assert "0 of 20 samples can be read" in caplog.text


def test_a_damaged_run_is_not_shown(runs: Runs) -> None:
    runs.run()
    assert details(open_run(runs.folder), 1)
    inverted(runs.parts("samples")[0], 0.5)
    with pytest.raises(RunError, match="is damaged: 0 of 20 samples can be read"):
        details(open_run(runs.folder), 1)


def one_row_less(path: Path) -> None:
    write_table(path, pa.concat_tables(list(tables(path, path.parent.name))).slice(1))


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        (one_row_less, f"it has {20 * STEPS - 1} rows where {20 * STEPS} belong"),
        (DAMAGE["truncated"], "Parquet magic bytes not found"),
        (DAMAGE["no bytes"], "size is 0 bytes"),
    ],
)
def test_the_listing_leaves_out_a_run_whose_steps_are_too_few(
    runs: Runs, how: Callable[[Path], object], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    runs.run()
    how(runs.parts("steps")[0])
    table = listing(runs.out)
    assert table.row_count == 0
    assert reason in caplog.text


def test_a_run_with_damage_in_the_middle_of_its_steps_is_not_shown(runs: Runs) -> None:
    runs.run()
    inverted(runs.parts("steps")[0], 0.5)
    with pytest.raises(RunError, match="is damaged: steps/part-"):
        details(open_run(runs.folder), 1)


def test_a_run_that_is_not_finished_is_not_left_out(runs: Runs) -> None:
    row = read_run(runs.folder).to_pylist()[0]
    assert (row["status"], row["n"], shortfall(runs.folder, row)) == ("interrupted", None, None)


def test_the_numbers_of_a_mended_run_are_those_of_one_that_was_never_damaged(runs: Runs) -> None:
    inverted(runs.parts("samples")[0], 0.5)
    mended = runs.run().row["aggregates"]
    clean = runs.run(resume=False).row["aggregates"]
    different = {name for name in clean if clean[name] != mended[name]} - {"wall_s", "tps_wall"}
    assert not different
    assert (clean["forwards"], clean["content_tokens"]) == (20 * STEPS, 20 * 3)
    assert json.loads(read_run(runs.run().folder)["aggregates"].to_pylist()[0])["n"] == 20


def test_a_run_with_another_key_is_another_run_though_its_name_ends_alike(runs: Runs) -> None:
    """Ten digits of the key are in the name; the run row has them all."""
    earlier = runs.folder
    row = read_run(earlier).to_pylist()[0]
    with RunStore(earlier) as store:
        store.write_run(row | {"key": row["key"][:10] + "0" * 54})
    assert runs.run().folder != earlier
    assert runs.decoded == ALL
