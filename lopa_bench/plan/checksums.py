"""Checksums of checkpoints, without torch. A file of 15 GB is read once, and again when it was touched."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from pathlib import Path

from lopa_bench.errors import CheckpointError
from lopa_bench.models.checkpoint.files import adapter_file, weight_files
from lopa_bench.models.checkpoint.folders import TEXTS
from tasks.remembered import keep, recall, said_if_slow

CHUNK = 1 << 22
NANOSECONDS = 1_000_000_000
TICK_NS = 20_000_000  # the kernel's clock of file times is coarser than nanoseconds: 1 to 10 ms
COARSE_TICK_NS = 2 * NANOSECONDS  # of file systems that keep whole seconds


def weights_sha256(folder: Path, lora: Path | None = None) -> str:
    """One SHA-256 over the weight files of a checkpoint and of its adapter, in order. Raises CheckpointError."""
    files = weight_files(folder) + ([adapter_file(lora)] if lora else [])
    try:
        return remembered_sha256(files)
    except OSError as error:
        raise CheckpointError(f"{error.filename or folder} cannot be read: {error.strerror}") from None


def texts_sha256(folder: Path, lora: Path | None = None) -> str:
    """One SHA-256 over the names and contents of all small files beside the weights. Raises CheckpointError."""
    digest = hashlib.sha256()
    for part in (folder, lora):
        for path in sorted({path for pattern in TEXTS for path in part.glob(pattern)} if part else ()):
            if path.is_dir():
                continue
            try:
                digest.update(f"{path.name}\0".encode() + path.read_bytes() + b"\0")
            except OSError as error:
                raise CheckpointError(f"{path} cannot be read: {error.strerror}") from None
    return digest.hexdigest()


def files_sha256(files: Sequence[Path]) -> str:
    """One SHA-256 over the bytes of some files, in order."""
    digest = hashlib.sha256()
    for path in files:
        with path.open("rb") as stream:
            while chunk := stream.read(CHUNK):
                digest.update(chunk)
    return digest.hexdigest()


def remembered_sha256(files: Sequence[Path]) -> str:
    """`files_sha256`, from memory if these are the same, untouched files: path, inode, size and both times agree.

    The time of the last change of an inode (ctime) is the kernel's: copying times along, or swapping names, changes it.
    """
    settled = _let_clock_tick(files)
    before = [_state(path) for path in files]
    known = recall("checksums", before)
    if isinstance(known, str):
        return known
    size = sum(path.stat().st_size for path in files) / 1e9
    with said_if_slow(f"reading {size:.1f} GB once, for a checksum"):
        sha256 = files_sha256(files)
    if settled and [_state(path) for path in files] == before:
        keep("checksums", before, sha256)
    return sha256


def _state(path: Path) -> list[str | int]:
    stat = path.stat()
    return [str(path.resolve()), stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns]


def _let_clock_tick(files: Sequence[Path]) -> bool:
    """Waits, if the files are of this moment, until a later change of them would have a later time than theirs.

    False if their times tell nothing: a clock that is behind them, a file system that knows no such time.
    """
    times = [path.stat().st_ctime_ns for path in files]
    newest = max(times, default=0)
    tick = COARSE_TICK_NS if newest % NANOSECONDS == 0 else TICK_NS
    age = time.time_ns() - newest
    if 0 <= age < tick:
        time.sleep((tick - age) / NANOSECONDS)
    return age >= 0 and all(times)
