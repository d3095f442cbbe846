"""The ratios of a run to the first that it stands beside: like with like, on the samples that both decoded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lopa_bench.metrics.comparable import COLUMNS, Counted, Standing, key, shared, stand
from lopa_bench.metrics.paired import samples_of
from lopa_bench.metrics.statistics import quotient
from lopa_bench.metrics.varied import settings_of

if TYPE_CHECKING:
    import pyarrow as pa

    from lopa_bench.metrics.varied import Measured

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
    tables = [samples_of(run, COLUMNS) if len(runs) > 1 and _is_on_disk(run) else None for run, _ in runs]
    found: list[Relative | None] = []
    apart: dict[str, None] = {}
    firsts: list[int] = []  # of each kind of run
    for index, run in enumerate(runs):
        reasons = []
        for first in firsts:
            ratios, why = _ratios(runs[first], tables[first], run, tables[index])
            if ratios is not None:
                found.append(ratios)
                break
            reasons.append(why)
        else:
            found.append(None)
            firsts.append(index)
            apart |= dict.fromkeys(reasons)
    return found, list(apart)


def _ratios(
    first: Measured, first_samples: pa.Table | None, run: Measured, samples: pa.Table | None
) -> tuple[Relative | None, str]:
    rules = first[1].get("preset", "effective"), run[1].get("preset", "effective")
    if first_samples is None or samples is None:
        return _by_rows(first, run, *rules)
    standing: Standing = stand(Counted(first[0], first_samples, rules[0]), Counted(run[0], samples, rules[1]))
    if not standing:
        return None, standing.why
    reference, numbers = _over_shared(first, run)
    is_whole = standing.pairs == first_samples.num_rows == samples.num_rows
    return _divided(reference, numbers, standing.pairs, is_whole), ""


def _by_rows(first: Measured, run: Measured, rule: str, other: str) -> tuple[Relative | None, str]:
    """Without the samples of both: only for runs whose rows say that they have the same ones."""
    same = key(first[0], rule) == key(run[0], other) and _taken(first[0]) == _taken(run[0])
    if not same or first[1]["n"] != run[1]["n"]:
        facts = ("task", "source_name", "model", "device", "dtype")
        return None, ", ".join(name for name in facts if first[0][name] != run[0][name]) or "problems"
    return _divided(first[1], run[1], run[1]["n"]), ""


def _taken(run: Mapping[str, Any]) -> tuple[Any, Any]:
    """The split of the problems, and how many of it."""
    return settings_of({"task.rows": ""}, run)["task.rows"] or None, run.get("limit")


def _over_shared(first: Measured, run: Measured) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """The aggregates of both over the samples that both decoded; those at hand where these are all samples."""
    from lopa_bench.metrics.aggregate import aggregate

    whole = [samples_of(one) for one, _ in (first, run)]
    parts = shared(whole)
    if all(one["correct"].equals(other["correct"]) for one, other in zip(whole, parts)):
        return first[1], run[1]
    rule = run[1]["preset"]
    a, b = (aggregate(part, rule, one["seed"]) for part, (one, _) in zip(parts, (first, run)))
    return a, b


def _divided(reference: Mapping[str, Any], numbers: Mapping[str, Any], pairs: int, is_whole: bool = True) -> Relative:
    own, other = numbers.get("accuracy"), reference.get("accuracy")
    difference = None if own is None or other is None else own - other
    return Relative(
        pairs, difference, {name: quotient(numbers.get(name), reference.get(name)) for name in NAMES}, is_whole
    )


def _is_on_disk(run: Mapping[str, Any]) -> bool:
    """Not so for a run of which only its numbers are known."""
    return bool(run.get("folders") or run.get("folder"))
