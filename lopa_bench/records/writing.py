"""The files of a run, `outputs/runs/<run_id>/`: run.parquet (one row), samples/*.parquet and steps/*.parquet.

A file is written whole or not at all (temporary file, fsync, rename), so a killed run loses at most what was not
flushed yet, and several writers can share a folder. A part of `steps` is written before the part of `samples` with the
same name: a sample is there only if its steps are, and steps without a sample (the process died in between) are known
by the missing name. Samples are on disk before they are scored; their part is then replaced, whole as well, by the same
rows with their verdicts. Reading: reading.py; whether files are what was written: integrity.py, and what is done about
those that are not: repair.py.
"""

from __future__ import annotations

import os
import re
import secrets
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from lopa_bench.records.integrity import keys_of, parts, tables
from lopa_bench.records.reading import newest_rows
from lopa_bench.records.repair import ReadBack
from lopa_bench.records.schema import schema, to_table
from lopa_bench.system.signals import held_back
from lopa_bench.system.storage import whole_file, written

if TYPE_CHECKING:
    import pyarrow as pa

    from lopa_bench.records.integrity import Key

FLUSH_SAMPLES = 16
FLUSH_SECONDS = 30.0
LABEL_LENGTH = 40  # of a model's name in that of a run: a file system takes 255 bytes


def new_run_id(root: Path | str, *labels: object) -> str:
    """A readable, unique name such as `20260131-142233-gsm8k-mini-lopa-k8-3f9a` (UTC), and its folder.

    A name that exists already, whoever made it, gets a suffix.
    """
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    slugs = [re.sub(r"[^a-z0-9]+", "-", str(label).lower()[:LABEL_LENGTH]).strip("-") for label in labels]
    run_id = stem = "-".join([stamp, *filter(None, slugs)])
    with written(Path(root) / run_id):
        Path(root).mkdir(parents=True, exist_ok=True)
        while True:
            with suppress(FileExistsError):
                (Path(root) / run_id).mkdir()
                return run_id
            run_id = f"{stem}-{secrets.token_hex(2)}"


