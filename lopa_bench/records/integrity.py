"""Whether the files of a run are what was written: pages have checksums, and a footer must name the right columns.

Every reader goes through `tables`. `damage` reads a file whole, all columns and row groups; `shortfall` is for those
who only read, repair.py for the process that holds the run's lock.
"""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lopa_bench.errors import StorageError
from lopa_bench.records.schema import ALLOWED, COLUMNS, SCHEMA_VERSION, layout
from lopa_bench.system.storage import opened

if TYPE_CHECKING:
    import pyarrow as pa

Key = tuple[str, int]  # problem_id, sample_index
KEY = ["problem_id", "sample_index"]

log = logging.getLogger(__name__)


class Broken(ValueError):
    """A file that is there and is not what was written; the message says why."""


def parts(folder: Path, table: str) -> list[Path]:
    """The files of a table, oldest first. Raises StorageError where the folder may not be read."""
    with opened(folder / table):
        try:
            names = os.listdir(folder / table)
        except (FileNotFoundError, NotADirectoryError):
            return []
    return [folder / table / name for name in sorted(names) if name.startswith("part-") and name.endswith(".parquet")]


def tables(path: Path, table: str, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
    """The row groups of a file in today's schema, `columns` of them or all.

    Raises Broken, StorageError where the system refuses, FileNotFoundError where there is no such name.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    wanted = layout(table, columns)
    if not os.path.lexists(path):
        raise FileNotFoundError(path)
    with opened(path):
        is_file = path.is_file()
    if not is_file:
        raise Broken("it is no file")
    try:
        # opened here: Arrow would take a folder named "k=8" for a column, and cannot open every name
        with opened(path), open(path, "rb") as file, pq.ParquetFile(file, page_checksum_verification=True) as parquet:
            present = _columns(parquet, table)
            rows = 0
            for group in range(parquet.num_row_groups):
                found = parquet.read_row_group(group, [name for name in wanted.names if name in present])
                rows += found.num_rows
                yield _in_schema(found, wanted)
            if rows != parquet.metadata.num_rows:
                raise Broken(f"it has {rows} rows where {parquet.metadata.num_rows} belong")
    except FileNotFoundError:  # gone since: it was merged into another file
        raise
    except (pa.ArrowException, OSError, UnicodeError, KeyError, TypeError, OverflowError) as error:
        raise Broken(str(error).split("\n")[0] or type(error).__name__) from error


def _columns(parquet: Any, table: str) -> set[str]:
    """The names of the columns. A file of another version may lack some, and a newer one has more."""
    layout = parquet.schema_arrow
    facts = layout.metadata or {}
    owner, version = facts.get(b"lopa_bench.table"), facts.get(b"lopa_bench.schema_version", b"0")
    if owner is not None and owner != table.encode():
        raise Broken(f"it belongs to the table {owner.decode(errors='replace')!r}")
    present, kinds = set(layout.names), COLUMNS[table]
    if missing := [name for name, kind in kinds.items() if not kind.endswith("?") and name not in present]:
        raise Broken(f"it has no column {', '.join(missing)}")
    is_newer = version.isdigit() and int(version) > SCHEMA_VERSION
    if (unknown := sorted(present - kinds.keys())) and not is_newer:
        raise Broken(f"it has columns that no {table} have: {', '.join(unknown)}")
    return present


def _in_schema(table: pa.Table, wanted: pa.Schema) -> pa.Table:
    """Columns that a file of an older version lacks are null. Raises Broken for values that no row can have."""
    import pyarrow as pa
    import pyarrow.compute as pc

    present = set(table.column_names)
    columns = []
    for field in wanted:
        if field.name not in present:
            columns.append(pa.nulls(table.num_rows, field.type))
            continue
        column = table[field.name].cast(field.type)
        if column.null_count and not field.nullable:
            raise Broken(f"its column {field.name} has rows without a value")
        allowed = ALLOWED.get((wanted.metadata[b"lopa_bench.table"].decode(), field.name))
        if allowed and (odd := set(pc.unique(column).to_pylist()) - set(allowed)):
            raise Broken(f"its column {field.name} has {sorted(odd)[0]!r}")
        columns.append(column)
    return pa.table(columns, schema=wanted)


def keys_of(table: pa.Table) -> list[Key]:
    return list(zip(table["problem_id"].to_pylist(), table["sample_index"].to_pylist(), strict=True))


def run_table(path: Path) -> pa.Table:
    """The one row of a run.parquet. Raises Broken, FileNotFoundError or StorageError."""
    import pyarrow as pa

    table = pa.concat_tables([layout("run").empty_table(), *tables(path, "run")])
    if table.num_rows != 1:
        raise Broken(f"it has {table.num_rows} rows where one belongs")
    return table


def own_id(folder: Path, said: str) -> str:
    """The run that the rows of a folder belong to: the one that is `said`, unless none of them does."""
    ids: Counter[str] = Counter()
    for part in parts(folder, "samples"):
        with suppress(Broken, FileNotFoundError):
            for group in tables(part, "samples", ("run_id",)):
                ids.update(group["run_id"].to_pylist())
    return said if said in ids or not ids else ids.most_common(1)[0][0]


def damage(path: Path, table: str, run_id: str | None = None) -> str | None:
    """Why a part is not to be trusted, every byte of it read; None if it is whole, and of this run."""
    try:
        found = content(path, table)
    except FileNotFoundError:
        return "it is missing" if not os.path.lexists(path) else "it is a link to nothing"
    return found if isinstance(found, str) else foreign(found.runs, run_id)


def foreign(runs: Collection[str], run_id: str | None) -> str | None:
    """Why rows of these runs do not belong to this one; None if they do, or if it is not said which."""
    others = set(runs) - {run_id} if run_id is not None else ()
    return f"its rows belong to the run {sorted(others)[0]}" if others else None


@dataclass(frozen=True)
class Content:
    """What is in a part, every byte of it read: the runs of its rows, and how many rows a sample has."""

    runs: frozenset[str]
    counts: pa.Table  # KEY and count_all, a row for each sample and row group

    def rows(self) -> Counter[Key]:
        found: Counter[Key] = Counter()
        for key, count in zip(keys_of(self.counts), self.counts["count_all"].to_pylist(), strict=True):
            found[key] += count
        return found


def content(path: Path, table: str) -> Content | str:
    """Raises FileNotFoundError; a broken file gives the reason. A file that was read and has not changed since is not
    read again by the same process.
    """
    with opened(path):
        stat = path.stat()
    return _content(path, table, (stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns))


@lru_cache(maxsize=4096)
def _content(path: Path, table: str, facts: tuple[int, ...]) -> Content | str:
    import pyarrow as pa
    import pyarrow.compute as pc

    runs: set[str] = set()
    counts = [layout(table, KEY).empty_table().append_column("count_all", pa.array([], pa.int64()))]
    try:
        for group in tables(path, table):
            runs.update(pc.unique(group["run_id"]).to_pylist())
            counts.append(group.group_by(KEY).aggregate([([], "count_all")]).select([*KEY, "count_all"]))
    except Broken as error:
        return str(error)
    return Content(frozenset(runs), pa.concat_tables(counts))


def shortfall(folder: Path, row: Mapping[str, Any], steps: bool = True) -> str | None:
    """Why the rows of a finished run are not those that its run row tells of; None if they are, or if it tells nothing.

    `steps`: their files are read whole too, else only how many rows their footers tell of.
    """
    if row["status"] != "finished" or row["n"] is None:
        return None
    try:
        return _shortfall(folder, row, steps)
    except StorageError as error:  # of whoever may not read it
        return str(error)


def _shortfall(folder: Path, row: Mapping[str, Any], steps: bool) -> str | None:
    samples: dict[Path, set[Key]] = {}
    broken = []
    run_id = own_id(folder, row["run_id"])
    for part in parts(folder, "samples"):
        reason = damage(part, "samples", run_id)
        if reason:
            broken.append(f"{part.name}: {reason}")
        else:
            samples[part] = set(keys_of(content(part, "samples").counts))  # type: ignore[union-attr]  # it is whole
    n = len(set().union(*samples.values()))
    if n != row["n"]:
        return "; ".join([f"{n} of {row['n']} samples can be read", *broken])
    for part in samples:
        path = folder / "steps" / part.name
        whole = steps or not os.path.isfile(path)
        if reason := damage(path, "steps", run_id) if whole else _wrong_number(path, part):
            return f"steps/{part.name}: {reason}"
    return None


def _wrong_number(steps: Path, samples: Path) -> str | None:
    """Why a part of the steps has not as many rows as its samples have forwards, by its footer alone."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    table = pa.concat_tables(tables(samples, "samples", ("rounds", "forwards")))
    known = pc.is_valid(table["rounds"])  # rows without rounds tell nothing of their steps
    belong = pc.sum(table["forwards"].filter(known), min_count=0).as_py()
    try:
        with opened(steps), open(steps, "rb") as file:
            rows = pq.read_metadata(file).num_rows
    except (pa.ArrowException, OSError) as error:
        return str(error).split("\n")[0]
    if rows == belong or (rows > belong and table["rounds"].null_count):
        return None
    return f"it has {rows} rows where {belong} belong"


def left_out(folder: Path, row: Mapping[str, Any], steps: bool = True) -> bool:
    """Whether a reader passes over a run, which it then says. Arguments as for `shortfall`."""
    reason = shortfall(folder, row, steps)
    if reason:
        log.warning(
            "%s is left out: %s; the command that made it, started again, does what is lost anew", folder, reason
        )
    return reason is not None


def lacking_steps(samples: pa.Table, part: Path) -> set[Key]:
    """The samples that have not as many steps in a part of the steps as forwards. Rows without rounds, as those of a
    server, have no steps.
    """
    found = content(part, "steps") if part.exists() else ""
    steps = Counter[Key]() if isinstance(found, str) else found.rows()
    counts = zip(keys_of(samples), samples["rounds"].to_pylist(), samples["forwards"].to_pylist(), strict=True)
    return {key for key, rounds, forwards in counts if rounds is not None and steps[key] != forwards}
