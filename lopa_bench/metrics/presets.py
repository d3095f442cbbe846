"""Counting rules of the publications, over the same rows.

A publication's speed is a number of tokens divided by a number of steps or by a time, and each counts them in its own
way. A preset is that way and nothing else: three small functions over the columns of the sample table, so that any
rule can be applied to a run that is already on disk. docs/metrics.md holds the table with the reasons.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from lopa_bench.metrics.statistics import Ratio, divide
from lopa_bench.records.schema import ERROR_REASONS

if TYPE_CHECKING:
    import pyarrow as pa

COUNTS = (
    "prompt_tokens",
    "window_tokens",
    "eos_tokens",
    "content_tokens",
    "rounds",
    "forwards",
    "rows",
    "tokens_processed",
    "edits",
)
SECONDS = ("prefill_s", "decode_s", "total_s")
SERVED = ("server_s", "ttft_s", "cached_tokens", "sent_s")  # of a server's samples; null for all others

Columns = Mapping[str, np.ndarray]  # one array a column, one value a sample; a null is NaN
Rule = Callable[[Columns], np.ndarray]


class PresetError(ValueError):
    """A preset that does not exist, or that these rows cannot answer; the message says which can."""


def column(name: str) -> Rule:
    return lambda columns: columns[name]


CONTENT, FORWARDS, TOTAL = map(column, ("content_tokens", "forwards", "total_s"))


@dataclass(frozen=True)
class Preset:
    """`tokens / steps` is the preset's TPF, `tokens / seconds` its TPS; `formula` says so in a table's heading.

    By default tokens of the answer, for every model call, over the whole time.
    """

    description: str
    tokens: Rule = CONTENT
    steps: Rule = FORWARDS
    seconds: Rule = TOTAL
    formula: str = "content / forwards, content / total time"
    mean_of_samples: bool = False  # TPS is the mean of per-sample TPS; else the ratio of sums
    note: str | None = None  # what stands between this number and the published one
    token_source: str | None = None  # rows must have been counted in this way
    also: Mapping[str, Rule] = field(default_factory=dict)  # further numerators: tpf_<name>, tps_<name>

    def numerators(self, ratio: str) -> dict[str, Rule]:
        return {ratio: self.tokens} | {f"{ratio}_{name}": rule for name, rule in self.also.items()}


def uncut_tokens(columns: Columns) -> np.ndarray:
    """Tokens before the first end token, whatever stop string stands among them.

    The rows hold `eos_tokens`, the end token included. There is one if the sample ended with it, or if the window
    goes on behind it. Neither is known to hold when a stop string came first and the end token, if any, was the
    last position of the window: then this is one too high at most.
    """
    has_end = (columns["ended_with_eos"] > 0) | (columns["eos_tokens"] < columns["window_tokens"])
    return columns["eos_tokens"] - has_end


_DECODE_TAIL = "compare with the article only if the run kept decoding behind the end token (decode_tail=true)"

PRESETS: dict[str, Preset] = {
    "effective": Preset(
        description="tokens of the answer, for every model call, over the whole time (this project's own rule)",
    ),
    "lopa_dream": Preset(
        description="LoPA tables 1 and figures 4, 5: the whole window, text behind its end included",
        tokens=column("window_tokens"),
        steps=lambda c: c["rounds"] + 1,  # the released loop counts a last round that calls no model
        formula="window / (rounds + 1), window / total time",
        note=_DECODE_TAIL,
    ),
    "lopa_diffucoder": Preset(
        description="LoPA table 2: the window without pad and end tokens",
        tokens=uncut_tokens,
        steps=column("rounds"),
        formula="tokens before the end / rounds, tokens before the end / total time",
        note="text behind the first end token is not counted (the article counts it; it is rare). " + _DECODE_TAIL,
    ),
    "lopa_dist": Preset(
        description="LoPA tables 3, 4 and figure 1: the whole window, prefill left out, mean of per-sample TPS",
        tokens=column("window_tokens"),
        steps=column("rounds"),
        seconds=column("decode_s"),
        formula="window / rounds, mean of window / decode time",
        mean_of_samples=True,
        note=_DECODE_TAIL,
    ),
    "fast_dllm": Preset(
        description="Fast-dLLM: text cut at the stop string, every call counted, cache fills too",
        note="ids are counted; the published code encodes the cut text again, which can differ by a few tokens",
    ),
    "d3llm": Preset(
        description="d3LLM: text before and behind the stop string, both reported (tpf and tpf_uncut)",
        also={"uncut": uncut_tokens},
    ),
    "ar_server": Preset(
        description="autoregressive server: its completion tokens, one step each, over the client's wall time",
        tokens=column("window_tokens"),
        steps=column("window_tokens"),
        formula="completion tokens / themselves, completion tokens / wall time",
        note="by the client's clock; tps_server is by the server's own",
        token_source="usage",
    ),
}


def get_preset(name: str) -> Preset:
    if name not in PRESETS:
        raise PresetError(f"no counting preset {name!r}; there are: {', '.join(PRESETS)}")
    return PRESETS[name]


def ratios(rule: Preset, columns: Columns) -> dict[str, Ratio]:
    """The preset's TPF and TPS as fractions whose parts can be added, resampled and paired."""
    steps, seconds = rule.steps(columns), rule.seconds(columns)
    result = {name: Ratio(tokens(columns), steps) for name, tokens in rule.numerators("tpf").items()}
    for name, tokens in rule.numerators("tps").items():
        if rule.mean_of_samples:
            result[name] = Ratio(divide(tokens(columns), seconds), np.ones_like(seconds))
        else:
            result[name] = Ratio(tokens(columns), seconds)
    return result


