"""Frames between the judge and the worker: one letter, a time, the length of the payload, the payload.

This file is sent to the worker as source text, so it imports nothing of this project.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable

HEADER = struct.Struct("<cdQ")

# judge -> worker
LOAD = b"L"  # the program, run in a fresh module
SETUP = b"X"  # more code for the same module
GET = b"G"  # the value of a global name
CALL = b"C"  # {"f": name or handle, "a": arguments, "k": keyword arguments, "cpu": seconds or null}
# worker -> judge
READY = b"R"
VALUE = b"V"  # an encoded value
DIGEST = b"D"  # the sha256 of an encoded value that is too large to send
MODULE = b"M"  # the name is bound to this module
ERROR = b"E"  # {"type", "bases", "text", "stage"}, stage one of compile, load, run, result

LARGE_VALUE = 32 << 20
OUT_OF_MEMORY = 86  # the worker's exit status when not even the report of a MemoryError fits


def pack(kind: bytes, payload: bytes, seconds: float = 0.0, _pack: Callable[..., bytes] = HEADER.pack) -> bytes:
    return _pack(kind, seconds, len(payload)) + payload


def write_all(fd: int, data: bytes, _write: Callable[[int, memoryview], int] = os.write) -> None:
    """Writes to a blocking descriptor. The default argument keeps os.write as it was before any solution ran."""
    view = memoryview(data)
    while view:
        view = view[_write(fd, view) :]


def read_exactly(fd: int, count: int, _read: Callable[[int, int], bytes] = os.read) -> bytes:
    """Reads from a blocking descriptor; an empty result means the end."""
    parts = []
    while count:
        part = _read(fd, min(count, 1 << 20))
        if not part:
            return b""
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def read_frame(fd: int) -> tuple[bytes, bytes] | None:
    header = read_exactly(fd, HEADER.size)
    if not header:
        return None
    kind, _, length = HEADER.unpack(header)
    return kind, read_exactly(fd, length)
