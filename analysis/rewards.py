"""What the branches of one run were rewarded for: removal bonus, paired gain, and how likely their token was.

Definitions: decoders/lookahead/rewards.py and docs/lookahead.md. The rounds are those with a choice, of runs that go by
a branch score and record these columns.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from analysis.stepwise import bin_means
from lopa_bench.records.runs import Run

COLUMNS = ("problem_id", "scores", "winner", "bonus", "gain", "fresh_probs")
BINS = 8
LEAST = 20  # fewer branches make no bins


@dataclass(frozen=True)
class Rewards:
    """One entry a branch beside the anchor: `advantage` is its score over the anchor's, `fresh` the probability that
    the anchor's row gives its token, nan where another token is the best there. `round` numbers the rounds, `sample`
    the samples.
    """

    bonus: np.ndarray
    gain: np.ndarray
    advantage: np.ndarray
    fresh: np.ndarray
    won: np.ndarray
    round: np.ndarray
    sample: np.ndarray

    def within_rounds(self, one: str, other: str) -> float:
        """Pearson's correlation of two of these, the mean of each round taken off both; nan if there is none."""
        x, y = getattr(self, one), getattr(self, other)
        known = np.isfinite(x) & np.isfinite(y)
        x, y = (_centred(values[known], self.round[known]) for values in (x, y))
        scale = np.sqrt((x * x).sum() * (y * y).sum())
        return float((x * y).sum() / scale) if scale > 0 else float("nan")

    def by_probability(self, name: str, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Mean fresh probability of eight bins of equally many branches, the mean of `name` in each, and its bootstrap
        interval over samples.
        """
        known = np.isfinite(self.fresh)
        fresh, values = self.fresh[known], getattr(self, name)[known]
        order = np.argsort(fresh, kind="stable")
        bins = np.empty(len(fresh), dtype=int)
        bins[order] = np.arange(len(fresh)) * BINS // len(fresh)
        centres = np.bincount(bins, weights=fresh) / np.bincount(bins)
        return (centres, *bin_means(values, bins, self.sample[known], seed))


def rewards(run: Run) -> Rewards | None:
    """Reads the steps of a run; None where too few of them say what was rewarded."""
    table = run.steps(COLUMNS).to_pandas()
    table = table[table["bonus"].notna()]
    rows = []
    samples = {name: number for number, name in enumerate(dict.fromkeys(table["problem_id"]))}
    columns = [table[name] for name in COLUMNS]
    for number, (problem, scores, winner, bonus, gain, fresh) in enumerate(zip(*columns)):
        scores = np.asarray(scores, dtype=float)
        for branch in range(len(bonus)):
            of_branch = bonus[branch], gain[branch], scores[branch + 1] - scores[0], fresh[branch]
            rows.append((*of_branch, winner == branch + 1, number, samples[problem]))
    found = np.array(rows, dtype=float).reshape(-1, 7)
    found = found[np.isfinite(found[:, :3]).all(axis=1)]
    if np.isfinite(found[:, 3]).sum() < LEAST:
        return None
    bonus, gain, advantage, fresh, won, rounds, sample = found.T
    return Rewards(bonus, gain, advantage, fresh, won.astype(bool), rounds.astype(int), sample.astype(int))


def _centred(values: np.ndarray, groups: np.ndarray) -> np.ndarray:
    sums, counts = np.bincount(groups, weights=values), np.bincount(groups)
    return values - (sums / np.maximum(counts, 1))[groups]
