"""The files of a run, `outputs/runs/<run_id>/`: run.parquet (one row), samples/*.parquet and steps/*.parquet.

A file is written whole or not at all (temporary file, fsync, rename) and never changed afterwards, so a
killed run loses at most what was not flushed yet, and several writers can share a folder. A part of `steps`
is written before the part of `samples` with the same name: a sample is there only if its steps are, and steps
without a sample (the process died in between) are known by the missing name.
"""

from __future__ import annotations

import logging
import os
import re
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from lopa_bench.schema import schema, to_table

if TYPE_CHECKING:
    import pyarrow as pa

FLUSH_SAMPLES = 16
FLUSH_SECONDS = 30.0

Key = tuple[str, int]  # problem_id, sample_index

log = logging.getLogger(__name__)


def new_run_id(root: Path | str, *labels: object) -> str:
    """A readable, unique name such as `20260131-142233-gsm8k-mini-lopa-k8-3f9a` (UTC), and its folder.

    The folder is the lock: a name that exists already, whoever made it, is given up for another suffix.
    """
    stamp = datetime.now(timezone.utc).strftime("%Y%m%d-%H%M%S")
    slugs = [re.sub(r"[^a-z0-9]+", "-", str(label).lower()).strip("-") for label in labels]
    stem = "-".join([stamp, *filter(None, slugs)])
    while True:
        run_id = f"{stem}-{secrets.token_hex(2)}"
        with suppress(FileExistsError):
            (Path(root) / run_id).mkdir(parents=True, exist_ok=False)
            return run_id


class RunStore:
    """Writes a run. Rows are checked when they are added, so that one bad row cannot take others along."""

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)
        self._buffer: dict[Key, tuple[pa.Table, pa.Table]] = {}
        self._flushed_at = time.monotonic()
        self._parts = 0
        self._writer = f"{os.getpid()}-{secrets.token_hex(2)}"  # process ids repeat across machines

    def add(self, sample: Mapping[str, Any], steps: Sequence[Mapping[str, Any]] = ()) -> None:
        """Buffers one sample with its steps; they take run, problem and sample index from the sample."""
        samples = to_table("samples", [sample])
        key = {name: sample[name] for name in ("run_id", "problem_id", "sample_index")}
        self._buffer[_keys(samples)[0]] = (samples, to_table("steps", [{**step, **key} for step in steps]))
        if len(self._buffer) >= FLUSH_SAMPLES or time.monotonic() - self._flushed_at >= FLUSH_SECONDS:
            self.flush()

    def flush(self) -> None:
        """Makes everything added so far durable, as one new file in `steps` and one in `samples`."""
        import pyarrow as pa

        self._flushed_at = time.monotonic()
        if not self._buffer:
            return
        samples, steps = zip(*self._buffer.values(), strict=True)
        stamp = datetime.now(timezone.utc).strftime("%Y%m%dT%H%M%S.%f")  # sorts by time: the newest row wins
        name = f"part-{stamp}-{self._writer}-{self._parts:05d}.parquet"
        self._parts += 1
        _write(self.folder / "steps" / name, pa.concat_tables(steps))
        _write(self.folder / "samples" / name, pa.concat_tables(samples))
        self._buffer.clear()  # only now: an interrupt between the two files keeps the rows for the next flush

    def write_run(self, row: Mapping[str, Any]) -> None:
        """Replaces run.parquet."""
        _write(self.folder / "run.parquet", to_table("run", [row]))

    def __enter__(self) -> RunStore:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.flush()


def read_run(folder: Path | str) -> pa.Table:
    """The one row about the run; FileNotFoundError where there is none."""
    path = Path(folder) / "run.parquet"
    if not path.exists():
        raise FileNotFoundError(f"no run at {folder}: run.parquet is missing")
    table = _read(path, "run")
    if table is None:
        raise FileNotFoundError(f"no run at {folder}: run.parquet was broken and has been set aside")
    return table


def read_samples(folder: Path | str) -> pa.Table:
    """All samples in the order of the source; of rows with the same problem and sample index the newest."""
    samples, _ = _newest_samples(Path(folder))
    return samples


def read_steps(folder: Path | str) -> pa.Table:
    """All steps of the samples that `read_samples` returns, in the order of the source and of the steps."""
    import pyarrow as pa

    samples, part_of = _newest_samples(Path(folder))
    order = {key: rank for rank, key in enumerate(_keys(samples))}
    tables, ranks = [schema("steps").empty_table()], []
    for name, table in _parts(Path(folder), "steps"):
        keys = _keys(table)
        rows = [row for row, key in enumerate(keys) if part_of.get(key) == name]
        tables.append(table.take(pa.array(rows, pa.int64())))
        ranks += [order[keys[row]] for row in rows]
    steps = pa.concat_tables(tables)
    sorting = pa.table({"rank": pa.array(ranks, pa.int64()), "step": steps["step"]})
    return steps.take(_sorted_indices(sorting))


def _newest_samples(folder: Path) -> tuple[pa.Table, dict[Key, str]]:
    """The newest row of each sample, in order, and the part that it comes from."""
    import pyarrow as pa

    tables, newest, part_of, rows = [schema("samples").empty_table()], {}, {}, 0
    for name, table in _parts(folder, "samples"):
        keys = _keys(table)
        newest.update({key: rows + row for row, key in enumerate(keys)})
        part_of.update(dict.fromkeys(keys, name))
        tables.append(table)
        rows += table.num_rows
    samples = pa.concat_tables(tables).take(pa.array(newest.values(), pa.int64()))
    return samples.sort_by([("problem_index", "ascending"), ("sample_index", "ascending")]), part_of


def _parts(folder: Path, table: str) -> Iterator[tuple[str, pa.Table]]:
    """The readable parts of a table, oldest first."""
    for path in sorted((folder / table).glob("part-*.parquet")):
        part = _read(path, table)
        if part is not None:
            yield path.name, part


def _keys(table: pa.Table) -> list[Key]:
    return list(zip(table["problem_id"].to_pylist(), table["sample_index"].to_pylist(), strict=True))


def _sorted_indices(table: pa.Table) -> pa.Array:
    import pyarrow.compute as pc

    return pc.sort_indices(table, sort_keys=[(name, "ascending") for name in table.column_names])


def _read(path: Path, table: str) -> pa.Table | None:
    """A file in today's schema, or None if it is broken: it is then renamed and named in a warning."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:  # read_table would take a folder named "k=8" for a column
            return _in_schema(file.read(), table)
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, OSError) and error.errno:  # no permission, no such file: it may be whole
            raise
        aside = path.with_name(path.name + ".broken")
        with suppress(OSError):  # a folder that cannot be written is still read
            os.replace(path, aside)
        log.warning("%s cannot be read (%s); set aside as %s, its rows will be redone", path, error, aside.name)
        return None


def _in_schema(table: pa.Table, name: str) -> pa.Table:
    """Columns that a file of an older version lacks are null."""
    import pyarrow as pa

    target = schema(name)
    present = set(table.column_names)
    columns = [
        table[field.name].cast(field.type) if field.name in present else pa.nulls(table.num_rows, field.type)
        for field in target
    ]
    return pa.table(columns, schema=target)


def _write(path: Path, table: pa.Table) -> None:
    import pyarrow.parquet as pq

    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb") as file:
            pq.write_table(table, file, compression="zstd")
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
