"""From sample rows to a run's numbers: the one place that computes them, for the console, the run row and the report.

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

from lopa_bench.metrics import presets
from lopa_bench.metrics.latency import latencies, mean_latency
from lopa_bench.metrics.presets import Columns, Preset
from lopa_bench.metrics.statistics import Estimate, Ratio, bootstrap, divide, mean_pass_at, quotient, wilson
from lopa_bench.records.schema import ERROR_REASONS

if TYPE_CHECKING:
    import pyarrow as pa

PASS_AT = (1, 2, 5, 10, 20, 50, 100)
# Ratios that mean the same under every preset, because their names say what is divided by what.
FIXED = {
    "tpf_eos": ("eos_tokens", "forwards"),
    "tpf_window": ("window_tokens", "forwards"),
    "tpf_row": ("content_tokens", "rows"),
    "tokens_per_processed": ("content_tokens", "tokens_processed"),
    "edits_per_token": ("edits", "content_tokens"),
    "tps_eos": ("eos_tokens", "total_s"),
    "tps_window": ("window_tokens", "total_s"),
    "tps_decode": ("content_tokens", "decode_s"),
}
ONLY_MEASURED = {"processed_per_token": ("tokens_processed", "content_tokens"), "step_s": ("total_s", "forwards")}


@dataclass(frozen=True)
class Estimates:
    """The numbers of a run. `values` by quantity; those that depend on a counting preset as "<preset>.<quantity>"."""

    n: int
    errors: int
    judged: int
    values: Mapping[str, Estimate]

    @property
    def decoded(self) -> int:
        """Those of the `n` samples that did not fail: what every number is of."""
        return self.n - self.errors

    def get(self, quantity: str, preset: str | None = None) -> Estimate:
        return self.values.get(f"{preset}.{quantity}" if preset else quantity, Estimate())


def measure(samples: pa.Table, seed: int = 0, wall_s: float | None = None) -> Estimates:
    """A run's numbers under every preset that its rows can answer, from one reading and one bootstrap. `wall_s` as in
    `aggregate`.
    """
    decoded = presets.decoded_samples(samples, presets.PRESETS["effective"])
    columns, groups = presets.numeric(decoded), presets.problems(decoded)
    rules = {name: rule for name, rule in presets.PRESETS.items() if presets.answers(rule, decoded)}
    values = _estimates(rules, columns, groups, seed, _wall_s(columns, wall_s))
    verdicts = decoded["correct"].to_pylist()
    judged = np.array([verdict is not None for verdict in verdicts], dtype=bool)
    values["accuracy"], _ = _accuracy(np.array(verdicts)[judged].astype(float), groups[judged], seed)
    return Estimates(samples.num_rows, samples.num_rows - decoded.num_rows, int(judged.sum()), values)


def aggregate(
    samples: pa.Table, preset: str = "effective", seed: int = 0, wall_s: float | None = None
) -> dict[str, Any]:
    """All numbers of a run, or of all shards of one, under one preset: its counts and ratios, as the run row has them.

    `wall_s`: seconds in which batched samples, which have no time each, were decoded; None adds up the column.
    """
    rule = presets.get_preset(preset)
    decoded = presets.decoded_samples(samples, rule)
    columns, groups = presets.numeric(decoded), presets.problems(decoded)
    wall_s = _wall_s(columns, wall_s)
    values = {
        name.removeprefix(f"{preset}."): value
        for name, value in _estimates({preset: rule}, columns, groups, seed, wall_s).items()
        if name not in ONLY_MEASURED
    }
    with_interval = (*rule.numerators("tpf"), *rule.numerators("tps"), "latency_s")
    is_by_wall = _is_by_wall(rule, columns, wall_s)
    return {
        **_verdicts(samples, seed),
        **_totals(columns),
        "preset": preset,
        "formula": rule.formula,
        "note": rule.note,
        **{name: value.value for name, value in values.items()},
        **{f"{name}_ci95": values[name].interval for name in with_interval},
        **latencies(decoded, columns),
        "batched": _are_together(columns),
        "approximate": any(decoded["approximate"].to_pylist()),
        "wall_s": wall_s,
        "tps_clock": "wall" if is_by_wall else "sample" if values["tps"].value is not None else None,
    }


def _estimates(
    rules: Mapping[str, Preset], columns: Columns, groups: np.ndarray, seed: int, wall_s: float | None
) -> dict[str, Estimate]:
    """FIXED, ONLY_MEASURED, latency, and the quantities of each rule; intervals are of the same draws of problems."""
    fractions = {name: Ratio(columns[a], columns[b]) for name, (a, b) in (FIXED | ONLY_MEASURED).items()}
    fractions["latency_s"] = mean_latency(columns)
    for name, rule in rules.items():
        fractions |= {f"{name}.{quantity}": ratio for quantity, ratio in presets.ratios(rule, columns).items()}
    intervals = bootstrap(fractions, groups, seed)
    values = {name: Estimate(ratio.value, intervals[name]) for name, ratio in fractions.items()}
    for name, rule in rules.items():
        alone = _sample_statistics(rule, columns)
        if _is_by_wall(rule, columns, wall_s):
            alone |= {
                quantity: quotient(_sum(count(columns)), wall_s) for quantity, count in rule.numerators("tps").items()
            }
        values |= {f"{name}.{quantity}": Estimate(value) for quantity, value in alone.items()}
    return values


def _are_together(columns: Columns) -> bool:
    """Whether samples were decoded together, so that none has a time of its own."""
    return bool((columns["batch"] > 1).any() or (columns["concurrency"] > 1).any())


def _is_by_wall(rule: Preset, columns: Columns, wall_s: float | None) -> bool:
    return _are_together(columns) and bool(wall_s) and not rule.mean_of_samples


def _wall_s(columns: Columns, given: float | None) -> float | None:
    return _sum(columns["wall_s"]) if given is None else given


def _verdicts(samples: pa.Table, seed: int) -> dict[str, Any]:
    """Accuracy over the samples that were judged, and over all that were attempted."""
    failed = presets.errored(samples)
    correct = [None if bad else verdict for bad, verdict in zip(failed, samples["correct"].to_pylist(), strict=True)]
    judged = np.array([verdict is not None for verdict in correct], dtype=bool)
    right = np.array([verdict is True for verdict in correct], dtype=float)
    n, errors = len(correct), int(failed.sum())
    accuracy, method = _accuracy(right[judged], presets.problems(samples)[judged], seed)
    return {
        "n": n,
        "problems": len(set(samples["problem_id"].to_pylist())),
        "errors": errors,
        "judged": int(judged.sum()),
        "unjudged": int(n - errors - judged.sum()),
        "complete": n > 0 and bool(judged.all()),
        "finish_reasons": dict(Counter(samples["finish_reason"].to_pylist()).most_common()),
        "machines": dict(Counter(name for name in samples["machine"].to_pylist() if name).most_common()),
        "workers": {
            str(count): number
            for count, number in Counter(count or 1 for count in samples["workers"].to_pylist()).most_common()
        },
        "correct": int(right.sum()),
        "accuracy": accuracy.value,
        "accuracy_ci95": accuracy.interval,
        "accuracy_ci95_method": method,
        "accuracy_attempted": quotient(right.sum(), n),
        "pass_at": _pass_at(right[judged], presets.problems(samples)[judged]),
    }


def _accuracy(right: np.ndarray, groups: np.ndarray, seed: int) -> tuple[Estimate, str | None]:
    """Of judged samples, with Wilson's interval; with several samples a problem, which Wilson would take for
    independent, a bootstrap of problems.
    """
    value = quotient(right.sum(), len(right))
    if len(right) == len(set(groups)):
        return Estimate(value, wilson(int(right.sum()), len(right))), "wilson" if len(right) else None
    interval = bootstrap({"accuracy": Ratio(right, np.ones_like(right))}, groups, seed)["accuracy"]
    return Estimate(value, interval), "bootstrap"


def _pass_at(right: np.ndarray, groups: np.ndarray) -> dict[str, float | None]:
    """pass@k over problems, for all samples and the k of PASS_AT below; k = 1 alone without repeats."""
    tallies: dict[str, tuple[int, int]] = {}
    for group, verdict in zip(groups, right, strict=True):
        n, correct = tallies.get(group, (0, 0))
        tallies[group] = n + 1, correct + int(verdict)
    most = max((n for n, _ in tallies.values()), default=0)
    ks = sorted({k for k in PASS_AT if k <= most} | {most} - {0})
    return {str(k): mean_pass_at(k, list(tallies.values())) for k in ks}


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
    for name in presets.COUNTS:
        total = _sum(columns[name])
        counts[name] = None if total is None else int(total)
    memory = columns["peak_memory_bytes"]
    return counts | {
        **{name: _sum(columns[name]) for name in presets.SECONDS},
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
