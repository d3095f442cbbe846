"""Which two runs and which sample a replay shows when nobody chose."""

from __future__ import annotations

from analysis.study import Study
from lopa_bench.records.runs import Run

WANTED_K = 8  # beside k = 0


def pair(study: Study) -> tuple[Run, Run] | None:
    """The run without lookahead and the one with k nearest to 8, of the largest series over k that starts at 0."""
    found = [runs for runs in study.k_series() if runs[0].k == 0]
    if not found:
        return None
    series = max(found, key=lambda runs: (len(runs[0].attempted), len(runs)))
    return series[0], min(series[1:], key=lambda run: abs((run.k or 0) - WANTED_K))


def telling_sample(a: Run, b: Run) -> str | None:
    """Of the problems that both runs solved the one of median length, so that neither an easy nor a failed one stands
    for all; of all decoded ones when none was solved twice.
    """
    columns = ["problem_id", "sample_index", "correct", "content_tokens"]
    right = a.samples.select(columns).to_pandas().merge(b.samples.select(columns).to_pandas(), on=columns[:2])
    right = right[(right["sample_index"] == 0) & right["content_tokens_x"].notna() & right["content_tokens_y"].notna()]
    solved = right[(right["correct_x"] == True) & (right["correct_y"] == True)]  # noqa: E712  # null is neither
    candidates = (solved if len(solved) else right).sort_values("content_tokens_x", kind="stable")
    return None if candidates.empty else str(candidates["problem_id"].iloc[len(candidates) // 2])
