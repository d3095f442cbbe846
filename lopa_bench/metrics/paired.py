"""Two runs problem by problem, and the runs of a sweep against one of them: is it faster, and is it worse?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from lopa_bench.metrics import statistics
from lopa_bench.metrics.comparable import Counted, shared, stand
from lopa_bench.metrics.latency import mean_latency
from lopa_bench.metrics.presets import Columns, decoded_samples, get_preset, numeric, problems, ratios
from lopa_bench.metrics.statistics import Estimate, Ratio, divide, finite, quotient

if TYPE_CHECKING:
    import pyarrow as pa

    from lopa_bench.metrics.varied import Measured

ASKED_FOR = ("model", "device", "batch")  # what a run and its baseline may differ in
COLUMNS = ("decoder", "k", "model", "backend")  # of a run row, by which a run can be named


@dataclass(frozen=True)
class Beside:
    """A quantity of two runs, over the pairs that have it on both sides: `difference` is b - a, `ratio` is b / a."""

    a: float | None
    b: float | None
    difference: Estimate
    ratio: Estimate


@dataclass(frozen=True)
class PairedNumbers:
    """Two runs on the same problems. Pairs are samples with the same problem and sample index that neither run failed
    on; accuracy is compared over those that both judged. McNemar's test takes pairs for independent: one sample a
    problem. `quantities`: the preset's TPF and TPS, latency_s, tokens_per_processed and calls (a sample).
    """

    preset: str
    pairs: int
    unpaired: int  # samples of either run without a partner
    judged_pairs: int
    accuracy: Beside
    only_a_correct: int
    only_b_correct: int
    mcnemar_p: float | None
    quantities: Mapping[str, Beside]
    adjusted_p: float | None = None  # for the number of tests that it is one of


def parse(text: str) -> tuple[str, str]:
    """From "column:value". Raises ValueError."""
    name, sign, value = text.partition(":")
    if name not in COLUMNS or not sign or not value:
        raise ValueError(f"against={text} is not allowed; allowed: NAME:VALUE with NAME one of {', '.join(COLUMNS)}")
    return name, value


def baseline_first(runs: Sequence[Measured], against: str) -> tuple[list[Measured], bool]:
    """The runs, the first one that `against` names in front, and whether there is one."""
    name, value = parse(against)
    chosen = next((one for one in runs if str(one.run.row[name]) == value), None)
    if chosen is None:
        return list(runs), False
    return [chosen, *(one for one in runs if one is not chosen)], True


def compare_all(runs: Sequence[Measured]) -> list[tuple[Measured, PairedNumbers]]:
    """Each further run with its comparison to the first, p values adjusted for their number (Benjamini-Hochberg, as in
    the report). The first was asked for, so it may be another model elsewhere; runs of another task, other problems,
    prompts or scorers, or counted in another way, are left out.
    """
    first = runs[0]
    counted = [Counted(one.run, one.run.samples, one.preset) for one in runs]
    beside = [(one, at) for one, at in zip(runs[1:], counted[1:]) if stand(counted[0], at, but=ASKED_FOR)]
    found = [compare(first.run.samples, at.samples, first.preset, first.run.seed) for _, at in beside]
    return list(zip([one for one, _ in beside], with_adjusted_p(found), strict=True))


def with_adjusted_p(comparisons: Sequence[PairedNumbers]) -> list[PairedNumbers]:
    """With p values adjusted for the number of those that were tested."""
    tested = [one.mcnemar_p for one in comparisons if one.mcnemar_p is not None]
    values = iter(statistics.adjusted(tested))
    return [replace(one, adjusted_p=None if one.mcnemar_p is None else next(values)) for one in comparisons]


def compare(a: pa.Table, b: pa.Table, preset: str = "effective", seed: int = 0) -> PairedNumbers:
    """Two runs by their samples, pair by pair. Raises ValueError where golds differ, PresetError as in
    `decoded_samples`.
    """
    rule = get_preset(preset)
    decoded = [decoded_samples(samples, rule) for samples in (a, b)]
    a, b = shared(decoded)
    if a["gold"].to_pylist() != b["gold"].to_pylist():
        raise ValueError("the runs have different gold answers under the same problem ids: not the same problems")
    right = [(one, other) for one, other in zip(a["correct"].to_pylist(), b["correct"].to_pylist(), strict=True)]
    judged = np.array([None not in pair for pair in right], dtype=bool)
    cells = Counter(pair for pair in right if None not in pair)
    only_a, only_b = cells[True, False], cells[False, True]
    groups = problems(a)
    for_a, for_b = (ratios(rule, columns) | _further(columns) for columns in map(numeric, (a, b)))
    return PairedNumbers(
        preset=preset,
        pairs=a.num_rows,
        unpaired=sum(table.num_rows for table in decoded) - 2 * a.num_rows,
        judged_pairs=cells.total(),
        accuracy=_accuracy(np.array(right)[judged].reshape(-1, 2).astype(float), groups[judged], seed),
        only_a_correct=only_a,
        only_b_correct=only_b,
        mcnemar_p=statistics.mcnemar(only_a, only_b) if cells else None,
        quantities={name: _beside(for_a[name], for_b[name], groups, seed) for name in for_a},
    )


def _further(columns: Columns) -> dict[str, Ratio]:
    """What means the same under every preset."""
    processed = Ratio(columns["content_tokens"], columns["tokens_processed"])
    calls = Ratio(columns["forwards"], np.ones_like(columns["forwards"]))  # of the model, for a sample
    return {"latency_s": mean_latency(columns), "tokens_per_processed": processed, "calls": calls}


def _accuracy(right: np.ndarray, groups: np.ndarray, seed: int) -> Beside:
    """`right`: judged pairs x 2, 1.0 for a right answer."""
    ones = np.ones(len(right))
    found = _beside(Ratio(right[:, 0], ones), Ratio(right[:, 1], ones), groups, seed)
    exact = quotient((right[:, 1] - right[:, 0]).sum(), len(right))  # the difference of two quotients is rounded
    return replace(found, difference=replace(found.difference, value=exact))


def _beside(a: Ratio, b: Ratio, groups: np.ndarray, seed: int) -> Beside:
    """Both values, their difference and their ratio, with intervals from draws that both runs share."""
    parts = np.stack([a.numerator, a.denominator, b.numerator, b.denominator], axis=1)
    parts[(a.denominator == 0) | (b.denominator == 0)] = 0.0  # a pair that lacks one side has no side
    sums = statistics.sum_by_group(parts, groups)
    value_a, value_b, *whole = (finite(values[0]) for values in _contrast(sums.sum(axis=0, keepdims=True)))
    draws = statistics.resampled_sums(sums, seed=seed) if len(sums) > 1 else np.zeros((1, 4))
    _, _, *drawn = _contrast(draws)
    estimates = (Estimate(value, statistics.percentile_interval(one)) for value, one in zip(whole, drawn, strict=True))
    return Beside(value_a, value_b, *estimates)


def _contrast(sums: np.ndarray) -> tuple[np.ndarray, ...]:
    """a, b, b - a and b / a for rows of (numerator a, denominator a, numerator b, denominator b)."""
    a, b = divide(sums[:, 0], sums[:, 1]), divide(sums[:, 2], sums[:, 3])
    return a, b, b - a, divide(b, a)
