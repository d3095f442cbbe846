"""The parts of the sandbox by themselves: the count of a folder, of a family of processes, and what they may hold."""

from __future__ import annotations

import ctypes
import gzip
import mmap
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tasks.sandbox import patience, processes, runner
from tasks.sandbox.ended import Ended
from tasks.sandbox.outputs import OutputsError, read_outputs
from tasks.sandbox.walls import scratch
from tasks.sandbox.walls.watch import SLACK, SLACK_KB, Watch


def test_a_file_that_has_no_name_and_is_only_mapped_counts_as_large_as_a_file_may_be(tmp_path: Path) -> None:
    """Its size cannot be seen any more, its pages are there all the same."""
    path = tmp_path / "mapped"
    path.write_bytes(b"x" * 4096)
    libc = ctypes.CDLL(None)  # mmap of Python keeps a descriptor open
    libc.mmap.restype, libc.munmap.argtypes = ctypes.c_void_p, (ctypes.c_void_p, ctypes.c_size_t)
    with path.open("rb") as file:
        address = libc.mmap(None, ctypes.c_size_t(4096), mmap.PROT_READ, mmap.MAP_SHARED, file.fileno(), 0)
        path.unlink()
        scratch.check(str(tmp_path), [os.getpid()], scratch.SIZE_MB + 1)  # as long as it is open it tells its size
    try:
        with pytest.raises(scratch.TooMuch, match=f"holds {scratch.SIZE_MB + 1} MB, and {scratch.SIZE_MB} are"):
            scratch.check(str(tmp_path), [os.getpid()], scratch.SIZE_MB + 1)
    finally:
        libc.munmap(address, 4096)
    scratch.check(str(tmp_path), [os.getpid()], scratch.SIZE_MB + 1)


def test_descriptors_count_as_the_memory_that_the_kernel_may_hold_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch.__new__(Watch)
    watch.limits = {"memory_mb": 16}
    room_kb = 16 * 1024 * SLACK + SLACK_KB
    monkeypatch.setattr(processes, "memory_kb", lambda family: 0)
    monkeypatch.setattr(processes, "own_memory_kb", lambda programs: 0)
    most = processes.FREE_DESCRIPTORS + int(room_kb // processes.BUFFER_KB)
    monkeypatch.setattr("tasks.sandbox.walls.watch._descriptors", lambda pid: most)
    watch._look_at_memory([1], [1])
    monkeypatch.setattr("tasks.sandbox.walls.watch._descriptors", lambda pid: most + 1)
    with pytest.raises(Ended, match="passed the memory limit"):
        watch._look_at_memory([1], [1])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "scratch").mkdir()
    return tmp_path / "scratch"


def test_a_folder_counts_each_file_once(folder: Path) -> None:
    (folder / "file").write_bytes(bytes(40 << 20))
    os.link(folder / "file", folder / "link")
    scratch.check(str(folder), [], 32)
    (folder / "other").write_bytes(bytes(40 << 20))
    with pytest.raises(scratch.TooMuch, match="80 MB, and 64 are allowed"):
        scratch.check(str(folder), [], 32)


def test_a_file_without_a_name_counts_while_it_is_open(folder: Path) -> None:
    with open(folder / "file", "wb", 0) as file:
        file.write(bytes(70 << 20))
        os.remove(folder / "file")
        scratch.check(str(folder), [], 32)
        with pytest.raises(scratch.TooMuch, match="70 MB"):
            scratch.check(str(folder), [os.getpid()], 32)
    scratch.check(str(folder), [os.getpid()], 32)


def test_a_folder_of_too_many_files_is_too_much(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scratch, "ENTRIES", 3)
    for name in "abc":
        (folder / name).mkdir()
    scratch.check(str(folder), [], 32)
    (folder / "a" / "d").touch()
    with pytest.raises(scratch.TooMuch, match="more than 3 files"):
        scratch.check(str(folder), [], 32)


def test_a_folder_goes_whatever_is_in_it(folder: Path) -> None:
    outside = folder.parent / "outside"
    outside.mkdir()
    (outside / "kept").touch()
    (folder / "link").symlink_to(outside)
    (folder / "a" / "b").mkdir(parents=True)
    (folder / "a" / "b" / "file").touch()
    (folder / "a" / "b").chmod(0)
    (folder / "a").chmod(0)
    os.mkfifo(folder / "pipe")
    here = os.open(".", os.O_RDONLY)
    try:
        os.chdir(folder)
        for _ in range(1500):
            os.mkdir("deep")
            os.chdir("deep")
    finally:
        os.chdir(here)
        os.close(here)
    scratch.remove(str(folder))
    assert not folder.exists()
    assert (outside / "kept").exists()


