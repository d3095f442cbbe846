"""Intervals and tests. Everything is seeded: the same rows give the same interval.

Sources: Wilson (1927); percentile bootstrap (Efron 1979) of ratios of sums; McNemar's test in
its exact form, a binomial test on the discordant pairs; pass@k (Chen et al. 2021).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import comb, sqrt
from statistics import NormalDist

import numpy as np

CONFIDENCE = 0.95
RESAMPLES = 2000
_BLOCK = 4_000_000  # drawn indices held at once, which bounds the memory at about 64 MB

Interval = tuple[float, float]


@dataclass(frozen=True)
class Estimate:
    """A number and its 95 % interval; either may be missing."""

    value: float | None = None
    interval: Interval | None = None

    def scaled(self, factor: float) -> Estimate:
        if self.value is None:
            return self
        interval = None if self.interval is None else (self.interval[0] * factor, self.interval[1] * factor)
        return Estimate(self.value * factor, interval)


def wilson(successes: int, trials: int) -> Interval | None:
    """95 % interval of a rate; None without trials."""
    if trials == 0:
        return None
    z = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
    rate, spread = successes / trials, z * z / trials
    centre = (rate + spread / 2) / (1 + spread)
    half = z * sqrt(rate * (1 - rate) / trials + spread / (4 * trials)) / (1 + spread)
    return (0.0 if successes == 0 else centre - half, 1.0 if successes == trials else centre + half)


def mcnemar(only_first: int, only_second: int) -> float:
    """Exact two-sided p value that two runs are equally accurate, from the pairs on which they differ."""
    from scipy.stats import binomtest

    pairs = only_first + only_second
    return float(binomtest(only_first, pairs).pvalue) if pairs else 1.0


def adjusted(p_values: Sequence[float]) -> list[float]:
    """P values that control the expected share of false findings among all of them (Benjamini and Hochberg 1995)."""
    from scipy.stats import false_discovery_control

    return [float(p) for p in false_discovery_control(p_values)] if len(p_values) else []


def holm(p_values: Sequence[float]) -> list[float]:
    """P values that control the chance of any false finding among all of them (Holm 1979), in the order given."""
    order = sorted(range(len(p_values)), key=lambda index: p_values[index])
    found, highest = [0.0] * len(p_values), 0.0
    for rank, index in enumerate(order):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[index]))
        found[index] = highest
    return found


def pass_at(k: int, n: int, correct: int) -> float | None:
    """Probability that one of k samples drawn from n, `correct` of them right, is right; None for k > n.

    The unbiased estimator of Chen et al. 2021, 1 - C(n - correct, k) / C(n, k).
    """
    if k > n:
        return None
    return 1.0 - comb(n - correct, k) / comb(n, k)


def mean_pass_at(k: int, tallies: Sequence[tuple[int, int]]) -> float | None:
    """Mean of `pass_at` over problems, each with (samples, right ones); None if a problem has too few samples."""
    values = [pass_at(k, n, correct) for n, correct in tallies]
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known and len(known) == len(values) else None


def sum_by_group(values: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """Rows of `values` (samples x columns) added up for each group id.

    Samples of one problem are not independent, so problems are what the bootstrap draws.
    """
    _, index = np.unique(groups, return_inverse=True)
    sums = np.zeros((index.max(initial=-1) + 1, values.shape[1]))
    np.add.at(sums, index, values)
    return sums


def resampled_sums(values: np.ndarray, resamples: int = RESAMPLES, seed: int = 0) -> np.ndarray:
    """Column sums of `resamples` draws with replacement from the rows of `values`: resamples x columns.

    All columns share their draws, so ratios of the result, and differences of such ratios, are paired.
    """
    size = len(values)
    generator = np.random.default_rng(seed)
    sums = np.empty((resamples, values.shape[1]))
    block = max(1, _BLOCK // size)
    for start in range(0, resamples, block):
        count = min(block, resamples - start)
        drawn = generator.integers(0, size, (count, size))
        drawn += np.arange(count)[:, None] * size  # one histogram for the whole block
        weights = np.bincount(drawn.ravel(), minlength=count * size).reshape(count, size)
        sums[start : start + count] = weights @ values
    return sums


def percentile_interval(draws: np.ndarray) -> Interval | None:
    """95 % percentile interval; draws whose denominator was zero are left out."""
    finite = draws[np.isfinite(draws)]
    if finite.size == 0:
        return None
    tail = 100 * (1 - CONFIDENCE) / 2
    low, high = np.percentile(finite, [tail, 100 - tail])
    return float(low), float(high)


def divide(numerator: np.ndarray, denominator: np.ndarray) -> np.ndarray:
    """Element by element; NaN where the denominator is not above zero."""
    valid = denominator > 0
    return np.divide(numerator, denominator, out=np.full(numerator.shape, np.nan), where=valid)


def quotient(numerator: float | None, denominator: float | None) -> float | None:
    if numerator is None or not denominator or denominator < 0:
        return None
    return float(numerator / denominator)


def finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


@dataclass(frozen=True)
class Ratio:
    """sum(numerator) / sum(denominator) over the samples that have both."""

    numerator: np.ndarray
    denominator: np.ndarray

    def __post_init__(self) -> None:
        known = np.isfinite(self.numerator) & np.isfinite(self.denominator)
        object.__setattr__(self, "numerator", np.where(known, self.numerator, 0.0))
        object.__setattr__(self, "denominator", np.where(known, self.denominator, 0.0))

    @property
    def value(self) -> float | None:
        return quotient(self.numerator.sum(), self.denominator.sum())


def bootstrap(fractions: Mapping[str, Ratio], groups: np.ndarray, seed: int) -> dict[str, Interval | None]:
    """95 % interval of each fraction, from the same draws of problems; None for fewer than two problems."""
    parts = [part for ratio in fractions.values() for part in (ratio.numerator, ratio.denominator)]
    sums = sum_by_group(np.stack(parts, axis=1), groups)
    if len(sums) < 2:
        return dict.fromkeys(fractions)
    drawn = resampled_sums(sums, seed=seed)
    values = divide(drawn[:, 0::2], drawn[:, 1::2])
    return {name: percentile_interval(values[:, i]) for i, name in enumerate(fractions)}
