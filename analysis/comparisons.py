"""Two runs on the same problems, pair by pair; and every run against its baseline, with a correction for many tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from analysis.labels import decoding, model_of, task_of
from analysis.runs import Run
from analysis.study import Study, same_problems
from lopa_bench.metrics import compare as compare_samples
from lopa_bench.presets import PRESETS
from lopa_bench.statistics import adjusted

MANY_TESTS = (
    "Each p value is McNemar's exact test for one pair of runs. Of many such tests some are small by chance: the "
    "adjusted p values control the expected share of false findings among all comparisons listed here "
    "(Benjamini-Hochberg, scipy.stats.false_discovery_control), which is valid for tests that share a baseline. "
    "Intervals of TPF and TPS ratios are not adjusted: of a hundred 95 % intervals about five miss."
)


@dataclass(frozen=True)
class Comparison:
    """`numbers` as `lopa_bench.metrics.compare` gives them: differences are b - a, ratios b / a."""

    a: Run
    b: Run
    numbers: Mapping[str, Any]
    adjusted_p: float | None = None


def compare(a: Run, b: Run, preset: str = "effective") -> Comparison:
    """Raises ValueError when the runs are not on the same problems."""
    if a.task != b.task or a.row["source_sha256"] != b.row["source_sha256"]:
        raise ValueError(f"{a.id} is on {task_of(a)} and {b.id} on {task_of(b)}: not the same problems")
    numbers = compare_samples(a.samples, b.samples, preset, int(a.row["seed"]))
    if not numbers["pairs"]:
        raise ValueError(f"{a.id} and {b.id} have no problem in common that both decoded")
    return Comparison(a, b, numbers)


def against_baselines(study: Study) -> list[Comparison]:
    """Lookahead against its base decoder, the other decoders against greedy; same model, same problems."""
    found = []
    for run in study.distinct():
        baseline = study.baseline(run) if run.lookahead else study.baseline(run, base="greedy")
        if baseline is not None and baseline is not run and same_problems(run, baseline) and not run.is_server:
            found.append(compare(baseline, run))
    return adjust(found)


def adjust(comparisons: Sequence[Comparison]) -> list[Comparison]:
    """With p values adjusted for the number of comparisons."""
    tested = [one for one in comparisons if one.numbers["mcnemar_p"] is not None]
    values = iter(adjusted([one.numbers["mcnemar_p"] for one in tested]))
    return [
        one if one.numbers["mcnemar_p"] is None else Comparison(one.a, one.b, one.numbers, next(values))
        for one in comparisons
    ]


def in_words(one: Comparison) -> str:
    """A comparison as plain text, for the terminal."""
    numbers = one.numbers
    rows = [
        f"a: {one.a.id} ({model_of(one.a)}, {decoding(one.a)})",
        f"b: {one.b.id} ({model_of(one.b)}, {decoding(one.b)})",
        f"{task_of(one.a)}; {one.a.row['source_name']}; {numbers['pairs']} pairs, {numbers['unpaired']} samples without"
        f" a partner; counting {numbers['preset']} ({PRESETS[numbers['preset']].formula}); ranges are 95 % intervals",
        "",
    ]
    if numbers["accuracy_difference"] is not None:
        rows += [
            f"score: a {100 * numbers['accuracy_a']:.1f} %, b {100 * numbers['accuracy_b']:.1f} %, difference "
            f"{100 * numbers['accuracy_difference']:+.1f} points over {numbers['judged_pairs']} judged pairs",
            f"       only a right: {numbers['only_a_correct']}, only b right: {numbers['only_b_correct']}, "
            f"McNemar's exact p {_relation(p_text(numbers['mcnemar_p']))}",
        ]
    for name in ("tpf", "tps"):
        if numbers[f"{name}_ratio"] is not None:
            rows.append(
                f"{name.upper()}:   a {numbers[f'{name}_a']:.2f}, b {numbers[f'{name}_b']:.2f}, difference "
                f"{numbers[f'{name}_difference']:+.2f}{_range(numbers[f'{name}_difference_ci95'])}, "
                f"ratio {numbers[f'{name}_ratio']:.3f}{_range(numbers[f'{name}_ratio_ci95'], 3)}"
            )
    rows += ["", "One comparison: its p value is not adjusted. Among many runs, take the adjusted ones of the report."]
    return "\n".join(rows)


def p_text(p: float | None) -> str:
    if p is None:
        return "–"
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def _relation(text: str) -> str:
    return text if text.startswith("<") else f"= {text}"


def _range(interval: tuple[float, float] | None, digits: int = 2) -> str:
    return "" if interval is None else f" [{interval[0]:.{digits}f}, {interval[1]:.{digits}f}]"