def decoded_samples(samples: pa.Table, rule: Preset) -> pa.Table:
    """The rows that ratios are made of. Raises PresetError."""
    rows = samples.filter(pa_array(~errored(samples)))
    if not answers(rule, rows):
        raise PresetError(
            f"this preset needs rows with token_source {rule.token_source!r} (counted by a server); "
            f"these have {', '.join(map(repr, sorted(set(rows['token_source'].to_pylist()))))}"
        )
    return rows


def answers(rule: Preset, decoded: pa.Table) -> bool:
    """Whether a rule can count these rows."""
    return not rule.token_source or set(decoded["token_source"].to_pylist()) <= {rule.token_source}


def errored(samples: pa.Table) -> np.ndarray:
    return np.array([reason in ERROR_REASONS for reason in samples["finish_reason"].to_pylist()], dtype=bool)


def problems(samples: pa.Table) -> np.ndarray:
    return np.array(samples["problem_id"].to_pylist(), dtype=object).astype(str)


def numeric(samples: pa.Table) -> dict[str, np.ndarray]:
    """The columns that presets may use, as floats with NaN for null."""
    names = (*COUNTS, *SECONDS, *SERVED, "peak_memory_bytes", "energy_j", "batch", "concurrency", "wall_s")
    columns = {
        name: np.array([np.nan if value is None else value for value in samples[name].to_pylist()], dtype=float)
        for name in names
    }
    unknown = np.full(samples.num_rows, np.nan)
    if (columns["batch"] > 1).any():  # a last, lonely sample has a time of its own, which would stand for all
        columns |= dict.fromkeys(SECONDS, unknown)
    columns["latency_s"] = columns["total_s"]
    if (columns["concurrency"] > 1).any():  # requests shared the server's time: each has a latency, none a speed
        columns |= dict.fromkeys((*SECONDS, "server_s"), unknown)
    columns["ended_with_eos"] = np.array(
        [reason == "eos" for reason in samples["finish_reason"].to_pylist()], dtype=float
    )
    return columns


def pa_array(values: np.ndarray) -> pa.Array:
    import pyarrow as pa

    return pa.array(values)
