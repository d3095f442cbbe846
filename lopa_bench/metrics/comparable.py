"""Like with like: whether two runs may stand side by side, what differs if they may not, and on how many samples.

Two numbers say something about two decoders only if all else is equal: the task, the problems and how they are asked
and judged, the model, the device, how many samples shared a call, and the counting rule. Of the problems only those
count that both runs decoded. Everything that sets runs beside each other (ratios, tables, curves) asks here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar

from lopa_bench.records.integrity import Key
from lopa_bench.records.runs import Run
from lopa_bench.records.schema import ERROR_REASONS

if TYPE_CHECKING:
    import pyarrow as pa

Side = TypeVar("Side", bound=Hashable)
Point = TypeVar("Point", bound=Hashable)

CHECKSUM = re.compile(r"\b([0-9a-f]{12})[0-9a-f]{52}\b")
# What `stand` and `shared` read of the samples.
COLUMNS = ("problem_id", "sample_index", "finish_reason", "gold", "correct")


@dataclass(frozen=True)
class Counted:
    """A run as it is counted: its samples (at least COLUMNS), and the counting preset."""

    run: Run
    samples: pa.Table
    rule: str = "effective"


@dataclass(frozen=True)
class Difference:
    """One of FACTS, or "counting" or "gold answers", and what it is on either side."""

    fact: str
    a: str
    b: str

    def __str__(self) -> str:
        return f"{self.fact}: {self.a} / {self.b}"


@dataclass(frozen=True)
class Standing:
    """Whether two runs stand side by side (its truth value), and why not.

    `pairs`: samples that both decoded, which are the n of every comparison. `alone`: those that only one decoded.
    """

    differences: tuple[Difference, ...]
    pairs: int
    alone: int

    def __bool__(self) -> bool:
        return not self.differences and self.pairs > 0

    @property
    def why(self) -> str:
        """What differs, in words; empty for runs that stand side by side."""
        if not self.differences and not self.pairs:
            return "no problem in common that both decoded"
        return "; ".join(map(str, self.differences))


def stand(a: Counted, b: Counted, but: Collection[str] = ()) -> Standing:
    """Whether two runs stand side by side. `but`: facts that may differ because they are what is compared."""
    facts = _facts(a.run, a.rule), _facts(b.run, b.rule)
    differences = [
        Difference(name, *_apart(facts[0][name], facts[1][name]))
        for name in facts[0]
        if name not in but and facts[0][name].whole != facts[1][name].whole
    ]
    golds_a, golds_b = _golds(a.samples), _golds(b.samples)
    both = golds_a.keys() & golds_b.keys()
    other = next((key for key in golds_a if key in both and golds_a[key] != golds_b[key]), None)
    if other is not None:
        differences.append(Difference(f"gold answers ({other[0]})", repr(golds_a[other]), repr(golds_b[other])))
    return Standing(tuple(differences), len(both), len(golds_a.keys() ^ golds_b.keys()))


def key(run: Run, rule: str = "effective", but: Collection[str] = ()) -> tuple[str, ...]:
    """Equal for two runs exactly if none of the facts of their rows differs."""
    return tuple(fact.whole for name, fact in _facts(run, rule).items() if name not in but)


def shared(samples: Sequence[pa.Table]) -> list[pa.Table]:
    """The samples that all runs decoded, in one order. A verdict that one of the runs lacks is null for all: scores
    that stand side by side are over the same completions' problems.
    """
    import pyarrow as pa

    rows = [_rows(table) for table in samples]
    keys = [key for key in rows[0] if all(key in one for one in rows)] if rows else []
    tables = [
        table.take(pa.array([one[key] for key in keys], pa.int64())) for table, one in zip(samples, rows, strict=True)
    ]
    verdicts = [table["correct"].to_pylist() for table in tables]
    judged = [None not in of_one_sample for of_one_sample in zip(*verdicts)]
    return [
        table.set_column(
            table.column_names.index("correct"),
            table.schema.field("correct"),
            pa.array([verdict if known else None for verdict, known in zip(column, judged)], pa.bool_()),
        )
        for table, column in zip(tables, verdicts)
    ]


def common_grid(offered: Mapping[Side, Collection[Point]]) -> tuple[frozenset[Point], tuple[Side, ...]]:
    """The points that were offered to every side that was tuned, and these sides; both empty if there is no such grid.

    The best of many trials beats a single one by luck alone. So the best points of two sides are compared over points
    that both were tried on; a side without at least two of them was not tuned and has no place beside the others.
    """
    widest_first = sorted(offered, key=lambda side: -len(set(offered[side])))
    grid: frozenset[Point] = frozenset()
    tuned: list[Side] = []
    for side in widest_first:
        both = grid & frozenset(offered[side]) if tuned else frozenset(offered[side])
        if len(both) > 1:
            grid, tuned = both, [*tuned, side]
    if len(tuned) < 2:
        return frozenset(), ()
    return grid, tuple(side for side in offered if side in tuned)


def _rows(samples: pa.Table) -> dict[Key, int]:
    """The row of each sample that was decoded."""
    keys = zip(samples["problem_id"].to_pylist(), samples["sample_index"].to_pylist(), strict=True)
    reasons = samples["finish_reason"].to_pylist()
    return {key: row for row, (key, reason) in enumerate(zip(keys, reasons)) if reason not in ERROR_REASONS}


def _golds(samples: pa.Table) -> dict[Key, str]:
    golds = samples["gold"].to_pylist()
    return {key: golds[row] for key, row in _rows(samples).items()}


@dataclass(frozen=True)
class Fact:
    """What a reader is shown, and all that must be equal."""

    shown: str
    whole: str


def _facts(run: Run, rule: str) -> dict[str, Fact]:
    return {name: Fact(str(shown(run)), repr(whole(run))) for name, (shown, whole) in FACTS.items()} | {
        "counting": Fact(rule, rule)
    }


def _apart(a: Fact, b: Fact) -> tuple[str, str]:
    """What is shown of two values, or the whole of them, checksums shortened, where that looks alike."""
    if a.shown != b.shown:
        return a.shown, b.shown
    return CHECKSUM.sub(r"\1", a.whole), CHECKSUM.sub(r"\1", b.whole)


def source(run: Run) -> str:
    """The checksum of the problems; where they have none, what they are called."""
    return run.source_sha256 or run.source_name


def _model(run: Run) -> tuple[Any, ...]:
    return run.model, run.model_sha256, _settings(run, "model", "lora", "add_bos", "chat_template_kwargs")


def _device(run: Run) -> str:
    """Workers that decoded at once are another setup than one: they share a machine's memory, bus and cores."""
    ranks, workers = run.host.get("ranks") or {}, run.host.get("workers") or [1]
    shared = f", {ranks['branch']} branch ranks" if ranks else ""
    shared += "" if workers == [1] else f", {' or '.join(map(str, workers))} workers"
    return f"{run.backend} on {run.device} {run.dtype}{shared}"


def _machine(run: Run) -> tuple[Any, ...]:
    """The kind of hardware, and the threads of a CPU; which of several equal machines it was is not asked."""
    on_cpu = run.device == "cpu"
    return _device(run), run.host.get("processor" if on_cpu else "gpu"), run.host.get("threads") if on_cpu else None


def _asked(run: Run) -> dict[str, Any]:
    return _settings(run, "task", "shots", "shots_style", "prompt_style")


def _together(run: Run) -> tuple[Any, Any]:
    return run.batch, _settings(run, "backend", "concurrency")["concurrency"]


def _settings(run: Run, group: str, *names: str) -> dict[str, Any]:
    found = run.config.get(group) or {}
    return {name: found.get(name) for name in names}


FACTS: dict[str, tuple[Callable[[Run], Any], Callable[[Run], Any]]] = {  # as in Fact
    "task": (attrgetter("task"), attrgetter("task")),
    "source": (attrgetter("source_name"), source),
    "prompt": (_asked, _asked),
    "scorer": (attrgetter("scorer"), attrgetter("scorer")),
    "model": (attrgetter("model"), _model),
    "device": (_device, _machine),
    "batch": (attrgetter("batch"), _together),
}
