"""Places that cannot be written or read: one sentence, nothing recorded is lost, finished runs can be read."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lopa_bench.console.explain import explain
from lopa_bench.console.listing import command, listing
from lopa_bench.errors import Locked, StorageError
from lopa_bench.records import locks
from lopa_bench.records.integrity import parts, shortfall
from lopa_bench.records.locks import Lock, brief_lock, is_locked
from lopa_bench.records.reading import read_run, read_samples, read_steps
from lopa_bench.records.writing import RunStore, new_run_id
from lopa_bench.system import storage
from lopa_bench.system.storage import whole_file
from tests.scripted import STEPS, Runs, stop_at
from tests.test_records import sample, step


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runs:
    return Runs(tmp_path / "out", monkeypatch)


def full_disk(monkeypatch: pytest.MonkeyPatch, when: Callable[[], bool] = lambda: True) -> None:
    """From now on nothing more reaches the disk while `when` holds."""
    sync = os.fsync

    def fsync(file: int) -> None:
        if when():
            raise OSError(errno.ENOSPC, "No space left on device")
        sync(file)

    monkeypatch.setattr(storage.os, "fsync", fsync)


def no_permission(monkeypatch: pytest.MonkeyPatch, below: Path, code: int = errno.EACCES) -> None:
    """Locks below a folder cannot be opened for writing, as in an archive or in another user's folder."""

    def refusing(path: Any, mode: str = "r", **settings: Any) -> Any:
        if Path(path).is_relative_to(below) and mode[0] in "wa":
            raise OSError(code, os.strerror(code), str(path))
        return open(path, mode, **settings)

    monkeypatch.setattr(locks, "open", refusing, raising=False)
    monkeypatch.setattr(storage, "open", refusing, raising=False)


def test_a_full_disk_leaves_the_old_file_and_no_half_of_a_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    full_disk(monkeypatch)
    with pytest.raises(StorageError) as caught, whole_file(path) as file:
        file.write(b"new")
    assert str(caught.value) == (
        f"{path} cannot be written (No space left on device); "
        "allowed: run.out=<a folder that can be written, on a disk with room>"
    )
    assert explain(caught.value) == f"error: {caught.value}"
    assert [found.read_text() for found in tmp_path.iterdir()] == ["old"]


def test_an_error_that_is_not_of_the_system_is_not_called_one(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="of a library"), whole_file(tmp_path / "file"):
        raise OSError("of a library")


