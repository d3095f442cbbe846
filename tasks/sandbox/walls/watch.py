"""Limits that hold for all processes of a program together. The kernel's own hold for one process each."""

from __future__ import annotations

import contextlib
import os
from typing import Any

from tasks.sandbox import processes
from tasks.sandbox.ended import Ended
from tasks.sandbox.walls import linux, scratch

SLACK, SLACK_KB = 1.25, 100_000  # shared pages are counted more than once, and the interpreter is counted, too
MORE_PROCESSES = 8  # of the sandbox itself, and such as are just ending
FEW = 8  # an honest program has no more; this many could crowd out who watches them
LAUNCHER = 2  # processes of the launcher come before the worker


class Watch:
    """Looks at the processes below this one. `folder` is a scratch folder that must be counted, or None.

    `uid` is that of the program, where it is another than this process has.
    """

    def __init__(self, limits: dict[str, Any], folder: str | None, uid: int | None) -> None:
        self.limits = limits
        self.folder = folder
        family = processes.family(os.getpid())
        if len(family) <= LAUNCHER:
            raise RuntimeError("the interpreter has ended before it began")
        self.launcher, self.worker = family[:LAUNCHER], family[LAUNCHER]
        self.uid = None if _shows_files(self.worker) else uid
        with self._sight():
            self.sees_files = _shows_files(self.worker)
        self._untouched = self._changed()

    def look(self) -> None:
        """Raises Ended where a limit is passed."""
        family = processes.family(os.getpid())
        if len(family) > self.limits["processes"] + MORE_PROCESSES:
            raise Ended("error", f"{len(family)} processes")
        programs = [pid for pid in family if pid not in self.launcher]
        if len(programs) > FEW:
            processes.make_way(programs)
        with self._sight():
            self._look_at_memory(family, programs)
            if self.folder is not None and self.sees_files and self._changed() != self._untouched:
                self._look_at_files(self.folder, programs)

    def waits_for_the_processor(self) -> bool:
        """Whether the program only had too little of a busy machine: it is running, or ready to.

        If so, its CPU limit will end it. One that has children may be waiting for its own.
        """
        return processes.family(os.getpid())[LAUNCHER:] == [self.worker] and processes.is_running(self.worker)

    def _look_at_memory(self, family: list[int], programs: list[int]) -> None:
        most = self.limits["memory_mb"] * 1024 * SLACK + SLACK_KB
        buffers = sum(processes.buffers_kb(_descriptors(pid)) for pid in programs)
        total = processes.memory_kb(family) + buffers
        if total > most and len(programs) <= FEW:
            with contextlib.suppress(OSError):
                total = processes.own_memory_kb(programs) + buffers
        if total > most:
            raise Ended("memory", "all its processes together passed the memory limit")

    def _look_at_files(self, folder: str, programs: list[int]) -> None:
        try:
            scratch.check(folder, programs, self.limits["file_mb"])
        except scratch.TooMuch as error:
            raise Ended("error", str(error)) from None
        except PermissionError:
            raise Ended("error", "a process of it hides its files") from None

    def _changed(self) -> int:
        """When a name was last made in the folder or taken out of it; a program cannot set that."""
        return 0 if self.folder is None else os.stat(self.folder).st_ctime_ns

    def _sight(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext() if self.uid is None else linux.seeing_as(self.uid)


def _descriptors(pid: int) -> int:
    try:
        return len(os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        return 0


def _shows_files(pid: int) -> bool:
    try:
        os.stat(f"/proc/{pid}/fd/0")
    except OSError:
        return False
    return True
