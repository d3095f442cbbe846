"""A filter of system calls: what no program of a data set needs, and what would reach past the other walls.

It is a list of what is refused and not of what is allowed, so that any interpreter and library goes on working; calls
that are newer than the list count as missing. Programs see a refused call as an OSError (EPERM, mostly).
A filter in the kernel's classic BPF is a run of small blocks, each of which either decides or falls through.
"""

from __future__ import annotations

import ctypes
import errno
import struct
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from tasks.sandbox.walls import linux, syscalls

ALLOW = 0x7FFF0000
KILL = 0x80000000
ERRNO = 0x00050000
# Instructions: load a word, and, jump if equal, if greater, if any bit is set, return.
LOAD, AND, EQUAL, GREATER, ANY, RETURN = 0x20, 0x54, 0x15, 0x25, 0x45, 0x06
NR, ARCH = 0, 4

ROW = struct.Struct("<HBBI")
Instruction = tuple[int, int, int, int]
# What a test of one argument compiles to, given how many instructions follow it in its block.
Test = Callable[[int], list[Instruction]]

OTHER_PROCESSES = "ptrace process_vm_readv process_vm_writev pidfd_getfd kcmp process_madvise process_mrelease"
PLACES = "move_pages migrate_pages"
FILE_SYSTEMS = (
    "mount umount2 pivot_root chroot move_mount fsopen fsconfig fsmount fspick open_tree mount_setattr swapon swapoff "
    "quotactl quotactl_fd open_by_handle_at name_to_handle_at fanotify_init"
)
MACHINE = (
    "unshare setns reboot kexec_load kexec_file_load init_module finit_module delete_module acct syslog bpf "
    "perf_event_open userfaultfd keyctl add_key request_key settimeofday clock_settime clock_adjtime adjtimex "
    "sethostname setdomainname iopl ioperm modify_ldt vhangup lookup_dcookie sync syncfs"
)
# Memory that belongs to no process outlives it and is in no count.
SHARED_MEMORY = (
    "memfd_create memfd_secret shmget shmat shmctl semget semop semtimedop semctl msgget msgsnd msgrcv msgctl mq_open "
    "mq_unlink"
)
REFUSED = " ".join((OTHER_PROCESSES, PLACES, FILE_SYSTEMS, MACHINE, SHARED_MEMORY)).split()
# Said to be missing: libraries then take the older call, whose arguments a filter can see.
MISSING = ("clone3", "openat2", "io_setup", "io_uring_setup", "io_uring_enter", "io_uring_register")
NETWORK = ("bind", "connect", "listen", "sendmsg", "sendmmsg")
SIGNALS = ("kill", "tkill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo", "pidfd_open")

NEW_NAMESPACES_OR_SIBLING = 0x7E020000 | 0x8000
NAMELESS_FILE = 0x400000  # O_TMPFILE leaves no trace in its folder
SHARED_ANONYMOUS, HUGE_PAGES = 0x21, 0x40000
UNIX, INET, INET6 = 1, 2, 10
STREAM, DATAGRAM, SEQUENCE, TYPE_BITS = 1, 2, 5, 0xF
SET_PDEATHSIG, SET_DUMPABLE = 1, 4
F_SETOWN, F_SETSIG, F_SETOWN_EX = 8, 10, 15
TIOCSTI, TIOCLINUX, FIOSETOWN, SIOCSPGRP = 0x5412, 0x541C, 0x8901, 0x8902
PERSONALITY_QUERY = 0xFFFFFFFF
PRIO_PROCESS, IOPRIO_PROCESS = 0, 1


@dataclass(frozen=True)
class Rule:
    """Refuses a call with an error where all tests of its arguments hold."""

    call: str
    tests: Sequence[Test] = ()
    error: int = errno.EPERM


