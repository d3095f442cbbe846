"""For the process that holds a run's lock: what is broken is set aside, and what is left is read back.

A file that is set aside keeps its rows for whoever wants to look; the run does them again.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lopa_bench.records.integrity import Broken, Key, damage, foreign, keys_of, lacking_steps, parts, run_table, tables
from lopa_bench.records.reading import ORDER, newest_rows
from lopa_bench.records.schema import NOT_SCORED, layout
from lopa_bench.system.storage import written

if TYPE_CHECKING:
    import pyarrow as pa

BROKEN = ".broken"

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ReadBack:
    """The samples of a run as they are on disk, each by its newest row, in the order of the source."""

    samples: pa.Table
    part_of: Mapping[Key, str]  # the part that holds this row, and its steps
    lacking: frozenset[Key]  # those whose steps are not all there
    has_lost_row: bool  # run.parquet was set aside

    def complete(self, columns: Sequence[str]) -> pa.Table:
        """Columns of the samples whose steps are all there."""
        import pyarrow as pa

        whole = [key not in self.lacking for key in keys_of(self.samples)]
        return self.samples.select(list(columns)).filter(pa.array(whole, pa.bool_()))

    @property
    def unscored(self) -> list[str]:
        """The parts that hold a decoded sample whose verdict is missing."""
        statuses = zip(keys_of(self.samples), self.samples["score_status"].to_pylist(), strict=True)
        return sorted({self.part_of[key] for key, status in statuses if status == NOT_SCORED})


def read_back(folder: Path, run_id: str) -> ReadBack:
    """All that was written and can be read: every byte of the samples once, and of the steps once, unless this process
    has read them before. What is broken, or of another run, is set aside and not in it.
    """
    import pyarrow as pa

    row_reason = _row_damage(folder / "run.parquet", run_id)
    if row_reason:
        set_aside(folder / "run.parquet", row_reason, "it is written anew")
    for place in (folder / "samples", folder / "steps"):
        if os.path.lexists(place) and not place.is_dir():
            set_aside(place, "it is no folder", "its rows are redone")
    for path in parts(folder, "steps"):
        if reason := damage(path, "steps", run_id):
            set_aside(path, reason, "its rows are redone")
    found: dict[str, pa.Table] = {}
    part_of: dict[Key, str] = {}
    for path in parts(folder, "samples"):
        try:
            table = pa.concat_tables([layout("samples").empty_table(), *tables(path, "samples")])
            if reason := foreign(table["run_id"].to_pylist(), run_id):
                raise Broken(reason)
        except Broken as error:
            set_aside(path, str(error), "its rows are redone")
            continue
        found[path.name] = table
        part_of.update(dict.fromkeys(keys_of(table), path.name))
    newest = {name: newest_rows(table, name, part_of) for name, table in found.items()}
    lacking = [lacking_steps(table, folder / "steps" / name) for name, table in newest.items()]
    samples = pa.concat_tables([layout("samples").empty_table(), *newest.values()])
    samples = samples.sort_by([(name, "ascending") for name in ORDER])
    return ReadBack(samples, part_of, frozenset().union(*lacking), row_reason is not None)


def _row_damage(path: Path, run_id: str) -> str | None:
    try:
        (owner,) = run_table(path)["run_id"].to_pylist()
    except FileNotFoundError:
        return None
    except Broken as error:
        return str(error)
    return None if owner == run_id else f"it belongs to the run {owner}"


def set_aside(path: Path, reason: str, then: str) -> None:
    """Renames a file out of the way, to a name that nothing has yet."""
    aside = path.with_name(path.name + BROKEN)
    number = 1
    while os.path.lexists(aside):
        number += 1
        aside = path.with_name(f"{path.name}{BROKEN}-{number}")
    with written(path):
        os.rename(path, aside)
    log.warning("%s cannot be used (%s): set aside as %s, %s", path, reason, aside.name, then)
