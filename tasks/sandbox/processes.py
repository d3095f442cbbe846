"""Which processes descend from one, how much memory they hold, and how to be rid of them, from /proc."""

from __future__ import annotations

import contextlib
import os
import signal
import time

PAGE_KB = os.sysconf("SC_PAGE_SIZE") // 1024
GIVE_UP_S = 3.0


def descendants(ancestor: int) -> list[int]:
    """All processes below `ancestor`. Orphans count while `ancestor` is a subreaper, for then they are its children."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit() and (parent := _parent(int(name))) is not None:
            children.setdefault(parent, []).append(int(name))
    found = list(children.get(ancestor, ()))
    for pid in found:
        found += children.get(pid, ())
    return found


def memory_kb(pids: list[int]) -> int:
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError), open(f"/proc/{pid}/statm") as file:
            total += int(file.read().split()[1]) * PAGE_KB
    return total


def kill_descendants(first: int) -> int:
    """Kills `first`, then every process that still descends from this one, until none is left; returns the rest.

    With a process namespace the first kill ends them all. Without one a child may have left the group and the session,
    but its parent's death makes it a child of this process (a subreaper), so it is found.
    """
    end = time.monotonic() + GIVE_UP_S
    pids = [first]
    while pids and time.monotonic() < end:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        _reap()
        pids = descendants(os.getpid())
        if pids:
            time.sleep(0.002)
    return len(pids)


def is_running(pid: int) -> bool:
    """Whether a process runs, is ready to run, or waits for a disk."""
    fields = _stat(pid)
    return bool(fields) and fields[0] in (b"R", b"D")


def _parent(pid: int) -> int | None:
    fields = _stat(pid)
    return int(fields[1]) if fields else None


def _stat(pid: int) -> list[bytes]:
    """The fields of /proc/<pid>/stat after the command: state, parent, ..."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()
    except OSError:
        return []


def _reap() -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
