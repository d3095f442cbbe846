"""Which runs are a whole one: those that were never cut, and the shards of one of which none is missing."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from lopa_bench.records.runs import Run

One = TypeVar("One")

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Cut(Generic[One]):
    """All shards of a run that there are, or a run that was never cut."""

    parts: Sequence[One]
    count: int  # into how many it was cut

    @property
    def is_whole(self) -> bool:
        return len(self.parts) == self.count


def gathered(
    runs: Iterable[One], row_of: Callable[[One], Mapping[str, Any]], apart: Callable[[One], Hashable] = lambda run: None
) -> list[Cut[One]]:
    """The runs with their shards together, in the order in which each comes first.

    Shards belong together if they are of the same run, cut into as many, and nothing sets them `apart`; of a shard that
    was done twice the later one counts.
    """
    groups: dict[Hashable, dict[str | None, One]] = {}
    counts: dict[Hashable, int] = {}
    for position, run in enumerate(runs):
        row = row_of(run)
        shard: str | None = row["shard"]
        count = int(shard.rpartition("/")[2]) if shard else 1
        which = position if row["union_key"] is None or not shard else (row["union_key"], count, apart(run))
        groups.setdefault(which, {})[shard] = run
        counts[which] = count
    return [Cut(list(group.values()), counts[which]) for which, group in groups.items()]


def usable(runs: Iterable[Run]) -> list[Run]:
    """What tables and figures are made of: finished runs, then the unions of shards of which none is missing.

    A run that stopped early, a lone shard, or a run with damaged files holds some of the problems only; the damaged
    ones are named in a warning each time.
    """
    good = []
    for run in (run for run in runs if run.status == "finished"):
        if run.damage:
            log.warning("%s is left out: %s", run.folder, run.damage)
        else:
            good.append(run)
    whole = [cut.parts for cut in gathered(good, lambda run: run.row) if cut.is_whole]
    found = [parts[0] if len(parts) == 1 else _union(parts) for parts in whole]
    return sorted(found, key=lambda run: len(run.folders) > 1)


def _union(shards: Sequence[Run]) -> Run:
    first = shards[0]
    name = f"{first.id} and {len(shards) - 1} other shards"
    facts: dict[str, Any] = {
        "run_id": name,
        "shard": None,
        "n": sum(run.row["n"] or 0 for run in shards),
        "aggregates": {},
    }
    return Run(tuple(run.folder for run in shards), {**first.row, **facts})
