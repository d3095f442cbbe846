"""Which runs a report is made of: whole ones. A reader changes nothing and says each time what it leaves out."""

from __future__ import annotations

import json
import logging
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from analysis.__main__ import main
from analysis.notebook import open_outputs
from analysis.study import Study
from analysis.tables.lists import run_table
from tests.analysis_runs import simulate, write_run
from tests.test_records import run_row

ROOT = Path(__file__).parents[1]


def files(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def part(folder: Path, table: str) -> Path:
    (path,) = sorted((folder / table).glob("part-*.parquet"))[:1]
    return path


@pytest.mark.parametrize("table", ["samples", "steps"])
@pytest.mark.parametrize("how", ["truncated", "inverted", "empty", "missing"])
def test_a_run_with_a_damaged_part_is_left_out_and_named_each_time_and_nothing_is_renamed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, table: str, how: str
) -> None:
    write_run(tmp_path, "whole", {"name": "d2f"}, simulate(3, 0, 0.9, seed=0))
    path = part(write_run(tmp_path, "broken", {"name": "greedy"}, simulate(3, 0, 0.9, seed=1)), table)
    data = path.read_bytes()
    half = len(data) // 2
    damaged = {"truncated": data[:half], "empty": b"", "missing": b"",
               "inverted": data[: half - 100] + bytes(255 - one for one in data[half - 100 : half + 100])
               + data[half + 100 :]}[how]  # fmt: skip
    path.write_bytes(damaged)
    if how == "missing":
        path.unlink()
    before = files(tmp_path)
    for _ in range(2):
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            study = Study.of(tmp_path)
        assert [run.id for run in study.runs] == ["whole"]
        assert [one for one in caplog.messages if "broken is left out" in one]
    assert files(tmp_path) == before


def test_a_run_that_lost_a_part_says_how_many_of_its_samples_are_left(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_run(tmp_path, "r", {"name": "d2f"}, simulate(3, 0, 0.9, seed=0), n=5)
    assert Study.of(tmp_path).runs == []
    assert "r is left out: 3 of 5 samples can be read" in caplog.text


def test_a_broken_run_row_is_named_and_the_other_runs_are_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_run(tmp_path, "whole", {"name": "d2f"}, simulate(2, 0, 0.9, seed=0))
    folder = write_run(tmp_path, "broken", {"name": "greedy"}, simulate(2, 0, 0.9, seed=1))
    (folder / "run.parquet").write_bytes(b"PAR1 no table PAR1")
    write_run(tmp_path, "json", {"name": "greedy"}, simulate(2, 0, 0.9, seed=1), config="{not json")
    before = files(tmp_path)
    assert [run.id for run in Study.of(tmp_path).runs] == ["whole"]
    assert "broken" in caplog.text
    assert "config is not JSON" in caplog.text
    assert files(tmp_path) == before


def test_a_damaged_run_is_not_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_run(tmp_path, "a", {"name": "d2f"}, simulate(2, 0, 0.9, seed=0))
    folder = write_run(tmp_path, "b", {"name": "greedy"}, simulate(2, 0, 0.9, seed=1))
    part(folder, "samples").write_bytes(b"")
    assert main(["compare", "a", "b", "--outputs", str(tmp_path)]) == 2
    assert "b is damaged: 0 of 2 samples can be read" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["report", "table1", "figure1", "figure4", "accuracy_tpf"])
@pytest.mark.parametrize("state", ["missing", "empty", "unfinished"])
def test_a_command_on_a_folder_without_a_finished_run_says_so_and_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str, state: str
) -> None:
    root = tmp_path / "outputs"
    if state != "missing":
        root.mkdir()
    if state == "unfinished":
        write_run(root, "r", {"name": "d2f"}, simulate(1, 0, 0.9, seed=0), status="interrupted")
    assert main([command, str(root)]) == 2
    said = {
        "missing": "is no folder",
        "empty": "no finished run under",
        "unfinished": "; 1 unfinished or damaged left out",
    }
    error = capsys.readouterr().err
    assert said[state] in error
    assert error.count("\n") == 1
    assert not (root / "report").exists()


