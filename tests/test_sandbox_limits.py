"""The limits hold for all processes of a program together, in every mode, and nothing of it is left."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tasks.sandbox import Limits, Verdict
from tests.sandbox_modes import CONFINED, MODES, command, job, judge_in, open_folder, unavailable
from tests.test_sandbox import alive

# One of each kind of scratch folder and of user.
SOME = ["namespaces, user", "landlock, root", "none, user"]
LIMITS = Limits(cpu_s=1, wall_s=2, memory_mb=256)
LATE_S = 2.0

FORK_BOMBS = {
    "forks for ever": "while True:\n    try: os.fork()\n    except OSError: pass\n",
    "forks and leaves its session": (
        "while True:\n    try:\n        if os.fork() == 0: os.setsid(); os.fork()\n    except OSError: pass\n"
    ),
    "forks daemons that sleep": (
        "while True:\n    try:\n        if os.fork() == 0:\n            os.setsid()\n"
        "            if os.fork() == 0: time.sleep(60)\n            os._exit(0)\n    except OSError: pass\n"
    ),
    "forks what stops at once and starts anew": (
        "signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"
        "while True:\n    try:\n        if os.fork() == 0: os.fork(); os._exit(0)\n    except OSError: pass\n"
    ),
    "ignores every signal": (
        "for n in range(1, 65):\n    try: signal.signal(n, signal.SIG_IGN)\n    except (OSError, ValueError): pass\n"
        "while True:\n    try: os.fork()\n    except OSError: pass\n"
    ),
    "starts threads for ever": (
        "while True:\n    try: threading.Thread(target=time.sleep, args=(60,)).start()\n    except RuntimeError: pass\n"
    ),
    "starts children by vfork": (
        "libc = ctypes.CDLL(None)\nwhile True:\n    if libc.syscall(ctypes.c_long(58)) == 0: libc.sleep(60)\n"
        if os.uname().machine == "x86_64"
        else "while True: subprocess.Popen(['sleep', '60'])\n"
    ),
}  # fmt: skip
SLOW = {
    "lets its children compute": (
        "for _ in range(20):\n    if os.fork() == 0:\n        while True: pass\nwhile True: pass\n"
    ),
    "waits for the disk": "while True:\n    with open('f', 'w') as f:\n        f.write('x')\n        os.fsync(f)\n",
    "answers with what takes long to compare": (
        "answer = ('{\"r\":[0,' + str(10**12) + ',1]}').encode()\n"
        "os.write(4, __import__('struct').pack('<cdQ', b'V', 0.0, len(answer)) + answer)\ntime.sleep(60)\n"
    ),
    "stays silent when all is done": "threading.Thread(target=lambda: os.read(3, 99)).start()\ntime.sleep(60)\n",
    "closes the channel and stays": "os.close(3)\nos.close(4)\ntime.sleep(60)\n",
}
HOARDS = {
    "in children": (
        "for _ in range(20):\n    if os.fork() == 0:\n        kept = b'x' * (100 << 20)\n        time.sleep(60)\n"
        "time.sleep(60)\n"
    ),
    "in children of children": (
        "def grow(left):\n    if left and os.fork() == 0:\n        grow(left - 1)\n        kept = b'x' * (60 << 20)\n"
        "        time.sleep(60)\ngrow(20)\ntime.sleep(60)\n"
    ),
    "in buffers of sockets": (
        "for _ in range(40):\n    if os.fork() == 0:\n        pairs = [socket.socketpair() for _ in range(100)]\n"
        "        for one in sum(pairs, ()):\n            one.setblocking(False)\n"
        "            try:\n                while True: one.send(bytes(1 << 16))\n            except OSError: pass\n"
        "        time.sleep(60)\ntime.sleep(60)\n"
    ),
}
MUCH = "data = bytes(16 << 20)\n"
WRITES = {
    "large files": MUCH + "for n in range(12): open(f'f{n}', 'wb').write(data)\n",
    "files in folders": MUCH + "for n in range(12): os.makedirs(f'a/{n}'); open(f'a/{n}/f', 'wb').write(data)\n",
    "small files": "for n in range(5000): open(f'f{n}', 'w').close()\n",
    "folders": "for n in range(5000): os.mkdir(f'd{n}')\n",
    "links": "open('f', 'w').close()\nfor n in range(5000): os.link('f', f'l{n}')\n",
    "symbolic links": "for n in range(5000): os.symlink('f', f'l{n}')\n",
    "open files without a name": (
        MUCH + "kept = []\nfor n in range(12):\n    kept.append(open('f', 'wb', 0))\n"
        "    os.remove('f')\n    kept[-1].write(data)\n"
    ),
    "files that never had a name": (
        MUCH
        + "kept = [os.open('.', os.O_TMPFILE | os.O_RDWR) for n in range(12)]\nfor fd in kept: os.write(fd, data)\n"
    ),
    "mapped files without a name": (
        MUCH + "kept = []\nfor n in range(12):\n    with open('f', 'wb+', 0) as f:\n        f.write(data)\n"
        "        kept.append(mmap.mmap(f.fileno(), 4096))\n        os.remove('f')\n"
    ),
    "files in a folder without rights": (
        MUCH + "os.mkdir('d')\nkept = []\nfor n in range(12): open(f'd/{n}', 'wb').write(data)\nos.chmod('d', 0)\n"
    ),
    "files deeper than a path is long": (
        MUCH + "for n in range(30): os.mkdir('d' * 200); os.chdir('d' * 200)\n"
        "for n in range(12): open(f'f{n}', 'wb').write(data)\n"
    ),
    "files of its children": (
        MUCH
        + "for n in range(12):\n    if os.fork() == 0:\n        open(f'f{n}', 'wb').write(data)\n        os._exit(0)\n"
        "    os.wait()\n"
    ),
}
NAME = f"lopa_test_{os.getpid()}"[:15]
HEAD = "import ctypes, mmap, os, signal, socket, subprocess, sys, threading, time\n"
HEAD += f"ctypes.CDLL(None).prctl(15, {NAME.encode()!r})\n"


def cases(table: dict[str, str]) -> list[Any]:
    """The first case in all modes, each other one in one of some modes, and in the rest of those if there is time."""
    first, *others = table
    found: list[Any] = [(mode, first) for mode in MODES]
    for number, name in enumerate(others):
        marks = [[] if place == number % len(SOME) else [pytest.mark.slow] for place in range(len(SOME))]
        found += [pytest.param(mode, name, marks=mark) for mode, mark in zip(SOME, marks, strict=True)]
    return found


def program(body: str, result: str = "1") -> str:
    return f"{HEAD}def f():\n" + "".join(f"    {line}\n" for line in body.splitlines()) + f"    return {result}\n"


def judged(mode: str, body: str, limits: Limits = LIMITS) -> Verdict:
    verdict = judge_in(mode, job(program(body), "assert f() == 1"), limits)
    assert verdict.wall_s < limits.wall_s + LATE_S, verdict
    assert verdict.status not in ("pass", "sandbox"), verdict
    return verdict


def left_behind() -> list[str]:
    """Processes of the programs of this test; they carry its name from fork to fork."""
    found = []
    for path in Path("/proc").glob("[0-9]*/comm"):
        try:
            if path.read_bytes().strip() == NAME.encode():  # other processes may be called by any bytes
                found.append(path.parent.name)
        except OSError:
            continue
    return found


@pytest.mark.parametrize(("mode", "bomb"), cases(FORK_BOMBS))
def test_a_fork_bomb_ends_within_its_limit(mode: str, bomb: str) -> None:
    judged(mode, FORK_BOMBS[bomb])
    assert not left_behind()


@pytest.mark.parametrize(("mode", "how"), cases(SLOW))
def test_a_program_cannot_stretch_its_time(mode: str, how: str) -> None:
    judged(mode, SLOW[how])


@pytest.mark.parametrize(("mode", "where"), cases(HOARDS))
def test_memory_is_counted_wherever_it_is(mode: str, where: str) -> None:
    assert judged(mode, HOARDS[where], Limits(cpu_s=10, wall_s=20, memory_mb=256)).status == "memory"


@pytest.mark.parametrize(("mode", "what"), cases(WRITES))
def test_the_scratch_folder_is_bounded(mode: str, what: str) -> None:
    assert judged(mode, WRITES[what], Limits()).status in ("error", "exit")


@pytest.mark.parametrize("mode", MODES)
def test_a_sparse_file_is_as_large_as_what_is_in_it(mode: str) -> None:
    body = "for n in range(9):\n    with open(f'f{n}', 'wb') as f: f.truncate(30 << 20)\n"
    assert judge_in(mode, job(program(body), "assert f() == 1")).status == "pass"


@pytest.mark.parametrize("mode", MODES)
def test_children_that_left_everything_are_gone(mode: str) -> None:
    body = (
        "if os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n        os.chdir('/')\n"
        "        os.execv('/bin/sleep', ['sleep', '64.125'])\n    os._exit(0)\nos.wait()\n"
    )
    assert judge_in(mode, job(program(body), "assert f() == 1")).status == "pass"
    assert not alive("64.125")


@pytest.mark.parametrize("mode", MODES)
def test_an_interrupted_harness_leaves_no_process(mode: str) -> None:
    """Killed, it cannot clean up; its judges and their programs end all the same."""
    if reason := unavailable(mode):
        pytest.skip(reason)
    body = "if os.fork() == 0:\n    os.setsid()\n    time.sleep(60)\ntime.sleep(60)"
    code = f"from tasks.sandbox import run_job\nrun_job({job(program(body), 'f()')!r}, without={MODES[mode].without!r})"
    given = command(mode, code)
    with subprocess.Popen(**given) as harness:
        _until(lambda: len(left_behind()) == 2)
        harness.kill()
    _until(lambda: not left_behind())


def _until(holds: Callable[[], bool], seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.mark.parametrize("mode", CONFINED)
def test_no_file_is_left(mode: str) -> None:
    with open_folder() as folder:
        body = f"places = ['/tmp', '/var/tmp', '/dev/shm', {str(folder)!r}]\nfor place in places:\n"
        body += "    try: open(place + '/lopa_bench_was_here', 'w').close()\n    except OSError: pass\n"
        assert judge_in(mode, job(program(body), "assert f() == 1")).status == "pass"
        for place in ("/tmp", "/var/tmp", "/dev/shm", folder):
            assert not Path(place, "lopa_bench_was_here").exists()


@pytest.mark.parametrize("mode", MODES)
def test_killing_all_that_it_can_never_makes_a_program_unjudged(mode: str) -> None:
    body = (
        "for pid in [-1, os.getppid(), *range(1, 5)]:\n    for n in (15, 9, 19):\n"
        "        try: os.kill(pid, n)\n        except OSError: pass\n"
    )
    with open_folder() as folder:
        bystander = command(mode, f"import time; open({str(folder / 'up')!r}, 'w'); time.sleep(60)")
        if reason := unavailable(mode):
            pytest.skip(reason)
        with subprocess.Popen(**bystander) as process:
            _until((folder / "up").exists)
            verdict = judge_in(mode, job(program(body), "assert f() == 1"))
            assert process.poll() is None
            process.kill()
    assert verdict.status != "sandbox"


LEGITIMATE = {
    "threads": "got = []\nts = [threading.Thread(target=got.append, args=(n,)) for n in range(8)]\n"
    "for t in ts: t.start()\nfor t in ts: t.join()\nassert sorted(got) == list(range(8))\n",
    "a process": "import multiprocessing as m\na, b = m.Pipe()\np = m.Process(target=b.send, args=([1, 2],))\n"
    "p.start()\nassert a.recv() == [1, 2]\np.join()\nassert p.exitcode == 0\n",
    "a command": "assert subprocess.run(['echo', 'hi'], capture_output=True, text=True).stdout == 'hi\\n'\n",
    "a command that takes too long": (
        "try: subprocess.run(['sleep', '9'], timeout=0.1)\nexcept subprocess.TimeoutExpired: pass\n"
    ),
    "sockets": "a, b = socket.socketpair()\na.sendall(b'x')\nassert b.recv(1) == b'x'\n"
    "for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM): socket.socket(socket.AF_INET, kind).close()\n",
    "temporary files": "import tempfile\nwith tempfile.TemporaryDirectory() as d: open(d + '/f', 'w').write('x')\n"
    "with tempfile.TemporaryFile() as f: f.write(b'x')\n",
    "a mapped file": "with open('f', 'wb+') as f:\n    f.truncate(4096)\n    m = mmap.mmap(f.fileno(), 4096)\n"
    "    m[0] = 1\n    m.close()\n",
    "an event loop": "import asyncio\nassert asyncio.run(asyncio.sleep(0, 5)) == 5\n",
    "its own limits": "import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (99, 99))\n"
    "os.sched_setaffinity(0, os.sched_getaffinity(0))\nos.nice(1)\nsys.setrecursionlimit(9999)\n",
    "a signal of its own": "hits = []\nsignal.signal(signal.SIGUSR1, lambda *a: hits.append(1))\n"
    "os.kill(os.getpid(), signal.SIGUSR1)\nsignal.raise_signal(signal.SIGUSR1)\nassert len(hits) == 2\n"
    "signal.setitimer(signal.ITIMER_REAL, 9)\n",
    "a child that it ends": "pid = os.fork()\nif pid == 0: time.sleep(60)\nos.kill(pid, 9)\n"
    "assert os.waitstatus_to_exitcode(os.wait()[1]) == -9\n",
}


@pytest.mark.parametrize("mode", MODES)
def test_what_an_honest_program_does_is_allowed(mode: str) -> None:
    tests = []
    text = HEAD
    for number, body in enumerate(LEGITIMATE.values()):
        text += f"def f{number}():\n" + "".join(f"    {line}\n" for line in body.splitlines()) + "    return 1\n"
        tests.append(f"assert f{number}() == 1")
    text += "def f(): pass\n"
    names = [f"f{number}" for number in range(len(LEGITIMATE))]
    verdict = judge_in(mode, {**job(text, *tests), "names": names})
    assert verdict.status == "pass", (list(LEGITIMATE)[verdict.passed], verdict)
