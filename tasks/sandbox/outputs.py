"""Expected outputs on disk: one gzip file per problem, read one output at a time so that memory stays small."""

from __future__ import annotations

import gzip
import json
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import NamedTuple


class Expected(NamedTuple):
    kind: bytes  # wire.VALUE or wire.DIGEST
    payload: bytes


class OutputsError(Exception):
    """The file of expected outputs cannot be read."""


class OutputWriter:
    """Writes beside the final name and moves it there at the end, so that a file is whole or absent."""

    def __init__(self, path: str) -> None:
        self.path = Path(path)
        self._part = self.path.with_name(f"{self.path.name}.{os.getpid()}.part")

    def __enter__(self) -> OutputWriter:
        self._raw = open(self._part, "wb")
        # No name and no time inside, so that equal outputs give equal files.
        self._file = gzip.GzipFile(filename="", mode="wb", compresslevel=4, fileobj=self._raw, mtime=0)
        return self

    def add(self, kind: bytes, payload: bytes) -> None:
        self._file.write(json.dumps([kind.decode(), len(payload)]).encode() + b"\n" + payload)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
        self._raw.close()
        if kind is None:
            os.replace(self._part, self.path)
        else:
            self._part.unlink(missing_ok=True)


def read_outputs(path: str) -> Iterator[Expected]:
    """Endless, in that the end of the file is an error, too. Raises OutputsError."""
    try:
        with gzip.open(path, "rb") as file:
            while line := file.readline():
                kind, length = json.loads(line)
                payload = file.read(length)
                if len(payload) < length:
                    break
                yield Expected(kind.encode(), payload)
    except (OSError, EOFError, zlib.error, ValueError, TypeError) as error:
        raise OutputsError(f"{path}: {type(error).__name__}: {error}") from None
    raise OutputsError(f"{path}: it ends too early")
