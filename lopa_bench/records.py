"""The files of a run, `outputs/runs/<run_id>/`: run.parquet (one row), samples/*.parquet and steps/*.parquet.

A file is written whole or not at all (temporary file, fsync, rename) and never changed afterwards, so a
killed run loses at most what was not flushed yet, and several writers can share a folder. A part of `steps`
is written before the part of `samples` with the same name: a sample is there only if its steps are, and steps
without a sample (the process died in between) are known by the missing name. Reading: lopa_bench/reading.py.
"""

from __future__ import annotations

import os
import re
import secrets
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any

from lopa_bench.reading import iter_steps, keys_of, read_run, read_samples, read_steps
from lopa_bench.schema import schema, to_table

if TYPE_CHECKING:
    import pyarrow as pa

    from lopa_bench.reading import Key

__all__ = ["RunStore", "iter_steps", "new_run_id", "read_run", "read_samples", "read_steps", "write_table"]

FLUSH_SAMPLES = 16
FLUSH_SECONDS = 30.0


def new_run_id(root: Path | str, *labels: object) -> str:
    """A readable, unique name such as `20260131-142233-gsm8k-mini-lopa-k8-3f9a` (UTC), and its folder.

    A name that exists already, whoever made it, gets a suffix.
    """
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    slugs = [re.sub(r"[^a-z0-9]+", "-", str(label).lower()).strip("-") for label in labels]
    run_id = stem = "-".join([stamp, *filter(None, slugs)])
    while True:
        with suppress(FileExistsError):
            (Path(root) / run_id).mkdir(parents=True, exist_ok=False)
            return run_id
        run_id = f"{stem}-{secrets.token_hex(2)}"


class RunStore:
    """Writes a run. Rows are checked when they are added, so that one bad row cannot take others along."""

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)
        self._buffer: dict[Key, tuple[pa.Table, pa.Table]] = {}
        self._flushed_at = time.monotonic()
        self._writer = f"{os.getpid()}-{secrets.token_hex(2)}"  # process ids repeat across machines
        self._next = 1 + max(map(_number, self.folder.glob("*/part-*.parquet")), default=-1)

    def add(self, sample: Mapping[str, Any], steps: Sequence[Mapping[str, Any]] = ()) -> None:
        """Buffers one sample with its steps; they take run, problem and sample index from the sample."""
        samples = to_table("samples", [sample])
        key = {name: sample[name] for name in ("run_id", "problem_id", "sample_index")}
        self._buffer[keys_of(samples)[0]] = (samples, to_table("steps", [{**step, **key} for step in steps]))
        if len(self._buffer) >= FLUSH_SAMPLES or time.monotonic() - self._flushed_at >= FLUSH_SECONDS:
            self.flush()

    def flush(self) -> None:
        """Makes everything added so far durable, as one new file in `steps` and one in `samples`."""
        import pyarrow as pa

        self._flushed_at = time.monotonic()
        if not self._buffer:
            return
        samples, steps = zip(*self._buffer.values(), strict=True)
        name = self.new_part()
        write_table(self.folder / "steps" / name, pa.concat_tables(steps))
        write_table(self.folder / "samples" / name, pa.concat_tables(samples))
        self._buffer.clear()  # only now: an interrupt between the two files keeps the rows for the next flush

    def new_part(self) -> str:
        """The name of a part that sorts behind all others: of two rows of a sample the later part's counts."""
        name = f"part-{self._next:06d}-{self._writer}.parquet"
        self._next += 1
        return name

    def write_run(self, row: Mapping[str, Any]) -> None:
        """Replaces run.parquet."""
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


def write_tables(path: Path, tables: Iterable[pa.Table], layout: pa.Schema) -> None:
    """Writes tables, one row group each, as one file: whole or not at all."""
    import pyarrow.parquet as pq

    with whole_file(path) as file, pq.ParquetWriter(file, layout, compression="zstd") as writer:
        for table in tables:
            writer.write_table(table, row_group_size=max(1, table.num_rows))


@contextmanager
def whole_file(path: Path) -> Iterator[IO[bytes]]:
    """A file that appears under its name when it is complete and on the disk, and never otherwise."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    if os.name == "posix":  # the new name is durable only once its folder is
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def remove_unfinished_files(folder: Path) -> None:
    """Removes what a killed process left half written. Only for the process that holds the folder's lock."""
    for path in folder.rglob(".*.tmp"):
        path.unlink(missing_ok=True)


GROUP_BYTES = 64 << 20


def compact(store: RunStore) -> None:
    """Merges the parts of a run into one file a table, so that many runs can be read together quickly.

    Whenever the process dies, every row is there: the new files come first, and of two rows of a sample the later
    part's counts.
    """
    folder = store.folder
    samples, steps = ({path.name for path in (folder / table).glob("part-*.parquet")} for table in ("samples", "steps"))
    if len(samples) < 2 and samples == steps:  # else there are several, or steps without samples
        return
    from lopa_bench.reading import iter_samples

    name = store.new_part()
    write_tables(folder / "steps" / name, _grouped(iter_steps(folder)), schema("steps"))
    write_tables(folder / "samples" / name, _grouped(iter_samples(folder)), schema("samples"))
    for table in ("samples", "steps"):
        for part in (folder / table).glob("part-*.parquet"):
            if part.name < name:
                part.unlink(missing_ok=True)


def _grouped(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """The same rows in tables of some 64 MB, which bounds the memory of whoever reads one."""
    import pyarrow as pa

    waiting: list[pa.Table] = []
    size = 0
    for table in tables:
        waiting.append(table)
        size += table.nbytes
        if size >= GROUP_BYTES:
            yield pa.concat_tables(waiting)
            waiting, size = [], 0
    if waiting:
        yield pa.concat_tables(waiting)
