"""The parts of the sandbox by themselves: the filter's rules, the count of a folder, what a dead judge means."""

from __future__ import annotations

import ctypes
import errno
import gzip
import mmap
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tasks.sandbox import patience, processes, runner
from tasks.sandbox.ended import Ended
from tasks.sandbox.outputs import OutputsError, OutputWriter, read_outputs
from tasks.sandbox.runner import Limits, Verdict, run_job
from tasks.sandbox.walls import scratch, syscalls
from tasks.sandbox.walls.seccomp import ALLOW, ERRNO, KILL, REFUSED, compile_filter, rules
from tasks.sandbox.walls.watch import SLACK, SLACK_KB, Watch
from tests.sandbox_modes import FINE

X86, ARM = syscalls.MACHINES["x86_64"], syscalls.MACHINES["aarch64"]
OWN = 77


def decide(
    call: str | int, *arguments: int, machine: tuple[int, int] = X86, arch: int | None = None, **kind: Any
) -> int:
    """What the filter answers; the meaning of its instructions is that of the kernel's documentation."""
    number = call if isinstance(call, int) else syscalls.number(call, machine[1])
    assert number is not None
    halves = [
        half for a in (*arguments, *[0] * (6 - len(arguments))) for half in (a & 0xFFFFFFFF, a >> 32 & 0xFFFFFFFF)
    ]
    words = {0: number, 4: arch or machine[0], **{16 + 4 * n: half for n, half in enumerate(halves)}}
    given = {"own_pid": OWN, "network": True, "protected": (), **kind}
    program = compile_filter(rules(**given), *machine)
    at, value = 0, 0
    while True:
        code, yes, no, k = program[at]
        at += 1
        if code == 0x06:
            return k
        if code == 0x20:
            value = words[k]
        elif code == 0x54:
            value &= k
        else:
            at += yes if {0x15: value == k, 0x25: value > k, 0x45: bool(value & k)}[code] else no


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


def refusal(number: int = errno.EPERM) -> int:
    return ERRNO | number


@pytest.mark.parametrize("machine", [X86, ARM], ids=["x86_64", "aarch64"])
@pytest.mark.parametrize(
    ("call", "arguments", "answer"),
    [
        ("ptrace", (), refusal()), ("pidfd_getfd", (), refusal()), ("memfd_create", (), refusal()),
        ("clone3", (), refusal(errno.ENOSYS)), ("io_uring_setup", (), refusal(errno.ENOSYS)),
        ("clone", (0x1200011,), ALLOW), ("clone", (0x10000011,), refusal()), ("clone", (0x8011,), refusal()),
        ("mmap", (0, 1, 3, 0x22), ALLOW), ("mmap", (0, 1, 3, 0x01), ALLOW), ("mmap", (0, 1, 3, 0x21), refusal()),
        ("mmap", (0, 1, 3, 0x23), refusal()), ("mmap", (0, 1, 3, 0x40022), refusal()),
        ("prctl", (4,), refusal()), ("prctl", (1,), refusal()), ("prctl", (15,), ALLOW),
        ("ioctl", (0, 0x5412), refusal()), ("ioctl", (0, 0xDEAD00005412), refusal()), ("ioctl", (0, 0x5401), ALLOW),
        ("fcntl", (0, 8), refusal()), ("fcntl", (0, 10), refusal()), ("fcntl", (0, 15), refusal()),
        ("fcntl", (0, 2), ALLOW), ("personality", (0xFFFFFFFF,), ALLOW), ("personality", (0x40000,), refusal()),
        ("openat", (0, 0, 0x400002), refusal(errno.EOPNOTSUPP)), ("openat", (0, 0, 0x10000), ALLOW),
        ("socket", (2, 0x80001), ALLOW), ("socket", (1, 5), ALLOW), ("socket", (10, 2), ALLOW),
        ("socket", (2, 0x80003), refusal()), ("socket", (16, 3), refusal(errno.EAFNOSUPPORT)),
        ("socket", (40, 1), refusal(errno.EAFNOSUPPORT)),
        ("prlimit64", (0,), ALLOW), ("prlimit64", (OWN,), ALLOW), ("prlimit64", (1,), refusal()),
        ("sched_setaffinity", (78,), refusal()), ("setpriority", (0, 0), ALLOW), ("setpriority", (0, 1), refusal()),
        ("setpriority", (2, 0), refusal()), ("ioprio_set", (1, OWN), ALLOW), ("ioprio_set", (3, 0), refusal()),
        ("kill", (1, 9), ALLOW), ("connect", (), ALLOW), ("sendto", (0, 0, 0, 0, 5), ALLOW),
        (syscalls.LAST_KNOWN, (), ALLOW), (syscalls.LAST_KNOWN + 1, (), refusal(errno.ENOSYS)),
        (0x40000000 | 39, (), refusal(errno.ENOSYS)),
    ],
)  # fmt: skip
def test_the_filter_decides(machine: tuple[int, int], call: str | int, arguments: tuple[int, ...], answer: int) -> None:
    assert decide(call, *arguments, machine=machine) == answer


def test_a_call_of_another_architecture_ends_the_process() -> None:
    assert decide(0, arch=0x40000003) == KILL


@pytest.mark.parametrize("call", ["bind", "connect", "listen", "sendmsg", "sendmmsg"])
def test_without_a_network_of_its_own_sockets_are_only_objects(call: str) -> None:
    assert decide(call, network=False) == refusal()
    assert decide("socket", 2, 1, network=False) == ALLOW


