"""Reading the files of a run, whatever version of the schema wrote them (lopa_bench/records.py writes them).

Rows that a later part replaces are left out, broken files are set aside by name, and every file gets today's columns.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from lopa_bench.schema import schema

if TYPE_CHECKING:
    import pyarrow as pa

Key = tuple[str, int]  # problem_id, sample_index
KEY = ("problem_id", "sample_index")
ORDER = ("problem_index", "sample_index")
ATTEMPTS = 3

log = logging.getLogger(__name__)


def read_run(folder: Path | str) -> pa.Table:
    """The one row about the run; FileNotFoundError where there is none."""
    path = Path(folder) / "run.parquet"
    if not path.exists():
        raise FileNotFoundError(f"no run at {folder}: run.parquet is missing")
    tables = list(_read(path, "run"))
    if not tables:
        raise FileNotFoundError(f"no run at {folder}: run.parquet was broken and has been set aside")
    return tables[0]


def read_runs(folders: Iterable[Path | str]) -> pa.Table:
    """The rows of many runs, old and new; folders without a run are passed over."""
    import pyarrow as pa

    tables = [schema("run").empty_table()]
    for folder in folders:
        with suppress(FileNotFoundError):
            tables.append(read_run(folder))
    return pa.concat_tables(tables)


def read_samples(
    folder: Path | str | Iterable[Path | str], columns: Sequence[str] | None = None, with_steps: bool = False
) -> pa.Table:
    """All samples in the order of the source; of rows with the same problem and sample index the newest.

    Of several folders: one run after the other. `columns`: only these, which spares the texts. `with_steps`: only
    samples whose steps can be read too.
    """
    import pyarrow as pa

    if not isinstance(folder, (str, Path)):
        tables = [read_samples(one, columns, with_steps) for one in folder]
        return pa.concat_tables(tables or [_layout("samples", columns).empty_table()])
    wanted = None if columns is None else list(dict.fromkeys([*columns, *KEY, *ORDER]))
    tables = [
        _layout("samples", wanted).empty_table(),
        *_retried(lambda: list(iter_samples(folder, wanted, with_steps))),
    ]
    samples = pa.concat_tables(tables).sort_by([(name, "ascending") for name in ORDER])
    return samples if columns is None else samples.select(list(columns))


def read_steps(folder: Path | str, columns: Sequence[str] | None = None) -> pa.Table:
    """All steps of the samples that `read_samples` returns, in the order of the source and of the steps."""
    import pyarrow as pa
    import pyarrow.compute as pc

    wanted = None if columns is None else list(dict.fromkeys([*columns, *KEY, "step"]))
    tables = [_layout("steps", wanted).empty_table(), *_retried(lambda: list(iter_steps(folder, wanted)))]
    order = {key: rank for rank, key in enumerate(keys_of(read_samples(folder, KEY)))}
    steps = pa.concat_tables(tables)
    ranks = pa.array([order[key] for key in keys_of(steps)], pa.int64())
    sorting = pa.table({"rank": ranks, "step": steps["step"]})
    steps = steps.take(pc.sort_indices(sorting, [("rank", "ascending"), ("step", "ascending")]))
    return steps if columns is None else steps.select(list(columns))


def iter_samples(
    folder: Path | str, columns: Sequence[str] | None = None, with_steps: bool = False
) -> Iterator[pa.Table]:
    """The same rows as `read_samples`, file by file, so that memory does not grow with the run."""
    newest = _newest_parts(Path(folder))
    for name, table in _parts(Path(folder), "samples", columns):
        if not with_steps or _is_readable(Path(folder) / "steps" / name):
            yield _rows_of(table, name, newest)


def iter_steps(folder: Path | str, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
    """The same rows as `read_steps`, in tables of a bounded size, not sorted."""
    newest = _newest_parts(Path(folder))
    for name, table in _parts(Path(folder), "steps", columns):
        yield _rows_of(table, name, newest)


def keys_of(table: pa.Table) -> list[Key]:
    return list(zip(table["problem_id"].to_pylist(), table["sample_index"].to_pylist(), strict=True))


def _newest_parts(folder: Path) -> dict[Key, str]:
    """For each sample the name of the part whose row counts."""
    newest = {}
    for name, table in _parts(folder, "samples", KEY):
        newest.update(dict.fromkeys(keys_of(table), name))
    return newest


def _rows_of(table: pa.Table, part: str, newest: dict[Key, str]) -> pa.Table:
    """The rows of samples whose newest row is in this part."""
    import pyarrow as pa

    keys = keys_of(table)
    if all(newest.get(key) == part for key in dict.fromkeys(keys)):
        return table
    return table.take(pa.array([row for row, key in enumerate(keys) if newest.get(key) == part], pa.int64()))


def _parts(folder: Path, table: str, columns: Sequence[str] | None = None) -> Iterator[tuple[str, pa.Table]]:
    """The readable parts of a table, oldest first, row group by row group."""
    for path in sorted((folder / table).glob("part-*.parquet")):
        for group in _read(path, table, columns):
            yield path.name, group


def _retried(read: Callable[[], list[pa.Table]]) -> list[pa.Table]:
    """A run that finishes while it is read replaces its parts by one file: then it is read again."""
    for attempt in range(ATTEMPTS):
        try:
            return read()
        except FileNotFoundError:
            if attempt == ATTEMPTS - 1:
                raise
    raise AssertionError


def _read(path: Path, table: str, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
    """A file in today's schema. A broken one gives nothing: it is renamed and named in a warning."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:  # read_table would take a folder named "k=8" for a column
            present = set(file.schema_arrow.names)
            layout = _layout(table, columns)
            for group in range(file.num_row_groups):
                yield _in_schema(file.read_row_group(group, [n for n in layout.names if n in present]), layout)
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, OSError) and error.errno:  # no permission, no such file: it may be whole
            raise
        aside = path.with_name(path.name + ".broken")
        with suppress(OSError):  # a folder that cannot be written is still read
            os.replace(path, aside)
        log.warning("%s cannot be read (%s); set aside as %s, its rows will be redone", path, error, aside.name)


def _is_readable(path: Path) -> bool:
    """Whether a part is there with a whole footer; a broken one is set aside."""
    if not path.exists():
        return False
    for _ in _read(path, "steps", ("step",)):
        break
    return path.exists()


def _layout(table: str, columns: Sequence[str] | None) -> pa.Schema:
    import pyarrow as pa

    whole = schema(table)
    return whole if columns is None else pa.schema([whole.field(name) for name in columns], whole.metadata)


def _in_schema(table: pa.Table, layout: pa.Schema) -> pa.Table:
    """Columns that a file of an older version lacks are null."""
    import pyarrow as pa

    present = set(table.column_names)
    columns = [
        table[field.name].cast(field.type) if field.name in present else pa.nulls(table.num_rows, field.type)
        for field in layout
    ]
    return pa.table(columns, schema=layout)
