"""What took long to find out once, kept between runs, and a word on what takes long now.

A fact is found again by all that it follows from: contents, code, versions. The folder is $LOPA_BENCH_CACHE, else
$XDG_CACHE_HOME/lopa_bench, else ~/.cache/lopa_bench. It may be missing, damaged or not writable at any time: then
things are found out again, which costs time and nothing else.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

PATIENCE_SECONDS = 1.0


def cache_folder() -> Path | None:
    """Where facts are kept; None where there is no home. It need not exist."""
    own, general = os.environ.get("LOPA_BENCH_CACHE"), os.environ.get("XDG_CACHE_HOME")
    try:
        return Path(own).expanduser() if own else Path(general or "~/.cache").expanduser() / "lopa_bench"
    except RuntimeError:  # no HOME, and no entry of this user from which it could be known
        return None


def recall(kind: str, facts: Any) -> Any:
    """The value that was kept for these facts (plain JSON data), or None. A damaged entry is none."""
    with suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
        path = _path(kind, facts)
        if path is not None:
            entry = json.loads(path.read_text("utf-8"))
            if entry["sha256"] == _sha256([facts, entry["value"]]):
                return entry["value"]
    return None


def keep(kind: str, facts: Any, value: Any) -> None:
    """Keeps a value (plain JSON data, not None) for `recall`."""
    path = _path(kind, facts)
    if path is None:
        return
    unfinished = path.with_suffix(f".{os.getpid()}-{threading.get_ident()}")
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            unfinished.write_text(json.dumps({"value": value, "sha256": _sha256([facts, value])}), "utf-8")
            unfinished.replace(path)
        except OSError:
            unfinished.unlink(missing_ok=True)
            raise


@contextmanager
def said_if_slow(doing: str) -> Iterator[None]:
    """Says on stderr what the block is doing, if it is not done within a second."""
    timer = threading.Timer(PATIENCE_SECONDS, lambda: print(f"{doing} ...", file=sys.stderr, flush=True))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _path(kind: str, facts: Any) -> Path | None:
    folder = cache_folder()
    return None if folder is None else folder / kind / f"{_sha256(facts)}.json"


def _sha256(data: Any) -> str:
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()