@pytest.mark.parametrize("address", [1, 1 << 32])
def test_and_send_to_no_address(address: int) -> None:
    assert decide("sendto", 0, 0, 0, 0, address, network=False) == refusal()
    assert decide("sendto", 0, 0, 0, 0, 0, network=False) == ALLOW


@pytest.mark.parametrize("call", ["kill", "tkill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo", "pidfd_open"])
def test_protected_processes_get_no_signal(call: str) -> None:
    for pid in (5, 6, -1):
        assert decide(call, pid & 0xFFFFFFFFFFFFFFFF, protected=(5, 6, -1)) == refusal()
    assert decide(call, 7, protected=(5, 6, -1)) == ALLOW
    assert decide("pidfd_send_signal", protected=(5,)) == refusal()
    assert decide("pidfd_send_signal") == ALLOW


@pytest.mark.parametrize("column", [0, 1])
def test_no_two_names_have_one_number(column: int) -> None:
    numbers = [pair[column] for pair in syscalls.NUMBERS.values() if pair[column] is not None]
    assert len(set(numbers)) == len(numbers)
    assert set(REFUSED) <= set(syscalls.NUMBERS)


def test_the_numbers_are_those_of_the_kernels_headers() -> None:
    headers = {0: "/usr/include/x86_64-linux-gnu/asm/unistd_64.h", 1: "/usr/include/asm-generic/unistd.h"}
    found = {column: path for column, path in headers.items() if Path(path).exists()}
    if not found:
        pytest.skip("no headers of the kernel here")
    for column, path in found.items():
        lines = [line.split() for line in Path(path).read_text().splitlines() if line.startswith("#define __NR")]
        known = {w[1].replace("__NR3264_", "__NR_")[5:]: int(w[2]) for w in lines if len(w) > 2 and w[2].isdigit()}
        for name, pair in syscalls.NUMBERS.items():
            assert name not in known or known[name] == pair[column], name


def test_an_unknown_machine_has_no_filter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "uname", lambda: os.uname_result(("Linux", "", "", "", "s390x")))
    assert syscalls.machine() is None


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


def verdict_of(code: str, monkeypatch: pytest.MonkeyPatch) -> Verdict:
    """Of a judge that runs this code instead."""
    monkeypatch.setattr(runner, "JUDGE", "import os, signal, sys, time\nsys.stdin.read()\n" + code)
    return run_job(FINE, Limits())


STARTED = "os.write(1, b'started\\n')\n"


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("os.kill(os.getpid(), 9)", "sandbox"), (STARTED + "os.kill(os.getpid(), 9)", "error"),
        ("raise OSError", "sandbox"), (STARTED + "raise OSError", "error"),
        (STARTED + "print('{\"status\": \"pa')", "error"), (STARTED + "print('[]')", "error"),
        (STARTED + "print('{\"status\": \"pass\"}')", "pass"), ("print('{\"status\": \"sandbox\"}')", "sandbox"),
        (STARTED + "os.kill(os.getpid(), signal.SIGXCPU)", "timeout"),
        ("os.kill(os.getpid(), signal.SIGXCPU)", "sandbox"),
    ],
)  # fmt: skip
def test_a_judge_that_fails_after_the_program_began_was_made_to_fail(
    code: str, status: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert verdict_of(code, monkeypatch).status == status


def test_a_program_whose_judge_failed_is_judged_again_alone() -> None:
    """Another program may have been the one that made it fail."""
    answers = [Verdict("error", judge_failed=True), Verdict("pass"), Verdict("error")]
    given = iter(answers)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runner, "cores", lambda: 1)
        verdicts = runner.run_jobs([(FINE, Limits()), (FINE, Limits())], lambda *_: next(given))
    assert [verdict.status for verdict in verdicts] == ["error", "pass"]
    assert not verdicts[0].judge_failed


@pytest.mark.parametrize(("code", "status"), [("", "sandbox"), (STARTED, "timeout")])
def test_so_was_one_that_never_answers(code: str, status: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "BACKSTOP_S", 1.0 - 4 * Limits().wall_s)
    assert verdict_of(code + "time.sleep(60)", monkeypatch).status == status


@pytest.mark.parametrize("damage", ["short", "cut", "bytes", "absent"])
def test_expected_outputs_that_cannot_be_read_are_the_harness_own_failure(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "outputs.gz"
    with OutputWriter(str(path)) as writer:
        for number in range(200):
            writer.add(b"V", str(number**40).encode())
    data = path.read_bytes()
    assert [one.payload for one, _ in zip(read_outputs(str(path)), range(3), strict=False)] == [
        b"0",
        b"1",
        b"1099511627776",
    ]
    if damage == "absent":
        path.unlink()
    elif damage != "short":
        path.write_bytes(data[: len(data) // 2] if damage == "cut" else data[:99] + bytes(200) + data[299:])
    with pytest.raises(OutputsError):
        for _ in read_outputs(str(path)):
            pass


def test_the_judge_computes_no_longer_than_the_program_had_left() -> None:
    before = resource.getrlimit(resource.RLIMIT_CPU)
    code = (
        "import resource, time\nfrom tasks.sandbox import patience\nfrom tasks.sandbox.ended import Ended\n"
        "patience.LEAST_S, patience.GRACE_S = 0.05, 0.05\nstart = time.process_time()\n"
        "try:\n    with patience.limited(0.1):\n        while True: pass\n"
        "except Ended as end: print(end.status, 0.1 < time.process_time() - start < 0.5)\n"
        "print(resource.getrlimit(resource.RLIMIT_CPU)[0])\n"
    )
    root = Path(runner.ROOT)
    run = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert run.stdout.split("\n")[:2] == ["timeout True", str(before[1])]


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
