"""From a run's key to its folder: the one of an earlier run with the same key, or a new one; locked either way."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from lopa_bench.integrity import Broken, own_id, run_table, without_steps
from lopa_bench.locks import NAME as LOCK_NAME
from lopa_bench.locks import Lock, brief_lock
from lopa_bench.reading import keys_of, newest_parts
from lopa_bench.records import new_run_id, read_samples, remove_unfinished_files
from lopa_bench.schema import ERROR_REASONS
from lopa_bench.storage import StorageError
from lopa_bench.units import Unit

if TYPE_CHECKING:
    import pyarrow as pa

DIGITS = 10  # of the key, at the end of a run's name: they find the folder, run.parquet then tells the whole key
RESUME_COLUMNS = (
    "problem_id", "problem_index", "sample_index", "finish_reason", "correct", "content_tokens", "forwards", "total_s",
    "machine",
)  # fmt: skip
REDONE = tuple(set(ERROR_REASONS) - {"prompt_too_long"})  # that would only be too long again


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
        return _is_finished(self.row)

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


def claim(runs: Path, key: str, resume: bool, labels: Sequence[object]) -> Claim:
    """The folder for a run with this key below `runs`. Raises Locked if another process is at it, StorageError if
    nothing can be written there, but for a finished run, which then is claimed without a lock.

    Looking for a folder and making one is one step for all processes, so that two which start at once meet.
    """
    import pyarrow.parquet  # noqa: F401  # a slow import, which must not happen under the lock

    try:
        with brief_lock(_gate(runs)):
            earlier = find(runs, key) if resume else []
            if not earlier:
                folder = runs / new_run_id(runs, *labels, key[:DIGITS])
                return Claim(folder, Lock(folder))
            folder, row = earlier[0]
            found = Claim(folder, Lock(folder), row)
    except StorageError:
        archived = [
            Claim(folder, None, row) for folder, row in (find(runs, key) if resume else []) if _is_finished(row)
        ]
        if archived:
            return archived[0]
        raise
    remove_unfinished_files(folder)
    return found


def find(runs: Path, key: str) -> list[tuple[Path, dict[str, Any] | None]]:
    """The runs with this key, the best to go on with first: finished ones, and of those the newest.

    A folder without a run row is known by its name alone: its process is just starting, or its row was damaged.
    """
    found: list[tuple[Path, dict[str, Any] | None]] = []
    for folder in runs.glob(f"*-{key[:DIGITS]}*"):
        row = None
        with suppress(FileNotFoundError, Broken):
            row = run_table(folder / "run.parquet").to_pylist()[0]
        if row is None or row["key"] == key:
            found.append((folder, row))
    return sorted(found, key=lambda item: (_is_finished(item[1]), item[0].name), reverse=True)


def _is_finished(row: dict[str, Any] | None) -> bool:
    return row is not None and row["status"] == "finished"


def _gate(runs: Path) -> Path:
    return runs / ".lock"


def missing_units(units: Sequence[Unit], samples: pa.Table, redone: Sequence[str] = REDONE) -> list[Unit]:
    """The decodes that have no row yet, or one whose finish reason asks to redo it."""
    done = {
        Unit(index, sample_index)
        for index, sample_index, reason in zip(
            samples["problem_index"].to_pylist(),
            samples["sample_index"].to_pylist(),
            samples["finish_reason"].to_pylist(),
            strict=True,
        )
        if reason not in redone
    }
    return [unit for unit in units if unit not in done]


def rows_on_disk(folder: Path) -> pa.Table:
    """What a resumed run must know of its samples: no texts, which can be large, and no sample without its steps."""
    import pyarrow as pa

    rows = read_samples(folder, RESUME_COLUMNS)
    newest = newest_parts(folder)
    lost = {(problem, index) for part, problem, index in without_steps(folder) if newest[problem, index] == part}
    return rows.filter(pa.array([key not in lost for key in keys_of(rows)], pa.bool_()))
