"""Two runs problem by problem, and the runs of a sweep against one of them: is it faster, and is it worse?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lopa_bench.metrics.comparable import Counted, shared, stand
from lopa_bench.metrics.latency import mean_latency
from lopa_bench.metrics.presets import Columns, decoded_samples, get_preset, numeric, problems, ratios
from lopa_bench.metrics.statistics import (
    Interval,
    Ratio,
    adjusted,
    divide,
    finite,
    mcnemar,
    percentile_interval,
    quotient,
    resampled_sums,
    sum_by_group,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from lopa_bench.metrics.varied import Measured

ASKED_FOR = ("model", "device", "batch")  # what a run and its baseline may differ in
COLUMNS = ("decoder", "k", "model", "backend")  # of a run row, by which a run can be named


def parse(text: str) -> tuple[str, str]:
    """From "column:value". Raises ValueError."""
    name, sign, value = text.partition(":")
    if name not in COLUMNS or not sign or not value:
        raise ValueError(f"against={text} is not allowed; allowed: NAME:VALUE with NAME one of {', '.join(COLUMNS)}")
    return name, value


def baseline_first(runs: Sequence[Measured], against: str) -> tuple[list[Measured], bool]:
    """The runs, the first one that `against` names in front, and whether there is one."""
    name, value = parse(against)
    chosen = next((run for run in runs if str(run[0].get(name)) == value), None)
    if chosen is None:
        return list(runs), False
    return [chosen, *(run for run in runs if run is not chosen)], True


def compare_all(runs: Sequence[Measured]) -> list[tuple[Measured, Mapping[str, Any]]]:
    """Each further run with its comparison to the first, p values adjusted for their number (Benjamini-Hochberg, as in
    the report). The first was asked for, so it may be another model elsewhere; runs of another task, other problems,
    prompts or scorers, or counted in another way, are left out.
    """
    first, numbers = runs[0]
    samples = samples_of(first)
    rule = numbers["preset"]
    found = []
    for run in runs[1:]:
        others = samples_of(run[0])
        counted = Counted(first, samples, rule), Counted(run[0], others, run[1].get("preset", rule))
        if stand(*counted, but=ASKED_FOR):
            found.append((run, compare(samples, others, rule, first["seed"])))
    return list(zip([run for run, _ in found], with_adjusted_p([numbers for _, numbers in found]), strict=True))


def samples_of(run: Mapping[str, Any], columns: Sequence[str] | None = None) -> pa.Table:
    """The samples of a run, or of all shards of a union."""
    from lopa_bench.records.reading import read_samples

    return read_samples([Path(folder) for folder in run.get("folders") or [run["folder"]]], columns)


def with_adjusted_p(comparisons: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Results of `compare` with their p values adjusted for the number of those that were tested."""
    tested = [one["mcnemar_p"] for one in comparisons if one["mcnemar_p"] is not None]
    values = iter(adjusted(tested))
    return [dict(one, adjusted_p=None if one["mcnemar_p"] is None else next(values)) for one in comparisons]


def compare(a: pa.Table, b: pa.Table, preset: str = "effective", seed: int = 0) -> dict[str, Any]:
    """Two runs on the same problems, pair by pair: `difference` is b - a, `ratio` is b / a.

    Pairs are samples with the same problem and sample index that neither run failed on; accuracy is compared over
    those that both runs judged. McNemar's test takes pairs for independent: one sample a problem.
    """
    rule = get_preset(preset)
    decoded = [decoded_samples(samples, rule) for samples in (a, b)]
    a, b = shared(decoded)
    if a["gold"].to_pylist() != b["gold"].to_pylist():
        raise ValueError("the runs have different gold answers under the same problem ids: not the same problems")
    unpaired = sum(table.num_rows for table in decoded) - 2 * a.num_rows
    result = {"preset": preset, "pairs": a.num_rows, "unpaired": unpaired} | _paired_accuracy(a, b, seed)
    for_a, for_b = (ratios(rule, columns) | _further(columns) for columns in map(numeric, (a, b)))
    for name in for_a:
        result |= _paired_ratio(name, for_a[name], for_b[name], problems(a), seed)
    return result


def _further(columns: Columns) -> dict[str, Ratio]:
    """What means the same under every preset."""
    processed = Ratio(columns["content_tokens"], columns["tokens_processed"])
    return {"latency_s": mean_latency(columns), "tokens_per_processed": processed}


def _paired_accuracy(a: pa.Table, b: pa.Table, seed: int) -> dict[str, Any]:
    verdicts = [
        pair for pair in zip(a["correct"].to_pylist(), b["correct"].to_pylist(), strict=True) if None not in pair
    ]
    cells = Counter(verdicts)
    only_a, only_b = cells[True, False], cells[False, True]
    accuracy_a = quotient(cells[True, True] + only_a, len(verdicts))
    accuracy_b = quotient(cells[True, True] + only_b, len(verdicts))
    return {
        "judged_pairs": len(verdicts),
        "accuracy_a": accuracy_a,
        "accuracy_b": accuracy_b,
        "accuracy_difference": quotient(only_b - only_a, len(verdicts)),
        "accuracy_difference_ci95": _accuracy_interval(a, b, seed),
        "only_a_correct": only_a,
        "only_b_correct": only_b,
        "mcnemar_p": mcnemar(only_a, only_b) if verdicts else None,
    }


def _accuracy_interval(a: pa.Table, b: pa.Table, seed: int) -> Interval | None:
    """Of the difference, by drawing problems."""
    columns = zip(a["correct"].to_pylist(), b["correct"].to_pylist(), problems(a), strict=True)
    known = [(bool(one), bool(other), group) for one, other, group in columns if None not in (one, other)]
    if not known:
        return None
    right_a, right_b, groups = (np.array(column) for column in zip(*known))
    ones = np.ones(len(known))
    a_right, b_right = (Ratio(right.astype(float), ones) for right in (right_a, right_b))
    interval: Interval | None = _paired_ratio("accuracy", a_right, b_right, groups, seed)["accuracy_difference_ci95"]
    return interval


def _paired_ratio(name: str, a: Ratio, b: Ratio, groups: np.ndarray, seed: int) -> dict[str, Any]:
    """Both values, their difference and their ratio, with intervals from draws that both runs share."""
    parts = np.stack([a.numerator, a.denominator, b.numerator, b.denominator], axis=1)
    parts[(a.denominator == 0) | (b.denominator == 0)] = 0.0  # a pair that lacks one side has no side
    sums = sum_by_group(parts, groups)
    value_a, value_b, difference, ratio = (values[0] for values in _contrast(sums.sum(axis=0, keepdims=True)))
    draws = resampled_sums(sums, seed=seed) if len(sums) > 1 else np.zeros((1, 4))
    _, _, differences, relative = _contrast(draws)
    return {
        f"{name}_a": finite(value_a),
        f"{name}_b": finite(value_b),
        f"{name}_difference": finite(difference),
        f"{name}_difference_ci95": percentile_interval(differences),
        f"{name}_ratio": finite(ratio),
        f"{name}_ratio_ci95": percentile_interval(relative),
    }


def _contrast(sums: np.ndarray) -> tuple[np.ndarray, ...]:
    """a, b, b - a and b / a for rows of (numerator a, denominator a, numerator b, denominator b)."""
    a, b = divide(sums[:, 0], sums[:, 1]), divide(sums[:, 2], sums[:, 3])
    return a, b, b - a, divide(b, a)
