"""From a run's key to its folder: the one of an earlier run with the same key, or a new one; locked either way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from lopa_bench.errors import StorageError
from lopa_bench.records.finding import DIGITS, is_finished, with_key
from lopa_bench.records.integrity import own_id
from lopa_bench.records.locks import NAME as LOCK_NAME
from lopa_bench.records.locks import Lock, brief_lock
from lopa_bench.records.writing import new_run_id, remove_unfinished_files

Row = dict[str, Any]


@dataclass
class Claim:
    """A run folder that no other process writes to until `release`. `row` is its run row, if it has one.

    Without a lock it is a finished run in a folder that cannot be written, and nothing of it may be changed.
    """

    folder: Path
    lock: Lock | None
    row: dict[str, Any] | None = None

    @property
    def is_finished(self) -> bool:
        return is_finished(self.row)

    @property
    def run_id(self) -> str:
        """The name that the rows have: the folder's, unless it was renamed since."""
        return own_id(self.folder, self.folder.name if self.row is None else str(self.row["run_id"]))

    def release(self) -> None:
        if self.lock is None:
            return
        if self.row is None:  # it came to nothing before its first row: no folder stays behind
            with suppress(OSError, StorageError), brief_lock(_gate(self.folder.parent)):
                if [path.name for path in self.folder.iterdir()] == [LOCK_NAME]:
                    (self.folder / LOCK_NAME).unlink()
                    self.folder.rmdir()
        self.lock.release()

    def __enter__(self) -> Claim:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def claim(
    runs: Path, key: str, resume: bool, labels: Sequence[object], alike: Callable[[Row], bool] | None = None
) -> Claim:
    """The folder for a run with this key below `runs`: of an earlier one with `resume`, which then has to be `alike` by
    its row. Raises Locked if another process is at it, StorageError if nothing can be written there, but for a finished
    run, which then is claimed without a lock.

    Looking for a folder and making one is one step for all processes, so that two which start at once meet.
    """
    import pyarrow.parquet  # noqa: F401  # a slow import, which must not happen under the lock

    try:
        with brief_lock(_gate(runs)):
            earlier = _earlier(runs, key, alike) if resume else []
            if not earlier:
                folder = runs / new_run_id(runs, *labels, key[:DIGITS])
                return Claim(folder, Lock(folder))
            folder, row = earlier[0]
            found = Claim(folder, Lock(folder), row)
    except StorageError:
        archived = [
            Claim(folder, None, row)
            for folder, row in (_earlier(runs, key, alike) if resume else [])
            if is_finished(row)
        ]
        if archived:
            return archived[0]
        raise
    remove_unfinished_files(folder)
    return found


def _earlier(runs: Path, key: str, alike: Callable[[Row], bool] | None) -> list[tuple[Path, Row | None]]:
    found = with_key(runs, key)
    return found if alike is None else [(folder, row) for folder, row in found if row is not None and alike(row)]


def _gate(runs: Path) -> Path:
    return runs / ".lock"
