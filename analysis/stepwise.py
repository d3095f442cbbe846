"""What the steps of one run say, reduced to a few small arrays: the rows themselves are never kept."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pyarrow.compute as pc

from lopa_bench.metrics.statistics import Estimate, divide, percentile_interval, resampled_sums, sum_by_group
from lopa_bench.records.runs import Run

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS = ("branches", "winner", "winner_score", "positions", "taken_positions")
SAMPLE = ["problem_id", "sample_index"]
BINS = 8
LEAST_STEPS = 20  # fewer do not make a rank correlation


@dataclass(frozen=True)
class Filling:
    """Tokens gained at each step index, over the samples that still decode at it."""

    mean: np.ndarray
    low: np.ndarray  # 25 %
    high: np.ndarray  # 75 %
    samples: np.ndarray  # still decoding


@dataclass(frozen=True)
class ScoreFill:
    """Positions filled by the rule, by branch score: bins of equally many steps, and Spearman's rank correlation.

    `pooled` ranks all steps of the run together; `within` ranks the steps of each sample by themselves, so that
    neither easy problems nor the progress of the text from problem to problem can make it.
    """

    score: np.ndarray
    filled: np.ndarray
    low: np.ndarray
    high: np.ndarray
    pooled: Estimate
    within: Estimate
    steps: int


@dataclass(frozen=True)
class Digest:
    filling: Filling
    winners: np.ndarray  # steps won by rank 0 (the anchor), 1, 2, ... where there was a choice
    blind: float  # share that the anchor would win there by lot: mean of 1 / branches
    score_fill: ScoreFill | None


def digest(run: Run, samples: pa.Table | None = None) -> Digest:
    """Reads the steps of a run once; of these of its samples only, if they are given."""
    table = run.steps(COLUMNS)
    filled = pc.list_value_length(table["positions"]).to_numpy()
    taken = pc.list_value_length(table["taken_positions"]).to_numpy(zero_copy_only=False)  # nan but for drafts
    steps = table.drop_columns(["positions", "taken_positions"]).to_pandas().assign(filled=filled, taken=taken)
    if samples is not None:
        steps = steps.merge(samples.select(SAMPLE).to_pandas(), on=SAMPLE)
    # The winner's lookahead token was placed before the call, and so was what a draft assumed and the call confirmed.
    before = np.where(steps["taken"].isna(), steps["winner"] > 0, steps["taken"])
    steps["gained"] = steps["filled"] + before.astype(int)
    steps["sample"] = steps.groupby(SAMPLE, sort=False).ngroup()
    contested = steps[steps["branches"] > 1]
    blind = float((1 / contested["branches"]).mean())
    seed = run.seed
    return Digest(_filling(steps), np.bincount(contested["winner"]), blind, _score_fill(steps, seed))


def _filling(steps: pd.DataFrame) -> Filling:
    gained = steps.groupby("step")["gained"]
    low, high = (gained.quantile(q).to_numpy() for q in (0.25, 0.75))
    return Filling(gained.mean().to_numpy(), low, high, gained.count().to_numpy())


def _score_fill(steps: pd.DataFrame, seed: int) -> ScoreFill | None:
    known = steps[np.isfinite(steps["winner_score"].to_numpy(dtype=float))]
    if len(known) < LEAST_STEPS or known["winner_score"].nunique() < 2 or known["filled"].nunique() < 2:
        return None
    score, filled = known["winner_score"].to_numpy(dtype=float), known["filled"].to_numpy(dtype=float)
    groups = known["sample"].to_numpy()
    bins = pd.qcut(score, BINS, labels=False, duplicates="drop")
    means, low, high = bin_means(filled, bins, groups, seed)
    centres = divide(np.bincount(bins, weights=score), np.bincount(bins).astype(float))
    ranks = known[["winner_score", "filled"]].rank()
    within = known.groupby("sample")[["winner_score", "filled"]].rank()
    within -= within.groupby(groups).transform("mean")
    pooled = _correlation((ranks - ranks.mean()).to_numpy(), groups, seed)
    return ScoreFill(centres, means, low, high, pooled, _correlation(within.to_numpy(), groups, seed), len(known))


def bin_means(
    values: np.ndarray, bins: np.ndarray, groups: np.ndarray, seed: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean of each bin with a bootstrap interval over samples, whose steps are not independent."""
    n = int(bins.max()) + 1
    member = np.eye(n)[bins]
    sums = sum_by_group(np.hstack([member * values[:, None], member]), groups)
    total = sums.sum(axis=0)
    drawn = resampled_sums(sums, seed=seed)
    draws = divide(drawn[:, :n], drawn[:, n:])
    intervals = [percentile_interval(draws[:, i]) or (np.nan, np.nan) for i in range(n)]
    low, high = np.array(intervals).T
    return divide(total[:n], total[n:]), low, high


def _correlation(centred: np.ndarray, groups: np.ndarray, seed: int) -> Estimate:
    """Pearson's correlation of centred ranks, which is Spearman's, with a bootstrap interval over samples.

    The ranks are taken once and not again in every draw: that makes the sum of products a sum over samples.
    """
    x, y = centred.T
    sums = sum_by_group(np.stack([x * y, x * x, y * y], axis=1), groups)
    value = _pearson(sums.sum(axis=0, keepdims=True))[0]
    if not np.isfinite(value):
        return Estimate()
    return Estimate(
        float(value), percentile_interval(_pearson(resampled_sums(sums, seed=seed))) if len(sums) > 1 else None
    )


def _pearson(sums: np.ndarray) -> np.ndarray:
    return divide(sums[:, 0], np.sqrt(sums[:, 1] * sums[:, 2]))