class RunStore:
    """Writes a run. Rows are checked when they are added, so that one bad row cannot take others along.

    `flushed`: the parts that this store has written and nobody has looked at yet (lopa_bench/run/judging.py does).
    """

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)
        self.flushed: list[str] = []
        self._buffer: dict[Key, tuple[pa.Table, pa.Table]] = {}
        self._flushed_at = time.monotonic()
        self._writer = f"{os.getpid()}-{secrets.token_hex(2)}"  # process ids repeat across machines
        found = [part for table in ("samples", "steps") for part in parts(self.folder, table)]
        self._next = 1 + max(map(_number, found), default=-1)

    def add(self, sample: Mapping[str, Any], steps: Sequence[Mapping[str, Any]] = ()) -> None:
        """Buffers one sample with its steps; they take run, problem and sample index from the sample."""
        samples = to_table("samples", [sample])
        key = {name: sample[name] for name in ("run_id", "problem_id", "sample_index")}
        self._buffer[keys_of(samples)[0]] = (samples, to_table("steps", [{**step, **key} for step in steps]))
        if len(self._buffer) >= FLUSH_SAMPLES or time.monotonic() - self._flushed_at >= FLUSH_SECONDS:
            self.flush()

    def flush(self) -> None:
        """Makes everything added so far durable, as one new file in `steps` and one in `samples`.

        Ctrl-C waits until both are written. Raises StorageError; the rows then stay for the next flush.
        """
        import pyarrow as pa

        self._flushed_at = time.monotonic()
        if not self._buffer:
            return
        samples, steps = zip(*self._buffer.values(), strict=True)
        name = self.new_part()
        with held_back():
            write_table(self.folder / "steps" / name, pa.concat_tables(steps))
            write_table(self.folder / "samples" / name, pa.concat_tables(samples))
            self._buffer.clear()
            self.flushed.append(name)

    @property
    def buffered(self) -> int:
        """Samples that are not on disk yet."""
        return len(self._buffer)

    def rows(self, name: str) -> list[dict[str, Any]]:
        """The samples of a part."""
        return [row for group in tables(self.folder / "samples" / name, "samples") for row in group.to_pylist()]

    def replace(self, name: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Writes the samples of a part anew, at once for whoever reads it."""
        with held_back():
            write_table(self.folder / "samples" / name, to_table("samples", rows))

    def new_part(self) -> str:
        """The name of a part that sorts behind all others: of two rows of a sample the later part's counts."""
        name = f"part-{self._next:06d}-{self._writer}.parquet"
        self._next += 1
        return name

    def write_run(self, row: Mapping[str, Any]) -> None:
        """Replaces run.parquet."""
        with held_back():
            write_table(self.folder / "run.parquet", to_table("run", [row]))

    def __enter__(self) -> RunStore:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.flush()


def _number(part: Path) -> int:
    """The number in the name of a part."""
    digits = part.name.split("-")[1]
    return int(digits) if digits.isdecimal() else -1


def write_table(path: Path, table: pa.Table) -> None:
    write_tables(path, [table], table.schema)


def write_tables(path: Path, groups: Iterable[pa.Table], layout: pa.Schema) -> None:
    """Writes tables, one row group each, as one file: whole or not at all."""
    import pyarrow.parquet as pq

    settings = {"compression": "zstd", "write_page_checksum": True}
    with whole_file(path) as file, pq.ParquetWriter(file, layout, **settings) as writer:
        for table in groups:
            writer.write_table(table, row_group_size=max(1, table.num_rows))


def remove_unfinished_files(folder: Path) -> None:
    """Removes what a killed process left half written. Only for the process that holds the folder's lock."""
    for path in folder.rglob(".*.tmp"):
        path.unlink(missing_ok=True)


GROUP_BYTES = 64 << 20


def compact(store: RunStore, back: ReadBack) -> None:
    """Merges the parts of a run, which were read back, into one file a table, so that many runs can be read together
    quickly.

    Whenever the process dies, every row is there: the new files come first, and of two rows of a sample the later
    part's counts. Raises StorageError, or Broken for steps that were damaged since; the parts then stay as they are.
    """
    folder = store.folder
    found = {table: parts(folder, table) for table in ("samples", "steps")}
    samples, steps = ({path.name for path in paths} for paths in found.values())
    if len(samples) < 2 and samples == steps:  # else there are several, or steps without samples
        return
    name = store.new_part()
    write_tables(folder / "steps" / name, _grouped(_steps_of(folder, back.part_of)), schema("steps"))
    write_tables(folder / "samples" / name, _sliced(back.samples), schema("samples"))
    for part in (path for paths in found.values() for path in paths):
        with written(part):
            part.unlink(missing_ok=True)


def _steps_of(folder: Path, part_of: Mapping[Key, str]) -> Iterator[pa.Table]:
    """The steps of the samples, part by part."""
    for name in sorted(set(part_of.values())):
        path = folder / "steps" / name
        for group in tables(path, "steps") if path.exists() else ():
            yield newest_rows(group, name, part_of)


def _sliced(table: pa.Table) -> Iterator[pa.Table]:
    """The same rows in tables of some 64 MB, which bounds the memory of whoever reads one."""
    count = max(1, -(-table.num_rows // (1 + table.nbytes // GROUP_BYTES)))
    return (table.slice(start, count) for start in range(0, table.num_rows, count))


def _grouped(groups: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """As `_sliced`, of tables that are small."""
    import pyarrow as pa

    waiting: list[pa.Table] = []
    size = 0
    for table in groups:
        waiting.append(table)
        size += table.nbytes
        if size >= GROUP_BYTES:
            yield pa.concat_tables(waiting)
            waiting, size = [], 0
    if waiting:
        yield pa.concat_tables(waiting)
