"""Output that cannot end a run: whatever stdout and stderr are, writing to them neither raises nor loses a verdict."""

from __future__ import annotations

import codecs
import io
import os
import select
import sys
from contextlib import suppress
from typing import TextIO

PLAIN = "lopa_bench.plain"  # the error handler for characters that an encoding lacks
_SIGNS = str.maketrans({"–": "-", "−": "-", "×": "x", "…": "...", "·": ".", "━": "-", "’": "'", "‘": "'"})


class Forgiving(io.FileIO):
    """Bytes to a descriptor. After the first error (a closed pipe, a full disk) what is written is dropped.

    `failure` is that error; None as long as all could be written.
    """

    failure: OSError | None = None
    replaced: TextIO | None = None  # kept, since it would close the descriptor with its end

    def write(self, data: object, /) -> int:
        size = memoryview(data).nbytes  # type: ignore[arg-type]  # any buffer
        while self.failure is None:
            try:
                written = super().write(data)  # type: ignore[arg-type]
            except OSError as error:
                self.failure = error
            else:
                if written is not None:
                    return written
                select.select([], [self], [])  # somebody made the descriptor non-blocking, and it is full
        return size


def secure() -> None:
    """Makes sys.stdout and sys.stderr forgiving, in their own encoding. To be called before anything is opened.

    A standard descriptor that is closed is opened on the null device: the next file would else take its number, and
    get what is printed.
    """
    codecs.register_error(PLAIN, _plain)
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, which is this one
            os.set_inheritable(number, True)
        if number:
            stream = getattr(sys, name)
            if stream is None or (_descriptor(stream) == number and _raw(stream) is None):
                setattr(sys, name, _forgiving(number, stream))


def failure(stream: TextIO | None) -> OSError | None:
    """Why something could not be written to this stream, as far as it is known."""
    raw = _raw(stream)
    if stream is None or raw is None:
        return None
    stream.flush()
    return raw.failure


def _forgiving(number: int, stream: TextIO | None) -> TextIO:
    if stream is not None:
        with suppress(OSError, ValueError):
            stream.flush()
    raw = Forgiving(number, "wb", closefd=False)
    raw.replaced = stream
    encoding = getattr(stream, "encoding", None) or "utf-8"
    at_once = getattr(stream, "line_buffering", True) or getattr(stream, "write_through", True)
    return io.TextIOWrapper(io.BufferedWriter(raw), encoding, PLAIN, line_buffering=at_once)


def _raw(stream: TextIO | None) -> Forgiving | None:
    raw = getattr(getattr(stream, "buffer", None), "raw", None)
    return raw if isinstance(raw, Forgiving) else None


def _descriptor(stream: TextIO) -> int | None:
    try:
        return stream.fileno()
    except (OSError, ValueError, AttributeError):
        return None


def _plain(error: UnicodeError) -> tuple[str, int]:
    """Signs that a table is made of as their nearest in ASCII, all others escaped."""
    assert isinstance(error, UnicodeEncodeError)
    text = error.object[error.start : error.end].translate(_SIGNS)
    return text.encode("ascii", "backslashreplace").decode("ascii"), error.end