@pytest.mark.parametrize("exists", [True, False])
def test_a_notebook_on_an_empty_folder_is_told_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], exists: bool
) -> None:
    root = tmp_path / "outputs"
    if exists:
        root.mkdir()
    study = open_outputs(root)
    assert study.runs == []
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    assert ("no finished run under" if exists else "is no folder") in out


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted((ROOT / "analysis" / "notebooks").glob("*.ipynb")), ids=lambda path: path.stem)
def test_the_cells_of_every_notebook_run_on_an_empty_folder(path: Path, tmp_path: Path) -> None:
    """In one process without a kernel: only the code is asked for."""
    cells = [
        cell["source"] for cell in json.loads(path.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "code"
    ]
    code = "\n".join("".join(source) for source in cells)
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True,
        env={"LOPA_BENCH_OUTPUTS": str(tmp_path), "PATH": "", "HOME": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "no finished run under" in done.stdout


def test_an_archive_that_cannot_be_written_is_read(tmp_path: Path) -> None:
    folder = write_run(tmp_path, "r", {"name": "d2f"}, simulate(2, 0, 0.9, seed=0))
    for path in [*folder.rglob("*"), folder]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        assert [run.id for run in Study.of(tmp_path).runs] == ["r"]
    finally:
        for path in [folder, *folder.rglob("*")]:
            path.chmod(0o755 if path.is_dir() else 0o644)


def test_a_folder_that_was_copied_counts_once(tmp_path: Path) -> None:
    folder = write_run(tmp_path, "r", {"name": "d2f"}, simulate(2, 0, 0.9, seed=0))
    shutil.copytree(folder, folder.with_name("copy"))
    assert len(Study.of(tmp_path).distinct()) == 1


def test_an_old_run_without_the_newer_columns_stands_with_the_others(tmp_path: Path) -> None:
    """A row with a null in every column that may be null."""
    row = {name: value for name, value in run_row(decoder="greedy", base=None, k=None).items() if name != "run_id"}
    whole = {"status": "finished", "n": 2, "config": {"decoder": {"name": "greedy"}}}
    write_run(tmp_path, "old", {"name": "greedy"}, simulate(2, 0, 0.9, seed=0), **(row | whole))
    (run,) = Study.of(tmp_path).runs
    assert (run.k, run.base, run.lookahead, run.settings) == (0, "greedy", False, {"name": "greedy"})


def test_a_copy_of_a_run_counts_once_and_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = write_run(tmp_path, "r", {"name": "d2f"}, simulate(3, 0, 0.9, seed=0))
    for name in ("a copy", "z copy"):
        shutil.copytree(folder, folder.with_name(name))
    with caplog.at_level(logging.WARNING):
        study = Study.of(tmp_path)
    assert [run.folder for run in study.runs] == [folder]
    assert [row["status"] for row in run_table(study).values] == [
        "used", *["left out: a copy of the run with its id"] * 2
    ]  # fmt: skip
    assert [text.partition(" is left out: ")[0] for text in caplog.messages] == [
        str(folder.with_name(name)) for name in ("a copy", "z copy")
    ]


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        ({"config": {"decoder": "lopa"}}, "config.decoder is str; allowed: dict or null"),
        ({"config": {"decoder": {}, "task": [1]}}, "config.task is list; allowed: dict or null"),
        ({"host": {"ranks": [1]}}, "host.ranks is list; allowed: dict or null"),
    ],
)
def test_a_row_of_another_shape_is_left_out_and_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, facts: dict[str, Any], why: str
) -> None:
    write_run(tmp_path, "whole", {"name": "d2f"}, simulate(1, 0, 0.9, seed=0))
    folder = write_run(tmp_path, "odd", {"name": "greedy"}, simulate(1, 0, 0.9, seed=0), **facts)
    assert [run.id for run in Study.of(tmp_path).runs] == ["whole"]
    assert f"{folder / 'run.parquet'}: {why}" in caplog.text