def test_rows_that_found_no_room_stay_for_the_next_flush(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = RunStore(tmp_path)
    store.add(sample(), [step()])
    with monkeypatch.context() as full:
        full_disk(full)
        with pytest.raises(StorageError):
            store.flush()
    assert (store.buffered, store.flushed) == (1, [])
    store.flush()
    assert (store.buffered, len(store.flushed), read_samples(tmp_path).num_rows) == (0, 1, 1)


def test_a_disk_that_fills_up_costs_only_what_found_no_room(
    runs: Runs, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as full:
        full_disk(full, lambda: bool(runs.engines and len(runs.decoded) > 16))
        with pytest.raises(StorageError, match="No space left on device"):
            runs.run(20)
    err = capsys.readouterr().err
    assert "4 decoded samples are lost" in err
    assert "stopped after 16 of 20 samples" in err
    assert read_samples(runs.folder).num_rows == 16
    result = runs.run(20)
    assert runs.decoded == [16, 17, 18, 19]
    assert (result.row["status"], result.row["n"]) == ("finished", 20)


def test_a_run_is_finished_though_there_is_no_room_to_merge_its_parts(
    runs: Runs, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def no_room(store: RunStore, back: object) -> None:
        raise StorageError("no room")

    monkeypatch.setattr("lopa_bench.run.runner.compact", no_room)
    assert runs.run(20).row["status"] == "finished"
    assert "warning: no room; the parts of this run were not merged" in capsys.readouterr().err
    assert len(runs.parts("samples")) == 2
    assert read_run(runs.folder)["n"].to_pylist() == [20]


def a_file(path: Path) -> None:
    path.write_text("no folder")


def a_link_to_nothing(path: Path) -> None:
    path.symlink_to("nothing")


@pytest.mark.parametrize("what", [a_file, a_link_to_nothing])
@pytest.mark.parametrize("place", ["", "runs"])
def test_what_is_no_folder_where_one_should_be_is_one_sentence(
    runs: Runs, what: Callable[[Path], None], place: str
) -> None:
    path = runs.out / place
    path.parent.mkdir(exist_ok=True)
    what(path)
    with pytest.raises(StorageError, match=f"^{path}.* cannot be written .*allowed: run.out="):
        runs.run(2)
    assert not runs.engines, "no model was loaded for it"


@pytest.mark.parametrize("place", ["runs/.lock", ".lock"])
def test_a_folder_where_a_lock_should_be_is_one_sentence(runs: Runs, place: str) -> None:
    runs.before = stop_at(1, KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        runs.run(2)
    path = runs.folder / place if place == ".lock" else runs.out / place
    path.unlink()
    path.mkdir()
    with pytest.raises(StorageError, match=f"{path} cannot be written \\(Is a directory\\)"):
        runs.run(2)
    assert len(runs.engines) == 1


@pytest.mark.parametrize("code", [errno.EACCES, errno.EROFS])
def test_a_finished_run_of_an_archive_prints_its_numbers(
    runs: Runs, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], code: int
) -> None:
    first = runs.run(5)
    before = capsys.readouterr().out
    no_permission(monkeypatch, runs.out, code)
    again = runs.run(5)
    assert capsys.readouterr().out == before
    assert (again.folder, again.row["aggregates"]["n"], len(runs.engines)) == (first.folder, 5, 1)
    table = listing(runs.out)
    assert table.row_count == 1


def test_another_user_s_finished_run_can_be_read_where_one_s_own_could_be_made(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = runs.run(5)
    no_permission(monkeypatch, first.folder)
    assert runs.run(5).folder == first.folder
    no_permission(monkeypatch, runs.out)
    with pytest.raises(StorageError, match=f"{runs.out}.* cannot be written"):
        runs.run(6)


def test_an_archive_that_is_damaged_says_so(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    runs.run(5)
    runs.parts("steps")[0].write_bytes(b"")
    no_permission(monkeypatch, runs.out)
    with pytest.raises(StorageError, match=r"cannot be written, and it is damaged: steps/part-"):
        runs.run(5)


def test_a_run_that_is_not_finished_needs_a_place_to_write(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    runs.before = stop_at(1, KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        runs.run(2)
    no_permission(monkeypatch, runs.folder)
    with pytest.raises(StorageError, match=r"lock cannot be written \(Permission denied\)"):
        runs.run(2)
    assert read_samples(runs.folder).num_rows == 1


def test_an_unreadable_file_is_no_broken_one(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    runs.run(2)

    def denied(path: Any, mode: str = "r", **settings: Any) -> Any:
        if Path(path).parent.name == "samples":
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return open(path, mode, **settings)

    monkeypatch.setattr("lopa_bench.records.integrity.open", denied, raising=False)
    with pytest.raises(StorageError, match=r"cannot be read \(Permission denied\)"):
        runs.run(2)
    assert len(runs.parts("samples")) == 1, "it was not set aside"


@pytest.mark.parametrize("name", ["a b", "k=8", "数'\"", "é\udcff", "$HOME", "[x]*?", "-n", "\n"])
def test_a_run_can_be_in_a_folder_of_any_name(runs: Runs, name: str) -> None:
    runs.out = runs.out / name
    assert runs.run(2).row["n"] == 2
    assert runs.run(2).row["n"] == 2
    assert len(runs.engines) == 1
    assert read_samples(runs.folder).num_rows == 2


def test_a_model_with_a_long_name_has_a_folder(tmp_path: Path) -> None:
    assert len(new_run_id(tmp_path, "gsm8k", "a" * 500, "lopa").encode()) < 120


def test_who_may_write_a_folder_may_lock_it(tmp_path: Path) -> None:
    shared, own = tmp_path / "shared", tmp_path / "own"
    for folder, mode, expected in ((shared, 0o777, 0o666), (own, 0o755, 0o644)):
        folder.mkdir()
        folder.chmod(mode)
        with brief_lock(folder / ".lock"):
            pass
        assert (folder / ".lock").stat().st_mode & 0o777 == expected


def test_a_file_system_without_locks_is_not_a_run_under_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_locks(file: Any, flags: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(locks, "PAUSE", 0)
    monkeypatch.setattr(locks.fcntl, "lockf", no_locks)
    (tmp_path / ".lock").touch()
    assert not is_locked(tmp_path)
    with pytest.raises(StorageError, match="No locks available"):
        Lock(tmp_path)


@pytest.mark.parametrize("code", [errno.EACCES, errno.EAGAIN])
def test_a_lock_that_is_taken_is_a_run_under_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    def taken(file: Any, flags: int) -> None:
        raise OSError(code, "taken")

    monkeypatch.setattr(locks, "PAUSE", 0)
    monkeypatch.setattr(locks.fcntl, "lockf", taken)
    (tmp_path / ".lock").write_text('{"pid": 4711, "host": "node3", "since": "today"}')
    assert is_locked(tmp_path)
    with pytest.raises(Locked, match="is held by process 4711 on node3 since today"):
        Lock(tmp_path)


def test_an_archive_without_a_lock_file_is_not_locked(tmp_path: Path) -> None:
    assert not is_locked(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_reading_a_run_takes_no_file_but_its_own(runs: Runs) -> None:
    runs.run(3)
    (runs.folder / ".lock").unlink()
    assert read_samples(runs.folder).num_rows == 3
    assert [path.name for path in parts(runs.folder, "steps")] == [path.name for path in parts(runs.folder, "samples")]
    assert sum(1 for _ in read_steps(runs.folder)["step"]) == STEPS * 3
    assert not (runs.folder / ".lock").exists()


def test_a_folder_that_may_not_be_read_hides_no_other_run(
    runs: Runs, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    runs.run(2)
    hidden = runs.folder
    runs.run(3)
    listed = os.listdir

    def denied(path: Any) -> list[str]:
        if Path(path).parent == hidden:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return listed(path)

    monkeypatch.setattr("lopa_bench.records.integrity.os.listdir", denied)
    table = listing(runs.out)
    assert table.row_count == 1
    assert f"{hidden} is left out: {hidden / 'samples'} cannot be read (Permission denied)" in caplog.text


def test_showing_what_is_no_run_is_one_sentence(runs: Runs, capsys: pytest.CaptureFixture[str]) -> None:
    runs.run(2)
    (runs.folder / "run.parquet").write_bytes(b"PAR1")
    capsys.readouterr()
    assert command(["show", str(runs.folder)]) == 2
    assert capsys.readouterr().err == f"error: no run at {runs.folder}: run.parquet cannot be read\n"


@pytest.mark.parametrize("table", ["samples", "steps"])
def test_a_folder_that_can_be_listed_and_not_entered_is_told_of(
    runs: Runs, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs.run(2)
    row = read_run(runs.folder).to_pylist()[0]
    part = runs.parts(table)[0]
    stat = Path.stat

    def refused(path: Path, **options: Any) -> os.stat_result:
        if path == part:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return stat(path, **options)

    monkeypatch.setattr(Path, "stat", refused)
    assert (shortfall(runs.folder, row) or "").startswith(f"{part} cannot be read (Permission denied)")
