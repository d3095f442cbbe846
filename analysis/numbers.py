"""The numbers of one run under every counting preset, each with its interval, from one reading of the rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from analysis.runs import Run
from lopa_bench.metrics.aggregate import aggregate
from lopa_bench.metrics.presets import PRESETS, PresetError, decoded_samples, numeric, problems, ratios
from lopa_bench.metrics.statistics import Interval, Ratio, bootstrap, wilson

if TYPE_CHECKING:
    import pyarrow as pa

EFFECTIVE = PRESETS["effective"]
SERVED = "ar_server"  # the preset of runs against a server, which has its own counts and no others


@dataclass(frozen=True)
class Value:
    """A number and its 95 % interval; either may be missing."""

    value: float | None
    interval: Interval | None = None

    def scaled(self, factor: float) -> Value:
        if self.value is None:
            return self
        interval = None if self.interval is None else (self.interval[0] * factor, self.interval[1] * factor)
        return Value(self.value * factor, interval)


NOTHING = Value(None)


@dataclass(frozen=True)
class Numbers:
    """`values` by quantity; those that depend on a counting rule as "<preset>.<quantity>"."""

    n: int
    errors: int
    judged: int
    values: Mapping[str, Value]

    @property
    def decoded(self) -> int:
        """Those of the `n` samples that did not fail: what every number is of."""
        return self.n - self.errors

    def get(self, quantity: str, preset: str | None = None) -> Value:
        return self.values.get(f"{preset}.{quantity}" if preset else quantity, NOTHING)


def preset_for(run: Run, preset: str) -> str:
    """`preset`, or that of a server where a server decoded."""
    return SERVED if run.is_server else preset


def measure(run: Run, samples: pa.Table | None = None) -> Numbers:
    """Every number that a table or figure shows of a run; of these of its samples only, if they are given.

    The ratios of all presets share one bootstrap. It has the seed and the draws of `lopa_bench.metrics.aggregate`, so
    values and intervals equal those of the console.
    """
    seed, is_whole = int(run.row["seed"]), samples is None
    samples = run.samples if samples is None else samples
    decoded = decoded_samples(samples, EFFECTIVE)
    columns, groups = numeric(decoded), problems(decoded)
    fractions: dict[str, Ratio] = dict(_fixed(columns))
    values: dict[str, Value] = {}
    presets = []
    for name, rule in PRESETS.items():
        try:
            decoded_samples(samples, rule)
        except PresetError:
            continue  # the rule needs rows that a server counted
        presets.append(name)
        fractions |= {f"{name}.{quantity}": ratio for quantity, ratio in ratios(rule, columns).items()}
        speeds = _speeds(Ratio(rule.tokens(columns), rule.seconds(columns)))
        values |= {f"{name}.{quantity}": value for quantity, value in speeds.items()}
    intervals = bootstrap(fractions, groups, seed) if len(groups) else dict.fromkeys(fractions)
    values |= {name: Value(ratio.value, intervals[name]) for name, ratio in fractions.items()}
    verdicts = [verdict for verdict in decoded["correct"].to_pylist() if verdict is not None]
    if _is_special(columns, groups):
        values |= _from_aggregates(run, samples, presets, run.wall_s if is_whole else None)
    else:
        values["accuracy"] = _accuracy(verdicts)
    return Numbers(samples.num_rows, samples.num_rows - decoded.num_rows, len(verdicts), values)


def _is_special(columns: Mapping[str, np.ndarray], groups: np.ndarray) -> bool:
    """Whether samples were decoded together, or problems sampled more than once."""
    together = (columns["batch"] > 1) | (columns["concurrency"] > 1)
    return bool(together.any()) or len(set(groups)) < len(groups)


def _from_aggregates(run: Run, samples: pa.Table, presets: Sequence[str], wall_s: float | None) -> dict[str, Value]:
    """The rarer rules: a bootstrap of accuracy over problems, and TPS by the wall clock of the run."""
    totals = {name: aggregate(samples, name, int(run.row["seed"]), wall_s) for name in presets}
    accuracy = Value(totals["effective"]["accuracy"], totals["effective"]["accuracy_ci95"])
    speeds = {f"{name}.tps": Value(one["tps"]) for name, one in totals.items() if one["tps_clock"] == "wall"}
    return {"accuracy": accuracy} | speeds


def _accuracy(verdicts: Sequence[bool]) -> Value:
    right = sum(verdicts)
    return Value(right / len(verdicts) if verdicts else None, wilson(right, len(verdicts)))


def _fixed(columns: Mapping[str, np.ndarray]) -> dict[str, Ratio]:
    """Ratios that mean the same under every preset."""
    ones = np.ones_like(columns["latency_s"])
    return {
        "tpf_row": Ratio(columns["content_tokens"], columns["rows"]),
        "processed_per_token": Ratio(columns["tokens_processed"], columns["content_tokens"]),
        "latency_s": Ratio(columns["latency_s"], ones),
        "step_s": Ratio(columns["total_s"], columns["forwards"]),
    }


def _speeds(speed: Ratio) -> dict[str, Value]:
    """Mean, largest and mean of the ten largest per-sample speeds; an extreme has no bootstrap interval."""
    known = speed.denominator > 0
    values = np.sort(speed.numerator[known] / speed.denominator[known])[::-1]
    if not values.size:
        return {}
    return {"tps_sample_max": Value(float(values[0])), "tps_top10_mean": Value(float(values[:10].mean()))}
