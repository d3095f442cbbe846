"""The filter of system calls: what it answers to each, on both machines."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from tasks.sandbox.walls import syscalls
from tasks.sandbox.walls.seccomp import ALLOW, ERRNO, KILL, REFUSED, compile_filter, rules

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
