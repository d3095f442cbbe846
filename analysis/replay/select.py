"""Which runs and which sample a replay shows when nobody chose."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from analysis.study import Study, place_of
from lopa_bench.records.runs import Run

WANTED_K = 8  # beside k = 0
MOST_SIDES = 4  # more would not fit a screen


def pair(study: Study) -> tuple[Run, Run] | None:
    """The run without lookahead and the one with k nearest to 8, of the largest series over k that starts at 0."""
    found = [runs for runs in study.k_series() if runs[0].k == 0]
    if not found:
        return None
    series = max(found, key=lambda runs: (len(runs[0].attempted), len(runs)))
    return series[0], min(series[1:], key=lambda run: abs((run.k or 0) - WANTED_K))


def sides(study: Study, marked: Iterable[Run] = ()) -> list[Run]:
    """Those of `pair`, greedy before them, and behind them the `marked` runs of their place, as far as all of them
    decoded step by step what these two did; up to MOST_SIDES. Empty where there is no pair.
    """
    found = pair(study)
    if found is None:
        return []
    base, ours = found
    greedy = study.baseline(base, base="greedy") if base.base != "greedy" else None
    beside = [run for run in marked if place_of(run) == place_of(ours)]
    chosen: dict[str, Run] = {}
    for run in filter(None, (greedy, base, ours, *beside)):
        has_steps = not run.is_server and not run.is_autoregressive
        if has_steps and base.decoded & ours.decoded <= run.decoded:
            chosen.setdefault(run.id, run)
    return list(chosen.values())[:MOST_SIDES]


def telling_sample(runs: Sequence[Run]) -> str | None:
    """Of the problems that all runs solved the one of median length, so that neither an easy nor a failed one stands
    for all; of all decoded ones when none was solved by all.
    """
    columns = ["problem_id", "sample_index", "correct", "content_tokens"]
    tables = [run.samples.select(columns).to_pandas() for run in runs]
    shared = tables[0]
    for number, table in enumerate(tables[1:]):
        shared = shared.merge(table, on=columns[:2], suffixes=("", f"_{number}"))
    lengths = [name for name in shared if name.startswith("content_tokens")]
    verdicts = [name for name in shared if name.startswith("correct")]
    shared = shared[(shared["sample_index"] == 0) & shared[lengths].notna().all(axis=1)]
    solved = shared[shared[verdicts].eq(True).all(axis=1)]  # null is neither
    candidates = (solved if len(solved) else shared).sort_values("content_tokens", kind="stable")
    return None if candidates.empty else str(candidates["problem_id"].iloc[len(candidates) // 2])
