"""Writing files of a run: whole or not at all, and one clear sentence where a place cannot be written.

A disk that is full, a folder of somebody else, a file where a folder should be: the user can mend all of these, so they
are a `StorageError` whose message names the path.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from lopa_bench.errors import StorageError

ALLOWED = "allowed: run.out=<a folder that can be written, on a disk with room>"


@contextmanager
def written(path: Path) -> Iterator[None]:
    """Makes a StorageError of what the system refuses while this path is written."""
    with _named(path, "written", ALLOWED):
        yield


@contextmanager
def opened(path: Path) -> Iterator[None]:
    """Makes a StorageError of what the system refuses while this path is read, but for its not being there."""
    try:
        with _named(path, "read", "allowed: files that can be read"):
            yield
    except StorageError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            raise error.__cause__ from None
        raise


@contextmanager
def _named(path: Path, verb: str, allowed: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno is None:  # no word of the system, but of a library about what it was given
            raise
        raise StorageError(f"{path} cannot be {verb} ({os.strerror(error.errno)}); {allowed}") from error


@contextmanager
def whole_file(path: Path) -> Iterator[IO[bytes]]:
    """A file that appears under its name when it is complete and on the disk, and never otherwise."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with written(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with open(temporary, "wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
        _sync_folder(path.parent)


def _sync_folder(path: Path) -> None:
    """The new name is durable only once its folder is."""
    if os.name != "posix":
        return
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
