"""A lock on a run folder, so that two processes never write the same run.

The lock belongs to the process (POSIX record lock): the kernel drops it however the process ends, kill -9 included, and
children do not inherit it. It holds across machines where the file system passes record locks on (NFS does; see
docs/sweeps.md). Where there is no `fcntl` (Windows) there is no lock.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

try:
    import fcntl
except ImportError:  # pragma: no cover  # Windows, where runs go unlocked
    fcntl = None  # type: ignore[assignment]  # a module or nothing

NAME = "lock"
TRIES, PAUSE = 5, 0.05  # a reader that asks `is_locked` holds the lock for an instant


class Locked(RuntimeError):
    """Another process holds the lock; the message names the file and the holder."""


class Lock:
    """The lock of one folder, from `Lock(folder)` until `release`. Raises Locked at once if it is taken."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / NAME
        self._file: IO[str] | None = open(self.path, "a+")  # noqa: SIM115  # closing it would drop the lock
        try:
            _take(self._file)
        except OSError:
            holder = _words(self._file)
            self.release()
            raise Locked(f"{self.path} is held by {holder}: the same run is under way there") from None
        self._file.truncate(0)
        json.dump(_this_process(), self._file)
        self._file.flush()

    def release(self) -> None:
        if self._file:
            self._file.close()
            self._file = None


def is_locked(folder: Path) -> bool:
    """Whether another process works in the folder. Never to be asked by the process that holds the lock."""
    if fcntl is None:
        return False
    with suppress(FileNotFoundError), open(folder / NAME) as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
    return False


@contextmanager
def brief_lock(path: Path) -> Iterator[None]:
    """Waits for its turn: for the moment in which a process looks for a folder or makes one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a") as file:
        if fcntl:
            fcntl.lockf(file, fcntl.LOCK_EX)
        yield


def _take(file: IO[str]) -> None:
    """Raises OSError if the lock stays taken."""
    for attempt in range(TRIES if fcntl else 0):
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except OSError:
            if attempt == TRIES - 1:
                raise
            time.sleep(PAUSE)


def _this_process() -> dict[str, object]:
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return {"pid": os.getpid(), "host": socket.gethostname(), "since": now}


def _words(file: IO[str]) -> str:
    """Who holds the lock, as it wrote itself into the file."""
    with suppress(OSError, ValueError, KeyError):
        file.seek(0)
        holder = json.load(file)
        return f"process {holder['pid']} on {holder['host']} since {holder['since']}"
    return "another process"
