"""Which runs are a whole one: those that were never cut, and the shards of one of which none is missing."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Iterable, Sequence
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
    runs: Iterable[One], run_of: Callable[[One], Run], apart: Callable[[One], Hashable] = lambda one: None
) -> list[Cut[One]]:
    """The runs with their shards together, in the order in which each comes first.

    Shards belong together if they are of the same run, cut into as many, and nothing sets them `apart`; of a shard that
    was done twice the later one counts.
    """
    groups: dict[Hashable, dict[str | None, One]] = {}
    counts: dict[Hashable, int] = {}
    for position, one in enumerate(runs):
        run = run_of(one)
        count = int(run.shard.rpartition("/")[2]) if run.shard else 1
        which = position if run.union_key is None or not run.shard else (run.union_key, count, apart(one))
        groups.setdefault(which, {})[run.shard] = one
        counts[which] = count
    return [Cut(list(group.values()), counts[which]) for which, group in groups.items()]


def usable(runs: Iterable[Run]) -> list[Run]:
    """What tables and figures are made of: finished runs, then the unions of shards of which none is missing.

    A run that stopped early, a lone shard, or a run with damaged files holds some of the problems only. Of copies of a
    run, which have its id, one counts: that in the folder of this name, else the first. Damaged ones and copies are
    named in a warning each time.
    """
    good: list[Run] = []
    kept: dict[str, Run] = {}
    for run in (run for run in runs if run.status == "finished"):
        if run.damage:
            log.warning("%s is left out: %s", run.folder, run.damage)
            continue
        good.append(run)
        if run.id not in kept or run.folder.name == run.id:
            kept[run.id] = run
    for run in good:
        if kept[run.id] is not run:
            log.warning("%s is left out: it is a copy of %s (run_id %s)", run.folder, kept[run.id].folder, run.id)
    good = [run for run in good if kept[run.id] is run]
    whole = [cut.parts for cut in gathered(good, lambda run: run) if cut.is_whole]
    found = [parts[0] if len(parts) == 1 else union(parts) for parts in whole]
    return sorted(found, key=lambda run: len(run.folders) > 1)


def union(shards: Sequence[Run]) -> Run:
    """The run that was cut into these; it has no aggregates of its own before it is counted."""
    first = shards[0]
    facts: dict[str, Any] = {
        "run_id": f"{first.id} and {len(shards) - 1} other shards",
        "shard": None,
        "n": sum(run.n for run in shards),
        "aggregates": {},
    }
    return Run(tuple(run.folder for run in shards), {**first.row, **facts})
