"""Checksums of checkpoints, without torch. A file of 15 GB is read once: sums are remembered by path, size and time."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from lopa_bench.models.errors import CheckpointError

TEXTS = ("*.json", "*.txt", "*.model", "*.jinja")  # tokenizer, chat template, sizes: they decide ids as weights do
CHUNK = 1 << 22


def weights_sha256(folder: Path, lora: Path | None = None) -> str:
    """One SHA-256 over the weight files of a checkpoint and of its adapter, in order. Raises CheckpointError."""
    files = weight_files(folder) + (sorted(lora.glob("adapter_model*.safetensors")) if lora else [])
    return remembered_sha256(files)


def texts_sha256(folder: Path, lora: Path | None = None) -> str:
    """One SHA-256 over the names and contents of all small files beside the weights."""
    digest = hashlib.sha256()
    for part in (folder, lora):
        for path in sorted({path for pattern in TEXTS for path in part.glob(pattern)} if part else ()):
            digest.update(f"{path.name}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files of a checkpoint, by its index if it has one. Raises CheckpointError."""
    index = folder / "model.safetensors.index.json"
    try:
        named = sorted(set(json.loads(index.read_text())["weight_map"].values())) if index.exists() else None
    except (ValueError, KeyError):
        raise CheckpointError(f"{index} is not a valid index of weight files") from None
    files = sorted(folder.glob("model*.safetensors")) if named is None else [folder / name for name in named]
    missing = [str(path) for path in files if not path.exists()]
    if missing or not files:
        raise CheckpointError(
            f"{folder}: {'missing ' + ', '.join(missing) if missing else 'no model*.safetensors file'}"
        )
    return files


def files_sha256(files: Sequence[Path]) -> str:
    """One SHA-256 over the bytes of some files, in order."""
    digest = hashlib.sha256()
    for path in files:
        with path.open("rb") as stream:
            while chunk := stream.read(CHUNK):
                digest.update(chunk)
    return digest.hexdigest()


def remembered_sha256(files: Sequence[Path]) -> str:
    """`files_sha256`, from memory if no file has changed its size or time since."""
    facts = [(str(path.resolve()), (stat := path.stat()).st_size, stat.st_mtime_ns) for path in files]
    name = hashlib.sha256(json.dumps(facts).encode()).hexdigest()
    memory = _memory() / name
    with suppress(OSError, ValueError):
        return _valid(memory.read_text())
    sha256 = files_sha256(files)
    with suppress(OSError):  # a home that cannot be written costs time, not the run
        memory.parent.mkdir(parents=True, exist_ok=True)
        unfinished = memory.with_suffix(f".{os.getpid()}")
        unfinished.write_text(sha256)
        unfinished.replace(memory)
    return sha256


def _valid(text: str) -> str:
    if len(bytes.fromhex(text)) != 32:
        raise ValueError("no SHA-256")
    return text


def _memory() -> Path:
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(cache).expanduser() / "lopa_bench" / "checksums"
