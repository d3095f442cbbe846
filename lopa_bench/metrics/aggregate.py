"""From sample rows to ratios: what a table shows, and whether two runs differ.

No ratio is stored without the counts it came from, and every ratio is one of sums unless its name says `mean`,
`max` or `top10`. Samples that ended in an error are counted and take part in no ratio. Where a denominator is zero
or a column is empty the value is None. Names, units and formulas: docs/metrics.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from lopa_bench.metrics.latency import latencies
from lopa_bench.metrics.presets import (
    COUNTS,
    SECONDS,
    Columns,
    Preset,
    decoded_samples,
    errored,
    get_preset,
    numeric,
    pa_array,
    problems,
    ratios,
)
from lopa_bench.metrics.statistics import (
    Interval,
    Ratio,
    bootstrap,
    divide,
    finite,
    mcnemar,
    mean_pass_at,
    percentile_interval,
    quotient,
    resampled_sums,
    sum_by_group,
    wilson,
)
from lopa_bench.records.schema import ERROR_REASONS

if TYPE_CHECKING:
    import pyarrow as pa

PASS_AT = (1, 2, 5, 10, 20, 50, 100)


def aggregate(
    samples: pa.Table, preset: str = "effective", seed: int = 0, wall_s: float | None = None
) -> dict[str, Any]:
    """All numbers of a run, or of all shards of one.

    `wall_s`: seconds in which batched samples, which have no time each, were decoded; None adds up the column.
    """
    rule = get_preset(preset)
    decoded = decoded_samples(samples, rule)
    columns = numeric(decoded)
    batched = bool((columns["batch"] > 1).any() or (columns["concurrency"] > 1).any())
    result = _verdicts(samples, seed) | _totals(columns) | _fixed_ratios(columns)
    result |= {"preset": preset, "formula": rule.formula, "note": rule.note}
    result |= _preset_ratios(rule, columns, problems(decoded), seed)
    result |= _sample_statistics(rule, columns) | latencies(decoded, columns, problems(decoded), seed)
    wall_s = _sum(columns["wall_s"]) if wall_s is None else wall_s
    result |= {"batched": batched, "approximate": any(decoded["approximate"].to_pylist()), "wall_s": wall_s}
    result["tps_clock"] = "sample" if result["tps"] is not None else None
    if batched and wall_s and not rule.mean_of_samples:
        result |= _wall_speeds(rule, columns, wall_s)
    return result


def _wall_speeds(rule: Preset, columns: Columns, wall_s: float) -> dict[str, Any]:
    speeds = {name: quotient(_sum(tokens(columns)), wall_s) for name, tokens in rule.numerators("tps").items()}
    return speeds | {"tps_clock": "wall"}


def _verdicts(samples: pa.Table, seed: int) -> dict[str, Any]:
    """Accuracy over the samples that were judged, and over all that were attempted."""
    failed = errored(samples)
    correct = [None if bad else verdict for bad, verdict in zip(failed, samples["correct"].to_pylist(), strict=True)]
    judged = np.array([verdict is not None for verdict in correct], dtype=bool)
    right = np.array([verdict is True for verdict in correct], dtype=float)
    n, errors = len(correct), int(failed.sum())
    interval, method = _accuracy_interval(right[judged], problems(samples)[judged], seed)
    return {
        "n": n,
        "problems": len(set(samples["problem_id"].to_pylist())),
        "errors": errors,
        "judged": int(judged.sum()),
        "unjudged": int(n - errors - judged.sum()),
        "complete": n > 0 and bool(judged.all()),
        "finish_reasons": dict(Counter(samples["finish_reason"].to_pylist()).most_common()),
        "machines": dict(Counter(name for name in samples["machine"].to_pylist() if name).most_common()),
        "correct": int(right.sum()),
        "accuracy": quotient(right.sum(), judged.sum()),
        "accuracy_ci95": interval,
        "accuracy_ci95_method": method,
        "accuracy_attempted": quotient(right.sum(), n),
        "pass_at": _pass_at(right[judged], problems(samples)[judged]),
    }


def _pass_at(right: np.ndarray, groups: np.ndarray) -> dict[str, float | None]:
    """pass@k over problems, for all samples and the k of PASS_AT below; k = 1 alone without repeats."""
    tallies: dict[str, tuple[int, int]] = {}
    for group, verdict in zip(groups, right, strict=True):
        n, correct = tallies.get(group, (0, 0))
        tallies[group] = n + 1, correct + int(verdict)
    most = max((n for n, _ in tallies.values()), default=0)
    ks = sorted({k for k in PASS_AT if k <= most} | {most} - {0})
    return {str(k): mean_pass_at(k, list(tallies.values())) for k in ks}


def _accuracy_interval(right: np.ndarray, groups: np.ndarray, seed: int) -> tuple[Interval | None, str | None]:
    """Wilson; with several samples a problem, which Wilson would take for independent, a bootstrap of problems."""
    if len(right) == len(set(groups)):
        return wilson(int(right.sum()), len(right)), "wilson" if len(right) else None
    return bootstrap({"accuracy": Ratio(right, np.ones_like(right))}, groups, seed)["accuracy"], "bootstrap"


def _preset_ratios(rule: Preset, columns: Columns, groups: np.ndarray, seed: int) -> dict[str, Any]:
    fractions = ratios(rule, columns)
    intervals = bootstrap(fractions, groups, seed)
    return {name: ratio.value for name, ratio in fractions.items()} | {
        f"{name}_ci95": interval for name, interval in intervals.items()
    }


def _fixed_ratios(columns: Columns) -> dict[str, float | None]:
    """Ratios that mean the same under every preset, because their names say what is divided by what."""

    def ratio(numerator: str, denominator: str) -> float | None:
        return Ratio(columns[numerator], columns[denominator]).value

    return {
        "tpf_eos": ratio("eos_tokens", "forwards"),
        "tpf_window": ratio("window_tokens", "forwards"),
        "tpf_row": ratio("content_tokens", "rows"),
        "tokens_per_processed": ratio("content_tokens", "tokens_processed"),
        "tps_eos": ratio("eos_tokens", "total_s"),
        "tps_window": ratio("window_tokens", "total_s"),
        "tps_decode": ratio("content_tokens", "decode_s"),
    }


def _sample_statistics(rule: Preset, columns: Columns) -> dict[str, float | None]:
    """Statistics over per-sample ratios, as some publications print them; tokens and time are the preset's."""
    tokens = rule.tokens(columns)
    speeds = divide(tokens, rule.seconds(columns))
    speeds = np.sort(speeds[np.isfinite(speeds)])[::-1]
    return {
        "tpf_sample_mean": _mean(divide(tokens, rule.steps(columns))),
        "tps_sample_mean": _mean(speeds),
        "tps_sample_max": _mean(speeds[:1]),
        "tps_top10_mean": _mean(speeds[:10]),
    }