def rules(own_pid: int, network: bool, protected: Iterable[int] = ()) -> list[Rule]:
    """What to refuse.

    `network`: the program has a network of its own, with nobody in it. `protected`: processes that it must not signal,
    where neither a namespace nor another user nor Landlock keeps it from them.
    """
    own = (0, own_pid)
    found = [Rule(name) for name in REFUSED] + [Rule(name, error=errno.ENOSYS) for name in MISSING]
    found += [
        Rule("clone", [_any_of(0, NEW_NAMESPACES_OR_SIBLING)]),
        Rule("open", [_bits(1, NAMELESS_FILE)], errno.EOPNOTSUPP),
        Rule("openat", [_bits(2, NAMELESS_FILE)], errno.EOPNOTSUPP),
        Rule("mmap", [_bits(3, SHARED_ANONYMOUS)]),
        Rule("mmap", [_any_of(3, HUGE_PAGES)]),
        Rule("prctl", [_one_of(0, (SET_PDEATHSIG, SET_DUMPABLE))]),
        Rule("fcntl", [_one_of(1, (F_SETOWN, F_SETSIG, F_SETOWN_EX))]),
        Rule("ioctl", [_one_of(1, (TIOCSTI, TIOCLINUX, FIOSETOWN, SIOCSPGRP))]),
        Rule("personality", [_none_of(0, (0, PERSONALITY_QUERY))]),
        Rule("socket", [_none_of(0, (UNIX, INET, INET6))], errno.EAFNOSUPPORT),
        Rule("socket", [_none_of(1, (STREAM, DATAGRAM, SEQUENCE), TYPE_BITS)]),
        Rule("setpriority", [_none_of(0, (PRIO_PROCESS,))]),
        Rule("setpriority", [_none_of(1, own)]),
        Rule("ioprio_set", [_none_of(0, (IOPRIO_PROCESS,))]),
        Rule("ioprio_set", [_none_of(1, own)]),
    ]
    for name in ("prlimit64", "sched_setaffinity", "sched_setparam", "sched_setscheduler", "sched_setattr"):
        found.append(Rule(name, [_none_of(0, own)]))
    if not network:
        found += [Rule(name) for name in NETWORK] + [Rule("sendto", [_is_set(4)])]
    if protected := [pid & 0xFFFFFFFF for pid in protected]:
        found += [Rule(name, [_one_of(0, protected)]) for name in SIGNALS] + [Rule("pidfd_send_signal")]
    return found


def compile_filter(rules: Iterable[Rule], arch: int, column: int) -> list[Instruction]:
    program = [(LOAD, 0, 0, ARCH), (EQUAL, 1, 0, arch), (RETURN, 0, 0, KILL), (LOAD, 0, 0, NR)]
    program += [(GREATER, 0, 1, syscalls.LAST_KNOWN), (RETURN, 0, 0, ERRNO | errno.ENOSYS)]
    for rule in rules:
        number = syscalls.number(rule.call, column)
        if number is not None:
            program += _block(number, rule)
    return [*program, (RETURN, 0, 0, ALLOW)]


def install(rules: Iterable[Rule]) -> None:
    """Puts the filter on this process and all that it starts. Needs no_new_privs. Raises OSError where it cannot."""
    machine = syscalls.machine()
    if machine is None:
        raise OSError(errno.ENOSYS, "no table of system calls for this machine")
    program = compile_filter(rules, *machine)
    rows = ctypes.create_string_buffer(b"".join(ROW.pack(*row) for row in program))
    linux.set_filter(syscalls.number("seccomp", machine[1]) or 0, rows, len(program))


def _block(number: int, rule: Rule) -> list[Instruction]:
    end = [(RETURN, 0, 0, ERRNO | rule.error)]
    if rule.tests:
        end.append((LOAD, 0, 0, NR))  # the tests have loaded arguments in its place
    rest = end
    for test in reversed(rule.tests):
        rest = test(len(rest)) + rest
    # A failed test jumps to the load at the end, so that the next block finds the number where it expects it.
    return [(EQUAL, 0, len(rest), number), *rest]


def _argument(index: int) -> int:
    return 16 + 8 * index  # of a 64-bit argument the lower half, on these machines the first one


def _bits(index: int, mask: int) -> Test:
    return lambda rest: [(LOAD, 0, 0, _argument(index)), (AND, 0, 0, mask), (EQUAL, 0, rest - 1, mask)]


def _any_of(index: int, mask: int) -> Test:
    return lambda rest: [(LOAD, 0, 0, _argument(index)), (ANY, 0, rest - 1, mask)]


def _one_of(index: int, values: Collection[int]) -> Test:
    def compiled(rest: int) -> list[Instruction]:
        left = len(values)
        jumps = [(EQUAL, left - 1 - n, 0 if n < left - 1 else rest - 1, value) for n, value in enumerate(values)]
        return [(LOAD, 0, 0, _argument(index)), *jumps]

    return compiled


def _none_of(index: int, values: Collection[int], mask: int = 0xFFFFFFFF) -> Test:
    def compiled(rest: int) -> list[Instruction]:
        left = len(values)
        jumps = [(EQUAL, left - 1 - n + rest - 1, 0, value) for n, value in enumerate(values)]
        return [(LOAD, 0, 0, _argument(index)), (AND, 0, 0, mask), *jumps]

    return compiled


def _is_set(index: int) -> Test:
    """A pointer that is not null."""
    low, high = _argument(index), _argument(index) + 4
    return lambda rest: [(LOAD, 0, 0, low), (EQUAL, 0, 2, 0), (LOAD, 0, 0, high), (EQUAL, rest - 1, 0, 0)]
