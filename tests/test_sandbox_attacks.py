"""What a program may not do to the processes above it, to the machine, and through the network: in every mode.

One program tries all of it and names what succeeded; each test asks for one name. That the attempts are able to
succeed is shown where no wall stands.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path

import pytest

from tasks.sandbox import Limits
from tasks.sandbox.walls import syscalls
from tasks.sandbox.walls.seccomp import MISSING, REFUSED
from tests.sandbox_modes import MODES, job, judge_in, open_folder

HEAD = """
import ctypes, errno, fcntl, os, resource, signal, socket, struct
libc = ctypes.CDLL(None, use_errno=True)
parent = os.getppid()
def call(name, *arguments):
    # The result, or minus the error's number; a call that the kernel lacks was not refused by a wall.
    ctypes.set_errno(0)
    result = libc.syscall(NUMBERS[name], *(ctypes.c_long(a) if isinstance(a, int) else a for a in arguments))
    return -ctypes.get_errno() if result < 0 else result
def refused(name, *arguments):
    return call(name, *arguments) in (-errno.EPERM, -errno.ENOSYS)
def sends(kind, address, data=b'x', by='sendto'):
    with socket.socket(*kind) as s:
        return s.sendto(data, address) if by == 'sendto' else s.sendmsg([data], [], 0, address)
def connects(family, address):
    with socket.socket(family, socket.SOCK_STREAM) as s:
        s.settimeout(1)
        s.connect(address)
        return True
buffer = ctypes.create_string_buffer(64)
class Span(ctypes.Structure):
    _fields_ = [('base', ctypes.c_void_p), ('length', ctypes.c_size_t)]
def reads(name):
    span = Span(ctypes.addressof(buffer), 8)
    return call(name, parent, ctypes.byref(span), 1, ctypes.byref(span), 1, 0) in (8, -errno.EFAULT)
def child_of(result):
    if result == 0: os._exit(0)
    return result > 0
