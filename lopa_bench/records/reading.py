"""Reading the files of a run, whatever version of the schema wrote them (lopa_bench/records/writing.py writes them).

Rows that a later part replaces are left out, broken files are named in a warning and passed over, and every file gets
today's columns. Nothing here writes, renames or locks: the files may be an archive, or another user's.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from lopa_bench.errors import StorageError
from lopa_bench.records.integrity import KEY, Broken, Key, keys_of, parts, run_table, tables
from lopa_bench.records.schema import layout

if TYPE_CHECKING:
    import pyarrow as pa

ORDER = ["problem_index", "sample_index"]
ATTEMPTS = 3

log = logging.getLogger(__name__)


def read_run(folder: Path | str) -> pa.Table:
    """The one row about the run; FileNotFoundError where there is none that can be read."""
    path = Path(folder) / "run.parquet"
    try:
        return run_table(path)
    except FileNotFoundError:
        raise FileNotFoundError(f"no run at {folder}: run.parquet is missing") from None
    except (Broken, StorageError) as error:
        log.warning("%s is left out: its run.parquet is no run row (%s)", folder, error)
        raise FileNotFoundError(f"no run at {folder}: run.parquet cannot be read") from None


def read_runs(folders: Iterable[Path | str]) -> pa.Table:
    """The rows of many runs, old and new; folders without a run are passed over."""
    import pyarrow as pa

    rows = [layout("run").empty_table()]
    for folder in folders:
        with suppress(FileNotFoundError):
            rows.append(read_run(folder))
    return pa.concat_tables(rows)


def read_samples(folder: Path | str | Iterable[Path | str], columns: Sequence[str] | None = None) -> pa.Table:
    """All samples in the order of the source; of rows with the same problem and sample index the newest.

    Of several folders: one run after the other. `columns`: only these, which spares the texts.
    """
    import pyarrow as pa

    if not isinstance(folder, (str, Path)):
        runs = [read_samples(one, columns) for one in folder]
        return pa.concat_tables(runs or [layout("samples", columns).empty_table()])
    wanted = None if columns is None else list(dict.fromkeys([*columns, *KEY, *ORDER]))
    found = _retried(lambda: list(iter_samples(folder, wanted)))
    samples = pa.concat_tables([layout("samples", wanted).empty_table(), *found])
    samples = samples.sort_by([(name, "ascending") for name in ORDER])
    return samples if columns is None else samples.select(list(columns))


def read_steps(folder: Path | str, columns: Sequence[str] | None = None, in_order: bool = True) -> pa.Table:
    """All steps of the samples that `read_samples` returns, in the order of the source and of the steps.

    Not `in_order`: sample after sample as they were written, which spares the sorting.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    wanted = None if columns is None else list(dict.fromkeys([*columns, *KEY, "step"]))
    found = _retried(lambda: list(iter_steps(folder, wanted)))
    steps = pa.concat_tables([layout("steps", wanted).empty_table(), *found])
    if not in_order:
        return steps if columns is None else steps.select(list(columns))
    order = {key: rank for rank, key in enumerate(keys_of(read_samples(folder, KEY)))}
    ranks = pa.array([order[key] for key in keys_of(steps)], pa.int64())
    sorting = pa.table({"rank": ranks, "step": steps["step"]})
    steps = steps.take(pc.sort_indices(sorting, [("rank", "ascending"), ("step", "ascending")]))
    return steps if columns is None else steps.select(list(columns))


def iter_samples(folder: Path | str, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
    """The same rows as `read_samples`, file by file, so that memory does not grow with the run."""
    return _iter_rows(Path(folder), "samples", columns)


def iter_steps(folder: Path | str, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
    """The same rows as `read_steps`, in tables of a bounded size, not sorted."""
    return _iter_rows(Path(folder), "steps", columns)


def newest_parts(folder: Path) -> dict[Key, str]:
    """For each sample the name of the part whose row counts. Parts that cannot be read are named in a warning."""
    newest: dict[Key, str] = {}
    for path in parts(folder, "samples"):
        for group in _readable(path, "samples", KEY):
            newest.update(dict.fromkeys(keys_of(group), path.name))
    return newest


def _iter_rows(folder: Path, table: str, columns: Sequence[str] | None) -> Iterator[pa.Table]:
    """The rows of samples that count, from the parts of a table that hold any."""
    newest = newest_parts(folder)
    names = sorted(set(newest.values()))
    for name in names:
        for group in _readable(folder / table / name, table, columns):
            yield newest_rows(group, name, newest)


def newest_rows(table: pa.Table, part: str, newest: Mapping[Key, str]) -> pa.Table:
    """The rows of samples whose newest row is in this part."""
    import pyarrow as pa

    if all(newest.get(key) == part for key in keys_of(table.select(KEY).group_by(KEY).aggregate([]))):
        return table
    rows = [row for row, key in enumerate(keys_of(table)) if newest.get(key) == part]
    return table.take(pa.array(rows, pa.int64()))


def _readable(path: Path, table: str, columns: Sequence[str] | None) -> Iterator[pa.Table]:
    """The row groups of a file; a broken one gives nothing more and is named in a warning.

    A part of the steps alone can be missing for good. One that goes with its part of the samples was merged into
    another file meanwhile: FileNotFoundError.
    """
    try:
        yield from tables(path, table, columns)
    except FileNotFoundError:
        if table == "samples" or not (path.parents[1] / "samples" / path.name).exists():
            raise
        log.warning("%s is missing: its rows are left out", path)
    except Broken as error:
        log.warning("%s cannot be read (%s): its rows are left out", path, error)


def _retried(read: Callable[[], list[pa.Table]]) -> list[pa.Table]:
    """A run that finishes while it is read replaces its parts by one file: then it is read again."""
    for attempt in range(ATTEMPTS):
        try:
            return read()
        except FileNotFoundError:
            if attempt == ATTEMPTS - 1:
                raise
    raise AssertionError
