"""Whether an answer depends on how it was computed: runs of one setting that differ in batch, number format, attention
kernel or device, sample by sample beside one of them.

Rounding differs between all of these, and where two tokens are almost equally probable a choice may turn over; what
follows is then another text. No rule says how much of that is right: this counts it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lopa_bench.records.integrity import Key
from lopa_bench.records.reading import read_samples
from lopa_bench.records.runs import Run
from lopa_bench.records.schema import ERROR_REASONS

# How something is computed, and the values that a whole comparison would have; None: any number of them.
AXES: Mapping[str, Sequence[str] | None] = {
    "run.batch": None,
    "run.devices": None,
    "model.dtype": ("float32", "bfloat16", "float16"),
    "backend.attention": ("products", "fused"),
    "backend.compile": None,
    "backend.threads": None,
    "backend.device": ("cpu", "cuda", "mps", "npu"),
}
UNTOLD, NOTHING = "auto", (None, False, "none")  # a setting that was left open, or that asks for nothing
CHANGES_NOTHING = ("run.warmup",)
COLUMNS = ("problem_id", "sample_index", "token_ids", "correct", "finish_reason", "extracted")
WAY = ("positions", "tokens")


@dataclass(frozen=True)
class Change:
    """One sample that came out otherwise. `token`: the first that differs of the generated ones, from 0; None where
    the ids are the same. `step`: the first call that filled other positions or tokens; None where no steps are kept.
    """

    key: Key
    token: int | None
    step: int | None
    before: bool | None  # verdicts
    after: bool | None

    @property
    def in_ids(self) -> bool:
        return self.token is not None

    @property
    def in_verdict(self) -> bool:
        return self.before is not self.after


@dataclass(frozen=True)
class Beside:
    """A run beside the reference. `axes`: what it differs in, with both values; nothing for a run that repeats it.
    `changes`: samples whose ids, verdict or order of filling is another.
    """

    run: Run
    axes: Mapping[str, tuple[str, str]]
    samples: int
    changes: Sequence[Change]

    @property
    def ids(self) -> int:
        return sum(change.in_ids for change in self.changes)

    @property
    def verdicts(self) -> int:
        return sum(change.in_verdict for change in self.changes)

    @property
    def ways(self) -> int:
        """Samples with the same ids, filled in another order or number of calls."""
        return sum(not change.in_ids and change.step is not None for change in self.changes)

    @property
    def name(self) -> str:
        return " ".join(f"{name}={value}" for name, (_, value) in self.axes.items()) or "again"


@dataclass(frozen=True)
class Invariance:
    """The runs of one setting: the reference, and the others beside it. `absent`: values of AXES that no run has."""

    reference: Run
    others: Sequence[Beside]
    absent: Mapping[str, Sequence[str]]

    @property
    def name(self) -> str:
        """How the reference computed, without what it left open."""
        return in_words(axes_of(self.reference))

    @property
    def not_run(self) -> str:
        """What a whole comparison would have and no run has: it is not here, or it was not asked for."""
        return " ".join(f"{name}={','.join(values)}" for name, values in self.absent.items())


def axes_of(run: Run) -> dict[str, str]:
    """How a run computed: what was asked for, and where that was `auto`, what it came to."""
    told = {name: run.overrides.get(name) for name in AXES}
    kind = run.device.partition(":")[0] if told["backend.device"] == "auto" else told["backend.device"]
    told |= {"model.dtype": run.dtype, "run.batch": run.batch, "backend.device": kind}
    return {name: UNTOLD if value in NOTHING else str(value) for name, value in told.items()}


def in_words(axes: Mapping[str, str]) -> str:
    return " ".join(f"{name}={value}" for name, value in axes.items() if value != UNTOLD)


def same_settings(runs: Iterable[Run]) -> list[list[Run]]:
    """Finished runs of this machine or another, by setting, as far as two or more differ in nothing but AXES."""
    groups: dict[str, list[Run]] = {}
    for run in {run.id: run for run in runs}.values():  # what two jobs asked for may be one run
        if run.status == "finished" and not run.is_server:
            groups.setdefault(_setting(run), []).append(run)
    return [group for group in groups.values() if len(group) > 1]


def _setting(run: Run) -> str:
    """Everything that two runs have in common if they differ in AXES alone."""
    left = {name: value for name, value in run.overrides.items() if name not in (*AXES, *CHANGES_NOTHING)}
    facts = [run.task, run.scorer, run.source_sha256, run.model, run.model_sha256, run.decoder, run.wraps]
    return json.dumps([*facts, run.k_as_set, run.seed, run.shard, left], sort_keys=True, default=str)


def invariance(runs: Sequence[Run]) -> Invariance:
    """Runs of one setting beside the one that most of them differ from in one thing at most; of several such, the one
    with the smallest batch, then the oldest.
    """
    axes = {run.id: axes_of(run) for run in runs}
    near = {run.id: sum(len(_between(axes[run.id], axes[other.id])) <= 1 for other in runs) for run in runs}
    reference = min(runs, key=lambda run: (-near[run.id], run.batch, run.created, run.id))
    rows, ways = _rows(reference), _ways(reference)
    others = [_beside(reference, rows, ways, run) for run in runs if run is not reference]
    seen = {name: {own[name] for own in axes.values()} for name in AXES}
    absent = {name: [value for value in values if value not in seen[name]] for name, values in AXES.items() if values}
    return Invariance(reference, others, {name: values for name, values in absent.items() if values})


def _between(left: Mapping[str, str], right: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    return {name: (left[name], right[name]) for name in AXES if left[name] != right[name]}


def _beside(reference: Run, rows: Mapping[Key, Any], ways: Mapping[Key, Any], run: Run) -> Beside:
    theirs, their_ways = _rows(run), _ways(run)
    shared = [key for key in rows if key in theirs]
    found = [_change(key, rows[key], theirs[key], ways.get(key), their_ways.get(key)) for key in shared]
    axes = _between(axes_of(reference), axes_of(run))
    return Beside(run, axes, len(shared), [change for change in found if change is not None])


def _change(key: Key, mine: Any, theirs: Any, way: Any, their_way: Any) -> Change | None:
    step = None if way is None or their_way is None else _first(way, their_way)
    failed = [row["finish_reason"] in ERROR_REASONS for row in (mine, theirs)]
    token = 0 if failed[0] != failed[1] else _first(mine["token_ids"], theirs["token_ids"])
    change = Change(key, token, step, mine["correct"], theirs["correct"])
    return change if change.in_ids or change.in_verdict or step is not None else None


def _first(left: Sequence[Any], right: Sequence[Any]) -> int | None:
    """Where two sequences part; None for equal ones."""
    if list(left) == list(right):
        return None
    return next((at for at, (a, b) in enumerate(zip(left, right)) if a != b), min(len(left), len(right)))


def _rows(run: Run) -> dict[Key, dict[str, Any]]:
    rows = read_samples(run.folders, COLUMNS).to_pylist()
    return {(row["problem_id"], row["sample_index"]): row for row in rows}


def _ways(run: Run) -> dict[Key, list[tuple[Any, ...]]]:
    """Of each sample what its calls filled, in their order."""
    found: dict[Key, list[tuple[int, Any, Any]]] = {}
    for row in run.steps(WAY).to_pylist():
        way = found.setdefault((row["problem_id"], row["sample_index"]), [])
        way.append((row["step"], row["positions"], row["tokens"]))
    return {key: sorted(way) for key, way in found.items()}
