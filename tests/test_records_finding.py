"""Which run a person means, which runs there are, and which of them are a whole one."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from lopa_bench.errors import RunError
from lopa_bench.records.claim import claim
from lopa_bench.records.finding import find_run, find_runs
from lopa_bench.records.joining import gathered
from lopa_bench.records.runs import as_run, open_run
from lopa_bench.records.writing import RunStore
from tests.scripted import Runs
from tests.test_records import run_row


def stored(folder: Path, **row: Any) -> Path:
    with RunStore(folder) as store:
        store.write_run(run_row(run_id=folder.name, **row))
    return folder


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("20260101-k8", "20260101-k8"),  # an id, though another begins with it
        ("20260101-k8-", "20260101-k8-3f9a"),
        ("2026", "20260101-k8 20260101-k8-3f9a"),
        ("k8-3", "20260101-k8-3f9a"),
        ("k8", "k8-old"),  # what one alone begins with, though others have it further on
        ("old", "k8-old"),
        ("none", ""),
        ("x" * 5000, ""),
        ("[k]8", ""),
        ("..", ""),
    ],
)
def test_a_run_is_named_by_its_id_its_beginning_or_any_part_that_only_one_has(
    tmp_path: Path, name: str, found: str
) -> None:
    for run in ("20260101-k8", "20260101-k8-3f9a", "k8-old"):
        stored(tmp_path / "runs" / run)
    if found and " " not in found:
        assert find_run(name, tmp_path).folder == tmp_path / "runs" / found
        return
    with pytest.raises(
        RunError, match=r"names no single run .* allowed: the folder of a run, its id, or a part"
    ) as said:
        find_run(name, tmp_path)
    assert str(said.value).partition("found:")[2].split() == (found.split() or ["none"])


def test_two_runs_of_one_name_are_told_apart_by_their_folders(tmp_path: Path) -> None:
    both = [stored(tmp_path / "r"), stored(tmp_path / "runs" / "r")]
    with pytest.raises(RunError, match=f"{both[0]}\n  {both[1]}"):
        find_run("r", tmp_path)
    assert [find_run(str(folder), "elsewhere").folder for folder in both] == both


@pytest.mark.parametrize("below", ["", "runs", "runs/r"])
def test_runs_are_found_from_the_output_folder_the_folder_of_runs_and_the_run(tmp_path: Path, below: str) -> None:
    stored(tmp_path / "runs" / "r", config={"decoder": {"k": 8}})
    (run,) = find_runs(tmp_path / below)
    assert (run.id, run.settings, run.host) == ("r", {"k": 8}, {})


@pytest.mark.parametrize("config", ["{", "[]", '"text"', "null"])
def test_a_run_whose_settings_are_no_object_is_refused_by_name(tmp_path: Path, config: str) -> None:
    with pytest.raises(RunError, match=f"{tmp_path / 'run.parquet'}: config is no"):
        open_run(stored(tmp_path, config=config))


def test_a_run_that_came_to_nothing_leaves_no_folder_and_one_with_files_stays(tmp_path: Path) -> None:
    with claim(tmp_path, "0123456789abc", True, ["a"]):
        pass
    assert [path.name for path in tmp_path.iterdir()] == [".lock"]  # of all who look for a folder here
    with claim(tmp_path, "0123456789abc", True, ["a"]) as kept:
        stored(kept.folder)
    assert kept.folder.is_dir()


def test_shards_of_a_run_that_is_not_known_are_never_joined() -> None:
    def together(*rows: tuple[str | None, str]) -> list[tuple[int, bool]]:
        cuts = gathered([as_run(run_row(union_key=key, shard=shard)) for key, shard in rows], lambda run: run)
        return [(len(cut.parts), cut.is_whole) for cut in cuts]

    assert together(("u", "0/2"), ("v", "0/2"), ("u", "1/2")) == [(2, True), (1, False)]
    assert together((None, "0/2"), (None, "1/2")) == [(1, False), (1, False)]
    assert together(("u", "0/1")) == [(1, True)]
    assert together(("u", "0/2"), ("u", "1/4"), ("u", "1/2")) == [(2, True), (1, False)]  # cut into as many


def test_a_run_opens_each_file_for_its_verdicts_once_and_at_its_end_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """run.parquet at its end alone. The steps once to verify and once to merge them: they need not fit into memory."""
    opened: Counter[str] = Counter()
    parquet_file = pq.ParquetFile

    def counted(file: Any, **options: Any) -> Any:
        opened[str(Path(file.name).relative_to(runs.folder))] += 1
        return parquet_file(file, **options)

    monkeypatch.setattr(pq, "ParquetFile", counted)
    runs = Runs(tmp_path, monkeypatch)
    assert runs.run(20).row["n"] == 20
    assert sorted((Path(name).parent.name, times) for name, times in opened.items()) == [
        ("", 1), ("samples", 2), ("samples", 2), ("steps", 2), ("steps", 2)
    ]  # fmt: skip
