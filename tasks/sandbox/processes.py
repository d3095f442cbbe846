"""Which processes descend from one, what memory they hold, and how to be rid of them, from /proc."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterable

ALONE_S, GIVE_UP_S = 0.3, 1.5
LAST = 19
PF_EXITING = 4
MANY = 500
LISTS_CHILDREN = os.path.exists("/proc/thread-self/children")  # an option of the kernel
# Descriptors that a process may have before each further one counts as the buffers that a socket can fill.
FREE_DESCRIPTORS, BUFFER_KB = 32, 208


def family(ancestor: int) -> list[int]:
    """All processes below `ancestor`, quickly: one that is just changing its parent may be missing.

    Not many more than MANY of them, for while they are read there may come others.
    """
    if not LISTS_CHILDREN:
        return descendants(ancestor)
    found = dict.fromkeys(_children(ancestor))
    for pid in (waiting := list(found)):
        fresh = [child for child in _children(pid) if child not in found]
        found.update(dict.fromkeys(fresh))
        waiting += fresh
        if len(found) > MANY:
            break
    return list(found)


def descendants(ancestor: int) -> list[int]:
    """All processes below `ancestor`. Orphans count while `ancestor` is a subreaper, for then they are its children."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit() and (parent := parent_of(int(name))) is not None:
            children.setdefault(parent, []).append(int(name))
    found = list(children.get(ancestor, ()))
    for pid in found:
        found += children.get(pid, ())
    return found


def memory_kb(pids: list[int]) -> int:
    """What these hold in memory and swap. Pages that several of them share are counted once for each."""
    return sum(_kilobytes(f"/proc/{pid}/status", ("VmRSS:", "VmSwap:")) for pid in pids)


def own_memory_kb(pids: list[int]) -> int:
    """The same, where a page that n processes share counts a nth for each; slow. Raises OSError where it is hidden."""
    return sum(_kilobytes(f"/proc/{pid}/smaps_rollup", ("Pss:", "SwapPss:"), strict=True) for pid in pids)


def buffers_kb(descriptors: int) -> int:
    """Memory of the kernel that a process with so many descriptors may have filled."""
    return max(0, descriptors - FREE_DESCRIPTORS) * BUFFER_KB


def kill_descendants(*first: int) -> int:
    """Kills `first`, then every process that still descends from this one, until none is left; returns the rest.

    With a process namespace the first kill ends them all. Without one a child may have left the group and the session,
    but its parent's death makes it a child of this process (a subreaper), so it is found. They are stopped before any
    is killed: a place that is taken by a stopped process is one that a fork bomb cannot use.
    """
    _signal(first, signal.SIGKILL)
    start = time.monotonic()
    while (pids := family(os.getpid())) and time.monotonic() < start + ALONE_S:  # the launcher ends what is below it
        _reap()
        time.sleep(0.002)
    while (pids := descendants(os.getpid())) and time.monotonic() < start + GIVE_UP_S:
        stopped: set[int] = set()
        while (fresh := set(pids) - stopped) and time.monotonic() < start + GIVE_UP_S:
            _signal(fresh, signal.SIGSTOP)
            stopped |= fresh
            pids = descendants(os.getpid())
        _signal(stopped, signal.SIGKILL)
        _reap()
        time.sleep(0.002)
    return len(pids)


def make_way(pids: Iterable[int]) -> None:
    """Lets everybody else go first, and so whoever has to end these, if they are many."""
    for pid in pids:
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, pid, LAST)


def is_running(pid: int) -> bool:
    """Whether a process runs or is ready to run."""
    return _stat(pid)[:1] == [b"R"]


def is_ending(pid: int) -> bool:
    """Whether a process has ended or is about to; the kernel then shows its files to nobody but root."""
    fields = _stat(pid)
    return not fields or fields[0] in (b"Z", b"X") or bool(int(fields[6]) & PF_EXITING)


def tasks_of(uid: int) -> int:
    """How many processes and threads a user has on this machine, which is what the kernel limits."""
    count = 0
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError, ValueError), open(f"/proc/{name}/status", encoding="latin-1") as file:
                fields = dict(line.split(":", 1) for line in file if line.startswith(("Uid:", "Threads:")))
                count += int(fields["Threads"]) if int(fields["Uid"].split()[0]) == uid else 0
    return count


def parent_of(pid: int) -> int | None:
    fields = _stat(pid)
    return int(fields[1]) if fields else None


def group_of(pid: int) -> int | None:
    fields = _stat(pid)
    return int(fields[2]) if fields else None


def _children(pid: int) -> list[int]:
    found: list[int] = []
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{thread}/children", "rb") as file:
                found += map(int, file.read().split())
    return found


def _kilobytes(path: str, names: tuple[str, ...], strict: bool = False) -> int:
    try:
        with open(path, encoding="latin-1") as file:  # a program can give itself any bytes as a name
            return sum(int(line.split()[1]) for line in file if line.startswith(names))
    except (FileNotFoundError, ProcessLookupError):
        return 0  # it has ended
    except OSError:
        if strict:
            raise
        return 0


def _stat(pid: int) -> list[bytes]:
    """The fields of /proc/<pid>/stat after the command: state, parent, group, ..."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()
    except OSError:
        return []


def _signal(pids: Iterable[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def _reap() -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
