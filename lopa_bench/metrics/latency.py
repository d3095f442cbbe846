"""How long a request takes, and what a server does under load, as serving people report it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from lopa_bench.metrics.presets import Columns, errored, pa_array
from lopa_bench.metrics.statistics import Ratio, quotient

if TYPE_CHECKING:
    import pyarrow as pa

PERCENTILES = (50, 95, 99)


def mean_latency(columns: Columns) -> Ratio:
    """Seconds per sample."""
    return Ratio(columns["latency_s"], np.ones_like(columns["latency_s"]))


def latencies(samples: pa.Table, columns: Columns) -> dict[str, Any]:
    """Percentiles of the seconds per sample; of a server also its own clock, the time to the first token and between
    tokens, and how many prompts it had in a cache.
    """
    cached = columns["cached_tokens"]
    return {
        "latency_percentiles_s": percentiles(columns["latency_s"]),
        "ttft_percentiles_s": percentiles(columns["ttft_s"]),
        "itl_percentiles_s": percentiles(_gaps(samples)),
        "latency_server_s": Ratio(columns["server_s"], np.ones_like(columns["server_s"])).value,
        "tps_server": Ratio(columns["content_tokens"], columns["server_s"]).value,
        "cached_prompts": int((cached > 0).sum()) if np.isfinite(cached).any() else None,
    }


def load(
    samples: pa.Table, wall_s: float | None, slo_s: float | None = None, slo_ttft_s: float | None = None
) -> dict[str, Any]:
    """Requests a second, and those of them that were answered within every limit that is set (goodput).

    `wall_s`: seconds that all samples took together. A failed request is no good one.
    """
    answered = samples.filter(pa_array(~errored(samples)))
    numbers: dict[str, Any] = {"requests_s": quotient(answered.num_rows, wall_s or 0.0)}
    if slo_s is None and slo_ttft_s is None:
        return numbers
    good = _within(answered, "total_s", slo_s) & _within(answered, "ttft_s", slo_ttft_s)
    return numbers | {"good": int(good.sum()), "goodput_s": quotient(float(good.sum()), wall_s or 0.0)}


def percentiles(values: np.ndarray) -> dict[str, float] | None:
    known = values[np.isfinite(values)]
    return {f"p{at}": float(np.percentile(known, at)) for at in PERCENTILES} if known.size else None


def _within(samples: pa.Table, column: str, limit: float | None) -> np.ndarray:
    """A time that is not known is not within a limit."""
    if limit is None:
        return np.ones(samples.num_rows, dtype=bool)
    return np.array([value is not None and value <= limit for value in samples[column].to_pylist()], dtype=bool)


def _gaps(samples: pa.Table) -> np.ndarray:
    """The times between single tokens of all samples together, in seconds."""
    return np.array([gap for gaps in samples["itl_s"].to_pylist() for gap in gaps or ()], dtype=float)