def test_a_missing_folder_is_no_error(folder: Path) -> None:
    scratch.remove(str(folder / "none"))


def test_one_call_into_c_code_is_ended_by_the_kernel() -> None:
    """After less than the eight seconds at which another limit would kill it."""
    code = "import resource\nfrom tasks.sandbox import patience\nresource.setrlimit(resource.RLIMIT_CPU, (8, 8))\n"
    code += "with patience.limited(0.0): sum(range(10**12))"
    run = subprocess.run([sys.executable, "-c", code], cwd=runner.ROOT, capture_output=True)
    assert run.returncode == -signal.SIGXCPU


def test_descendants_are_found_both_ways_and_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    code = "import subprocess, sys; subprocess.Popen(['sleep', '66.125']); print(flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        found = processes.family(os.getpid())
        assert child.pid in found
        assert set(found) <= set(processes.descendants(os.getpid()))
        (below,) = processes.family(child.pid)
        assert processes.parent_of(below) == child.pid
        monkeypatch.setattr(processes, "LISTS_CHILDREN", False)
        assert processes.family(child.pid) == [below]
        assert processes.memory_kb([child.pid]) > 1000
        assert processes.own_memory_kb([child.pid]) <= processes.memory_kb([child.pid])
        assert not processes.is_ending(child.pid)
        os.kill(below, signal.SIGKILL)
        child.kill()
        time.sleep(0.1)
        assert processes.is_ending(child.pid)
    assert processes.memory_kb([child.pid]) == 0


def pids(count: int) -> list[int]:
    """Numbers that no process has."""
    return list(range(10**8, 10**8 + count))


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    """Of a worker that has the launcher's two processes above it and is running."""
    monkeypatch.setattr(processes, "family", lambda _: pids(3))
    monkeypatch.setattr(processes, "is_running", lambda _: True)
    monkeypatch.setattr(processes, "memory_kb", lambda _: 0)
    monkeypatch.setattr(processes, "make_way", lambda _: None)
    return Watch({"processes": 64, "memory_mb": 1, "file_mb": 32}, None, None)


def test_a_family_that_is_too_large_is_an_error(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "family", lambda _: pids(72))
    watch.look()
    monkeypatch.setattr(processes, "family", lambda _: pids(73))
    with pytest.raises(Ended, match="73 processes"):
        watch.look()


def test_many_processes_give_way(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    gave: list[int] = []
    monkeypatch.setattr(processes, "make_way", gave.extend)
    monkeypatch.setattr(processes, "family", lambda _: pids(10))
    watch.look()
    assert gave == []
    monkeypatch.setattr(processes, "family", lambda _: pids(11))
    watch.look()
    assert gave == pids(11)[2:]  # the launcher does not


def test_pages_that_a_few_processes_share_count_once(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "memory_kb", lambda _: 200_000)
    monkeypatch.setattr(processes, "own_memory_kb", lambda pids: 50_000 * len(pids))
    watch.look()
    monkeypatch.setattr(processes, "family", lambda _: pids(5))
    with pytest.raises(Ended) as end:
        watch.look()
    assert end.value.status == "memory"


def test_only_one_that_is_alone_waits_for_the_processor(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    assert watch.waits_for_the_processor()
    monkeypatch.setattr(processes, "family", lambda _: pids(4))
    assert not watch.waits_for_the_processor()
    monkeypatch.setattr(processes, "family", lambda _: pids(3))
    monkeypatch.setattr(processes, "is_running", lambda _: False)
    assert not watch.waits_for_the_processor()


def test_an_output_that_is_cut_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "outputs.gz"
    path.write_bytes(gzip.compress(b'["V", 2]\n10["V", 9]\n123'))
    read = read_outputs(str(path))
    assert next(read).payload == b"10"
    with pytest.raises(OutputsError, match="ends too early"):
        next(read)


def test_descriptors_count_as_the_buffers_they_may_fill() -> None:
    assert [processes.buffers_kb(n) for n in (0, 32, 33, 132)] == [0, 0, 208, 20800]


def test_tasks_of_a_user_are_processes_and_threads() -> None:
    assert processes.tasks_of(os.getuid()) >= 1
    assert processes.tasks_of(4_000_000_000) == 0


def test_ended_is_no_exception_that_a_test_would_catch() -> None:
    assert not issubclass(Ended, Exception)
    assert patience.GRACE_S < patience.GRACE_IN_C_S
