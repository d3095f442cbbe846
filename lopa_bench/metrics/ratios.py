"""The ratios of a run to the first that it stands beside: like with like, on the samples that both decoded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lopa_bench.metrics.comparable import Counted, key, shared, stand
from lopa_bench.metrics.statistics import quotient
from lopa_bench.metrics.varied import Measured
from lopa_bench.records.runs import Run

NAMES = ("tpf", "tpf_row", "tps", "latency_s", "forwards", "rows")


@dataclass(frozen=True)
class Relative:
    """A run against its reference: `values` by name (None where either is unknown), and accuracy as a difference."""

    pairs: int  # samples that both decoded
    accuracy_difference: float | None
    values: Mapping[str, float | None]
    is_whole: bool = True  # no sample of either run is left out


def ratios_to_first(runs: Sequence[Measured]) -> tuple[list[Relative | None], list[str]]:
    """For each run its ratios to the first run above that it stands beside, None if there is none; and what sets apart
    those that stand beside none.
    """
    found: list[Relative | None] = []
    apart: dict[str, None] = {}
    firsts: list[Measured] = []  # of each kind of run
    for run in runs:
        reasons = []
        for first in firsts:
            ratios, why = _ratios(first, run)
            if ratios is not None:
                found.append(ratios)
                break
            reasons.append(why)
        else:
            found.append(None)
            firsts.append(run)
            apart |= dict.fromkeys(reasons)
    return found, list(apart)


def _ratios(first: Measured, run: Measured) -> tuple[Relative | None, str]:
    if not first.run.folders or not run.run.folders:
        return _by_rows(first, run)
    samples = first.run.samples, run.run.samples
    standing = stand(Counted(first.run, samples[0], first.preset), Counted(run.run, samples[1], run.preset))
    if not standing:
        return None, standing.why
    reference, numbers = _over_shared(first, run)
    is_whole = standing.pairs == samples[0].num_rows == samples[1].num_rows
    return _divided(reference, numbers, standing.pairs, is_whole), ""


def _by_rows(first: Measured, run: Measured) -> tuple[Relative | None, str]:
    """Without the samples of both: only for runs whose rows say that they have the same ones."""
    same = key(first.run, first.preset) == key(run.run, run.preset) and _taken(first.run) == _taken(run.run)
    if not same or first.numbers["n"] != run.numbers["n"]:
        facts = ("task", "source_name", "model", "device", "dtype")
        return None, ", ".join(name for name in facts if first.run.row[name] != run.run.row[name]) or "problems"
    return _divided(first.numbers, run.numbers, run.numbers["n"]), ""


def _taken(run: Run) -> tuple[Any, Any]:
    """The split of the problems, and how many of it."""
    return (run.config.get("task") or {}).get("rows"), run.limit


def _over_shared(first: Measured, run: Measured) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """The aggregates of both over the samples that both decoded; those at hand where these are all samples."""
    from lopa_bench.metrics.aggregate import aggregate

    whole = [one.run.samples for one in (first, run)]
    parts = shared(whole)
    if all(one["correct"].equals(other["correct"]) for one, other in zip(whole, parts)):
        return first.numbers, run.numbers
    a, b = (aggregate(part, run.preset, one.run.seed) for part, one in zip(parts, (first, run)))
    return a, b


def _divided(reference: Mapping[str, Any], numbers: Mapping[str, Any], pairs: int, is_whole: bool = True) -> Relative:
    own, other = numbers.get("accuracy"), reference.get("accuracy")
    difference = None if own is None or other is None else own - other
    values = {name: quotient(numbers.get(name), reference.get(name)) for name in NAMES}
    return Relative(pairs, difference, values, is_whole)
