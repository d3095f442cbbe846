"""A lock on a run folder, so that two processes never write the same run.

The lock belongs to the process (POSIX record lock): the kernel drops it however the process ends, kill -9 included, and
children do not inherit it. It holds across machines where the file system passes record locks on (NFS does; see
docs/sweeps.md). Where there is no `fcntl` (Windows) there is no lock.
"""

from __future__ import annotations

import errno
import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from lopa_bench.errors import Locked
from lopa_bench.system.clock import now
from lopa_bench.system.storage import written

try:
    import fcntl
except ImportError:  # pragma: no cover  # Windows, where runs go unlocked
    fcntl = None  # type: ignore[assignment]  # a module or nothing

NAME = ".lock"  # hidden: readers of parquet folders (pyarrow, pandas) take every other file for data
TAKEN = (errno.EACCES, errno.EAGAIN)  # what a lock that another process holds is answered with
TRIES, PAUSE = 5, 0.05  # a reader that asks `is_locked` holds the lock for an instant


class Lock:
    """The lock of one folder, from `Lock(folder)` until `release`. Raises Locked at once if it is taken, StorageError
    if the folder cannot be written or its file system has no locks.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / NAME
        self._file: IO[str] | None = None
        with written(self.path):
            self._file = open(self.path, "a+", encoding="utf-8")  # noqa: SIM115  # closing it would drop the lock
            try:
                _take(self._file)
            except OSError as error:
                holder = _words(self._file)
                self.release()
                if error.errno not in TAKEN:
                    raise
                raise Locked(f"{self.path} is held by {holder}: the same run is under way there") from None
        with suppress(OSError):  # whose it is helps who waits for it; the lock holds without (a full disk)
            self._file.truncate(0)
            json.dump(_this_process(), self._file)
            self._file.flush()

    def release(self) -> None:
        if self._file:
            with suppress(OSError):  # what is still to be written finds no room
                self._file.close()
            self._file = None


def is_locked(folder: Path) -> bool:
    """Whether another process works in the folder. Never to be asked by the process that holds the lock."""
    if fcntl is None:
        return False
    try:
        with open(folder / NAME, "rb") as file:
            fcntl.lockf(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:  # an archive may have no such file, or one that is not to be read, or a disk without locks
        return error.errno in TAKEN and os.access(folder / NAME, os.R_OK)
    return False


@contextmanager
def brief_lock(path: Path) -> Iterator[None]:
    """Waits for its turn: for the moment in which a process looks for a folder or makes one.

    Whoever may write the folder may lock it, whoever made the file. Raises StorageError.
    """
    with written(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        file = open(path, "ab")  # noqa: SIM115  # closed below
    with file:
        if fcntl:
            with suppress(OSError):
                os.fchmod(file.fileno(), path.parent.stat().st_mode & 0o666)
            with written(path):
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
    return {"pid": os.getpid(), "host": socket.gethostname(), "since": now()}


def _words(file: IO[str]) -> str:
    """Who holds the lock, as it wrote itself into the file."""
    with suppress(OSError, ValueError, KeyError):
        file.seek(0)
        holder = json.load(file)
        return f"process {holder['pid']} on {holder['host']} since {holder['since']}"
    return "another process"