def _totals(columns: Columns) -> dict[str, float | int | None]:
    counts: dict[str, float | int | None] = {}
    for name in COUNTS:
        total = _sum(columns[name])
        counts[name] = None if total is None else int(total)
    memory = columns["peak_memory_bytes"]
    return counts | {
        **{name: _sum(columns[name]) for name in SECONDS},
        "energy_j": _sum(columns["energy_j"]),
        "peak_memory_bytes": int(np.nanmax(memory)) if np.isfinite(memory).any() else None,
    }


def _sum(values: np.ndarray) -> float | None:
    return float(np.nansum(values)) if np.isfinite(values).any() else None


def _mean(values: np.ndarray) -> float | None:
    known = values[np.isfinite(values)]
    return float(known.mean()) if known.size else None


@dataclass
class Running:
    """Accuracy, TPF and TPS (counting preset `effective`) while a run goes on, one sample row at a time."""

    n: int = 0
    errors: int = 0
    judged: int = 0
    correct: int = 0
    tokens: int = 0
    forwards: int = 0
    timed_tokens: int = 0
    seconds: float = 0.0

    def add(self, row: Mapping[str, Any]) -> None:
        self.n += 1
        if row["finish_reason"] in ERROR_REASONS:
            self.errors += 1
            return
        verdict, tokens = row.get("correct"), row.get("content_tokens") or 0
        self.judged += verdict is not None
        self.correct += verdict is True
        self.tokens += tokens
        self.forwards += row.get("forwards") or 0
        if row.get("total_s") is not None:
            self.timed_tokens += tokens
            self.seconds += row["total_s"]

    @property
    def accuracy(self) -> float | None:
        return quotient(self.correct, self.judged)

    @property
    def tpf(self) -> float | None:
        return quotient(self.tokens, self.forwards)

    @property
    def tps(self) -> float | None:
        return quotient(self.timed_tokens, self.seconds)


def compare(a: pa.Table, b: pa.Table, preset: str = "effective", seed: int = 0) -> dict[str, Any]:
    """Two runs on the same problems, pair by pair: `difference` is b - a, `ratio` is b / a.

    Pairs are samples with the same problem and sample index that neither run failed on; accuracy is compared over
    those that both runs judged. McNemar's test takes pairs for independent: one sample a problem.
    """
    rule = get_preset(preset)
    a, b = decoded_samples(a, rule), decoded_samples(b, rule)
    first, second, unpaired = _pairs(a, b)
    a, b = a.take(first), b.take(second)
    if a["gold"].to_pylist() != b["gold"].to_pylist():
        raise ValueError("the runs have different gold answers under the same problem ids: not the same problems")
    result = {"preset": preset, "pairs": a.num_rows, "unpaired": unpaired} | _paired_accuracy(a, b)
    fractions_a, fractions_b = ratios(rule, numeric(a)), ratios(rule, numeric(b))
    for name in fractions_a:
        result |= _paired_ratio(name, fractions_a[name], fractions_b[name], problems(a), seed)
    return result


def _pairs(a: pa.Table, b: pa.Table) -> tuple[pa.Array, pa.Array, int]:
    """Rows of a, the rows of b that belong to them, and the number of rows on either side without a partner."""
    keys_a, keys_b = (
        list(zip(t["problem_id"].to_pylist(), t["sample_index"].to_pylist(), strict=True)) for t in (a, b)
    )
    row_of = {key: row for row, key in enumerate(keys_b)}
    first = [row for row, key in enumerate(keys_a) if key in row_of]
    second = [row_of[keys_a[row]] for row in first]
    indices = [pa_array(np.array(rows, dtype=np.int64)) for rows in (first, second)]
    return *indices, len(keys_a) + len(keys_b) - 2 * len(first)


def _paired_accuracy(a: pa.Table, b: pa.Table) -> dict[str, Any]:
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
        "only_a_correct": only_a,
        "only_b_correct": only_b,
        "mcnemar_p": mcnemar(only_a, only_b) if verdicts else None,
    }


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
