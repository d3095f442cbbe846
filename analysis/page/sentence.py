"""One sentence that says what the runs show, made from paired numbers; and as plainly that they show nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from analysis.comparisons import Comparison
from analysis.labels import base_name, decoding, model_of, task_of
from analysis.page.leaderboard import LEVEL, Leaderboard, difference_of, p_of, ratio_of
from analysis.study import Group, Study
from analysis.text import clipped, typeset
from lopa_bench.console.numbers import fixed, number, p_value, percent, signed
from lopa_bench.metrics.statistics import Estimate
from lopa_bench.records.runs import Run

USUAL_K = 8
NAME = 60  # characters of a decoder's name


def sentence(board: Leaderboard) -> str:
    """Of the comparison that says most: lookahead with k nearest to 8 beside its base, else the fastest decoder beside
    greedy, in the group with the most problems.
    """
    study = board.study
    if not study.runs:
        return "There is no finished run."
    found = _telling(board)
    if found is not None:
        return _compared(found, len(board.comparisons))
    if len(study.runs) == 1:
        return _alone(study)
    pair = _side_by_side(study)
    if pair is None:
        return _apart(study)
    return f"{_n_runs(study.runs)}; none has its base decoder, or greedy, beside it, so no ratio is shown."


def _telling(board: Leaderboard) -> Comparison | None:
    for group in board.study.contexts():
        inside = [one for run in group if (one := board.comparison(run)) is not None]
        if inside:
            lookahead = [one for one in inside if one.b.lookahead]
            return min(lookahead or inside, key=_by_interest)
    return None


def _by_interest(one: Comparison) -> tuple[Any, ...]:
    k = abs((one.b.k if one.b.k is not None else USUAL_K) - USUAL_K) if one.b.lookahead else 0
    return not one.b.is_lopa, k, -(ratio_of(one, "tps").value or 0.0), one.b.id


def _compared(one: Comparison, tests: int) -> str:
    numbers = one.numbers
    name = clipped(decoding(one.b), NAME)
    its = f"its base ({base_name(one.a.base)})" if one.b.lookahead else clipped(decoding(one.a), NAME)
    cost = f"needs {_calls(ratio_of(one, 'calls'), its)} and {_time(one)}"
    where = f"{clipped(model_of(one.b), NAME)} on {clipped(task_of(one.b), NAME)}"
    unpaired = f", {numbers.unpaired} samples without a partner" if numbers.unpaired else ""
    return f"{name} {cost}; {_score(one, tests)}, n\u00a0=\u00a0{numbers.pairs}{unpaired} ({where})."


def _calls(ratio: Estimate, its: str) -> str:
    if ratio.value is None:
        return f"an unknown number of calls beside {its}"
    than = "than" if _is_apart(ratio) else "as"
    return f"{_factor(ratio, 'fewer', 'more', 'as many')} calls {than} {its}"


def _time(one: Comparison) -> str:
    ratio = ratio_of(one, "latency_s")
    if ratio.value is None:
        ratio = ratio_of(one, "tps")
        if ratio.value is None:
            return "no time of single problems was recorded"
        return f"makes {_factor(ratio, 'fewer', 'more', 'as many')} tokens a second"
    if not _is_apart(ratio):
        return f"takes about as long on this machine (×{number(ratio.value)}{_range(ratio)})"
    if ratio.value < 1:
        return f"is {number(1 / ratio.value)}× faster on this machine"
    return f"takes {number(ratio.value)}× longer on this machine"


def _factor(ratio: Estimate, below: str, above: str, alike: str) -> str:
    if not _is_apart(ratio) or not ratio.value:
        return f"about {alike}"
    return f"{number(1 / ratio.value)}× {below}" if ratio.value < 1 else f"{number(ratio.value)}× {above}"


def _is_apart(ratio: Estimate) -> bool:
    """Whether the interval leaves 1 out, and the ratio is not 1 as it is printed; one problem alone has no interval."""
    value, interval = ratio.value, ratio.interval
    if not value or value < 0 or interval is None:
        return False
    return (interval[0] > 1 or interval[1] < 1) and fixed(max(value, 1 / value)) != "1.00"


def _range(ratio: Estimate) -> str:
    return "" if ratio.interval is None else f", {fixed(ratio.interval[0])} to {fixed(ratio.interval[1])}"


def _score(one: Comparison, tests: int) -> str:
    numbers, difference, p = one.numbers, difference_of(one), p_of(one)
    if difference is None or p is None:
        return "no verdict tells which solves more"
    p_text = p_value(p)
    test = f"McNemar p {p_text if p_text.startswith('<') else f'= {p_text}'}"
    test += f" adjusted for {tests} comparisons" if tests > 1 else ""
    points = f"{fixed(abs(difference), 1)} points"
    if p < LEVEL:
        return f"it solves {points} {'fewer' if difference < 0 else 'more'}, {test}"
    if not numbers.only_a_correct and not numbers.only_b_correct:
        return f"both solve the same problems, {test}"
    interval = numbers.accuracy.difference.scaled(100).interval or (difference, difference)
    low, high = (typeset(signed(end)) for end in interval)
    how = f"it solves {points} {'fewer' if difference < 0 else 'more'}, which may be chance"
    if numbers.only_a_correct == numbers.only_b_correct:
        how = "it solves as many, not all the same"
    alone = " (not adjusted)" if tests > 1 else ""
    return f"{how}: {test}, 95 % interval {low} to {high} points{alone}"


def _alone(study: Study) -> str:
    run = study.runs[0]
    numbers = study.numbers(run)
    score, tpf = numbers.get("accuracy").value, study.value(run, "tpf", "effective").value
    parts = [
        f"solves {percent(score)} of {numbers.judged} problems" if score is not None else f"{numbers.n} problems",
        f"at {fixed(tpf)} tokens a call" if tpf is not None else "",
    ]
    place = f"{model_of(run)} on {task_of(run)}"
    said = f"One run: {clipped(decoding(run), NAME)} {' '.join(filter(None, parts))} ({place})"
    return f"{said}. One run alone shows no difference: run another decoder on the same problems."


def _side_by_side(study: Study) -> Group | None:
    return next((group for group in study.contexts() if len(group) > 1), None)


def _apart(study: Study) -> str:
    """Why no two of several runs stand beside each other, told of the two largest."""
    first, second = sorted(study.runs, key=lambda run: -run.n)[:2]
    why = study.standing(first, second).why
    because = f" The largest two differ in {clipped(why, 200)}." if why else " They repeat the same settings."
    return f"{_n_runs(study.runs)}, of which no two can be compared.{because}"


def _n_runs(runs: Sequence[Run]) -> str:
    places = len({(model_of(run), task_of(run)) for run in runs})
    return f"{len(runs)} runs" + (f" of {places} models and tasks" if places > 1 else "")