got = []
"""

# Each is true where the attack succeeded. An exception is a refusal.
PROCESSES = {
    "takes the launcher's descriptors": (
        "any(call('pidfd_getfd', call('pidfd_open', parent, 0), n, 0) >= 0 for n in range(9))"
    ),
    "opens the launcher's descriptors": "open(f'/proc/{parent}/fd/5', 'w')",
    "reads the launcher's memory": "open(f'/proc/{parent}/mem', 'rb')",
    "reads the launcher's memory by call": "reads('process_vm_readv')",
    "writes the launcher's memory by call": "reads('process_vm_writev')",
    "reads the launcher's environment": "open(f'/proc/{parent}/environ').read() is not None",
    "traces the launcher": "call('ptrace', 0x4206, parent, 0, 0) == 0",
    "is traced by the launcher": "call('ptrace', 0, 0, 0, 0) == 0",
    "signals the launcher": "os.kill(parent, 0) is None",
    "signals the launcher's thread": "call('tkill', parent, 0) == 0",
    "signals the launcher's thread group": "call('tgkill', parent, parent, 0) == 0",
    "queues a signal for the launcher": (
        "call('rt_sigqueueinfo', parent, 0, struct.pack('iii4xii', 0, 0, -1, 0, 0) + bytes(112)) == 0"
    ),
    "signals the launcher through a descriptor": (
        "call('pidfd_send_signal', call('pidfd_open', parent, 0), 0, 0, 0) == 0"
    ),
    "signals the launcher through /proc": (
        "call('pidfd_send_signal', os.open(f'/proc/{parent}', os.O_RDONLY), 0, 0, 0) == 0"
    ),
    "signals the launcher through a pipe": "fcntl.fcntl(os.pipe()[0], 8, parent) == 0",
    "signals the harness": "os.kill(HARNESS, 0) is None",
    "signals the group of the launcher": "os.getpgid(parent) and os.killpg(os.getpgid(parent), 0) is None",
    "limits the launcher": "resource.prlimit(parent, resource.RLIMIT_NOFILE) is not None",
    "moves the launcher to another core": "os.sched_setaffinity(parent, os.sched_getaffinity(0)) is None",
    "slows the launcher": "os.setpriority(os.PRIO_PROCESS, parent, 19) is None",
    "slows its user's processes": "os.setpriority(os.PRIO_USER, os.getuid(), 19) is None",
    "slows the launcher's disk": "call('ioprio_set', 1, parent, 3 << 13) == 0",
    "schedules the launcher": "os.sched_setscheduler(parent, os.SCHED_IDLE, os.sched_param(0)) is None",
    "hides from its judge": "libc.prctl(4, 0, 0, 0, 0) == 0 == libc.prctl(4, 1, 0, 0, 0)",
    "outlives its launcher": "libc.prctl(1, 0, 0, 0, 0) == 0",
    "has a sibling for a child": "child_of(call('clone', 0x8000 | signal.SIGCHLD, 0, 0, 0, 0))",
}
MACHINE = {
    "makes a user namespace": "call('unshare', 0x10000000) == 0",
    "is born into a user namespace": "child_of(call('clone', 0x10000000 | signal.SIGCHLD, 0, 0, 0, 0))",
    "is born by a call whose flags cannot be seen": "not refused('clone3', 0, 0)",
    "changes its personality": "call('personality', 0x0040000) >= 0",
    "types into the terminal": "[fcntl.ioctl(0, 0x5412, b'x')]",
    "calls by the numbers of 32-bit pointers": "libc.syscall(ctypes.c_long(0x40000000 | 39)) > 0",
    "has memory without a file": "os.memfd_create('m') >= 0",
    "has a System V segment": "call('shmctl', call('shmget', 0, 1 << 20, 0o1600), 0, 0) == 0",
    "has a System V semaphore": "call('semctl', call('semget', 0, 1, 0o1600), 0, 0) == 0",
    "has a System V queue": "call('msgctl', call('msgget', 0, 0o1600), 0, 0) == 0",
    "has a message queue": "call('mq_open', b'lopa_bench_test', 0o102, 0o600, None) >= 0",
    "has anonymous memory to share": "__import__('mmap').mmap(-1, 1 << 20)",
    "shares zero pages": "__import__('mmap').mmap(os.open('/dev/zero', os.O_RDWR), 1 << 20)",
}
CALLS = {f"calls {name}": f"not refused({name!r}, 0, 0, 0, 0, 0, 0)" for name in (*REFUSED, *MISSING)}
FAMILIES = {"netlink": 16, "packets": 17, "the kernel's ciphers": 38, "the hypervisor": 40}
NETWORK = {
    **{f"has a socket for {name}": f"socket.socket({n}, socket.SOCK_DGRAM)" for name, n in FAMILIES.items()},
    "has a raw socket": "socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)",
    "connects by TCP": "connects(socket.AF_INET, ('127.0.0.1', TCP))",
    "sends by UDP": "sends((socket.AF_INET, socket.SOCK_DGRAM), ('127.0.0.1', UDP))",
    "sends a message by UDP": "sends((socket.AF_INET, socket.SOCK_DGRAM), ('127.0.0.1', UDP), by='sendmsg')",
    "sends without connecting": (
        "socket.socket(socket.AF_INET, socket.SOCK_STREAM).sendto(b'x', 0x20000000, ('127.0.0.1', TCP))"
    ),
    "connects to a path": "connects(socket.AF_UNIX, PATH)",
    "connects to a name": "connects(socket.AF_UNIX, NAME)",
    "sends to a path": "sends((socket.AF_UNIX, socket.SOCK_DGRAM), PATH + 'd')",
    "sends to a name": "sends((socket.AF_UNIX, socket.SOCK_DGRAM), NAME + 'd')",
}
ATTACKS = {**PROCESSES, **MACHINE, **NETWORK}
# The files of the machine are in reach where no wall is around files.
NOT_HELD = {("none, root", "shares zero pages"), ("none, user", "shares zero pages")}


@contextmanager
def listeners() -> Iterator[tuple[str, list[socket.socket]]]:
    """Sockets that would hear of a program, and the lines that tell it their addresses."""
    with open_folder() as folder:
        path, name = str(folder / "socket"), f"\0lopa_bench_{os.getpid()}"
        here = ("127.0.0.1", 0)
        addresses = [
            (socket.AF_INET, socket.SOCK_STREAM, here), (socket.AF_INET, socket.SOCK_DGRAM, here),
            (socket.AF_UNIX, socket.SOCK_STREAM, path), (socket.AF_UNIX, socket.SOCK_DGRAM, path + "d"),
            (socket.AF_UNIX, socket.SOCK_STREAM, name), (socket.AF_UNIX, socket.SOCK_DGRAM, name + "d"),
        ]  # fmt: skip
        heard: list[socket.socket] = []
        for family, kind, address in addresses:
            heard.append(socket.socket(family, kind))
            heard[-1].bind(address)
            heard[-1].settimeout(0.05)
            if kind == socket.SOCK_STREAM:
                heard[-1].listen()
        for file in folder.iterdir():
            file.chmod(0o777)
        ports = [one.getsockname()[1] for one in heard[:2]]
        try:
            yield f"TCP, UDP = {ports}\nPATH, NAME = {path!r}, {name!r}\n", heard
        finally:
            for one in heard:
                one.close()


@lru_cache
def succeeded(mode: str, without: tuple[str, ...] = ()) -> tuple[frozenset[str], int]:
    """What a program achieved in a mode, and how many sockets of this process heard of it."""
    table = {name: numbers[syscalls.machine()[1]] for name, numbers in syscalls.NUMBERS.items()}
    program = f"NUMBERS = { {name: number for name, number in table.items() if number is not None} }\n"
    program += f"HARNESS = {os.getpid()}\n"
    attacks = dict(ATTACKS)
    if "seccomp" not in without:  # some would block
        attacks |= {name: code for name, code in CALLS.items() if table[name[6:]] is not None}
    names = list(attacks)
    for number, name in enumerate(names):
        program += f"def attack_{number}():\n    return {attacks[name]}\n"
    program += f"def f():\n    for n in range({len(names)}):\n        try:\n"
    program += "            if globals()[f'attack_{n}'](): got.append(n)\n        except Exception: pass\n"
    program += "    raise ValueError(str(got))\n"
    with listeners() as (addresses, heard):
        verdict = judge_in(mode, job(HEAD + addresses + program, "f()"), Limits(), without)
        count = sum(map(_heard, heard))
    assert verdict.detail.startswith("ValueError: ["), verdict
    return frozenset(names[int(n)] for n in verdict.detail[13:-1].split(", ") if n), count


def _heard(listener: socket.socket) -> bool:
    with suppress(TimeoutError):
        if listener.type == socket.SOCK_STREAM:
            listener.accept()[0].close()
        else:
            listener.recv(10)
        return True
    return False


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("attack", ATTACKS)
def test_an_attack_fails(mode: str, attack: str) -> None:
    if (mode, attack) in NOT_HELD:
        pytest.skip("docs/scoring.md says that this is not held")
    assert attack not in succeeded(mode)[0]


@pytest.mark.parametrize("mode", MODES)
def test_calls_that_no_program_needs_are_refused(mode: str) -> None:
    assert not succeeded(mode)[0] & set(CALLS)


@pytest.mark.parametrize("mode", MODES)
def test_nobody_outside_hears_of_a_program(mode: str) -> None:
    assert succeeded(mode)[1] == 0


@pytest.mark.parametrize("mode", ["none, user", "landlock, user"])
def test_the_launcher_hides_by_itself_what_the_filter_also_keeps(mode: str) -> None:
    """Where the kernel has no filters, it does not show its descriptors and its memory to its own user."""
    got, _ = succeeded(mode, ("seccomp",))
    assert not {name for name in got if "launcher's descriptors" in name or "launcher's memory" in name}
    assert "traces the launcher" not in got


def test_the_attacks_succeed_where_nothing_stands_in_their_way() -> None:
    got, heard = succeeded("none, user", ("seccomp",))
    assert heard == 6
    assert got >= {
        "signals the launcher", "signals the launcher's thread", "signals the launcher's thread group",
        "signals the launcher through /proc", "signals the launcher through a pipe",
        "signals the group of the launcher", "slows its user's processes", "slows the launcher",
        "hides from its judge", "outlives its launcher", "is traced by the launcher", "has a sibling for a child",
        "has memory without a file", "has a System V segment", "has a System V semaphore", "has a System V queue",
        "has anonymous memory to share", "changes its personality", "connects by TCP", "sends by UDP",
        "sends a message by UDP", "connects to a path", "connects to a name", "sends to a path", "sends to a name",
        "has a socket for netlink",
    }  # fmt: skip


@pytest.mark.parametrize("mode", MODES)
def test_no_object_of_system_v_is_left(mode: str) -> None:
    before = [Path(f"/proc/sysvipc/{kind}").read_text() for kind in ("shm", "sem", "msg")]
    program = "import ctypes\nlibc = ctypes.CDLL(None)\n"
    program += "def f():\n    return [libc.shmget(0, 9, 0o1600), libc.semget(0, 1, 0o1600), libc.msgget(0, 0o1600)]\n"
    judge_in(mode, job(program, "f()"))
    assert [Path(f"/proc/sysvipc/{kind}").read_text() for kind in ("shm", "sem", "msg")] == before
