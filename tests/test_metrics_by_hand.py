"""Every aggregate of a few rows, computed by hand from its definition in docs/metrics.md."""

from __future__ import annotations

from typing import Any

import pytest

from lopa_bench.metrics.aggregate import aggregate
from lopa_bench.metrics.latency import latencies, load, percentiles
from lopa_bench.metrics.paired import compare
from lopa_bench.metrics.presets import numeric
from lopa_bench.metrics.statistics import Estimate
from lopa_bench.records.schema import to_table
from tests.test_records import sample

# Two decoded samples, one that was decoded and not judged, and one that failed: its numbers count nowhere.
ROWS: list[dict[str, Any]] = [
    sample(0, prompt_tokens=7, window_tokens=64, eos_tokens=41, content_tokens=40, rounds=9, forwards=10, rows=30,
           tokens_processed=700, edits=18, prefill_s=0.5, decode_s=1.5, total_s=2.0, finish_reason="eos", correct=True,
           peak_memory_bytes=300, energy_j=5.0, wall_s=2.5, machine="a"),
    sample(1, prompt_tokens=8, window_tokens=32, eos_tokens=32, content_tokens=20, rounds=5, forwards=5, rows=5,
           tokens_processed=200, edits=0, prefill_s=0.25, decode_s=3.75, total_s=4.0, finish_reason="stop",
           correct=False, peak_memory_bytes=100, energy_j=2.0, wall_s=4.5, machine="b"),
    sample(2, prompt_tokens=9, window_tokens=16, eos_tokens=13, content_tokens=12, rounds=4, forwards=4, rows=8,
           tokens_processed=100, edits=0, prefill_s=0.25, decode_s=0.75, total_s=1.0, finish_reason="length",
           correct=None, score_status="timeout", wall_s=1.5, machine="a"),
    sample(3, prompt_tokens=99, window_tokens=99, eos_tokens=99, content_tokens=99, rounds=99, forwards=99, rows=99,
           tokens_processed=99, edits=99, prefill_s=99.0, decode_s=99.0, total_s=99.0, finish_reason="error",
           correct=None, peak_memory_bytes=9999, energy_j=99.0),
]  # fmt: skip
TOTALS = {
    "n": 4, "problems": 4, "errors": 1, "judged": 2, "unjudged": 1, "complete": False, "correct": 1,
    "finish_reasons": {"eos": 1, "stop": 1, "length": 1, "error": 1}, "machines": {"a": 2, "b": 1},
    "workers": {"1": 4},
    "accuracy": 1 / 2, "accuracy_attempted": 1 / 4, "accuracy_ci95_method": "wilson", "pass_at": {"1": 1 / 2},
    "prompt_tokens": 24, "window_tokens": 112, "eos_tokens": 86, "content_tokens": 72, "rounds": 18, "forwards": 19,
    "rows": 43, "tokens_processed": 1000, "edits": 18, "edits_per_token": 18 / 72,
    "prefill_s": 1.0, "decode_s": 6.0, "total_s": 7.0, "energy_j": 7.0,
    "peak_memory_bytes": 300,
    "tpf_eos": 86 / 19, "tpf_window": 112 / 19, "tpf_row": 72 / 43, "tokens_per_processed": 72 / 1000,
    "tps_eos": 86 / 7, "tps_window": 112 / 7, "tps_decode": 72 / 6,
    "latency_s": 7 / 3, "latency_percentiles_s": {"p50": 2.0, "p95": 3.8, "p99": 3.96},
    "ttft_percentiles_s": None, "itl_percentiles_s": None, "latency_server_s": None, "tps_server": None,
    "cached_prompts": None, "batched": False, "approximate": False, "wall_s": 8.5, "tps_clock": "sample",
}  # fmt: skip
# tokens before the end, by sample: 40, 31 (an end token may be the last position; here a stop string ended it: 32), 12
BY_PRESET: dict[str, dict[str, float]] = {
    "effective": {
        "tpf": 72 / 19, "tps": 72 / 7, "tpf_sample_mean": (4 + 4 + 3) / 3, "tps_sample_mean": (20 + 5 + 12) / 3,
        "tps_sample_max": 20, "tps_top10_mean": 37 / 3,
    },
    "lopa_dream": {
        "tpf": 112 / 21, "tps": 112 / 7, "tpf_sample_mean": (6.4 + 32 / 6 + 3.2) / 3,
        "tps_sample_mean": (32 + 8 + 16) / 3, "tps_sample_max": 32, "tps_top10_mean": 56 / 3,
    },
    "lopa_diffucoder": {
        "tpf": 84 / 18, "tps": 84 / 7, "tpf_sample_mean": (40 / 9 + 32 / 5 + 3) / 3,
        "tps_sample_mean": (20 + 8 + 12) / 3, "tps_sample_max": 20, "tps_top10_mean": 40 / 3,
    },
    "lopa_dist": {
        "tpf": 112 / 18, "tps": (64 / 1.5 + 32 / 3.75 + 16 / 0.75) / 3, "tpf_sample_mean": (64 / 9 + 6.4 + 4) / 3,
        "tps_sample_mean": (64 / 1.5 + 32 / 3.75 + 16 / 0.75) / 3, "tps_sample_max": 64 / 1.5,
        "tps_top10_mean": (64 / 1.5 + 32 / 3.75 + 16 / 0.75) / 3,
    },
    "fast_dllm": {
        "tpf": 72 / 19, "tps": 72 / 7, "tpf_sample_mean": 11 / 3, "tps_sample_mean": 37 / 3, "tps_sample_max": 20,
        "tps_top10_mean": 37 / 3,
    },
    "d3llm": {
        "tpf": 72 / 19, "tps": 72 / 7, "tpf_uncut": 84 / 19, "tps_uncut": 84 / 7, "tpf_sample_mean": 11 / 3,
        "tps_sample_mean": 37 / 3, "tps_sample_max": 20, "tps_top10_mean": 37 / 3,
    },
}  # fmt: skip


def table(rows: list[dict[str, Any]]) -> Any:
    return to_table("samples", rows)


@pytest.mark.parametrize("preset", BY_PRESET)
def test_every_aggregate_is_the_hand_computed_number(preset: str) -> None:
    result = aggregate(table(ROWS), preset)
    plain = {name: value for name, value in result.items() if not name.endswith("_ci95")}
    assert plain.pop("preset") == preset
    del plain["formula"], plain["note"]
    assert plain == {name: pytest.approx(value) if isinstance(value, float) else value
                     for name, value in (TOTALS | BY_PRESET[preset]).items()} | {
        "latency_percentiles_s": pytest.approx(TOTALS["latency_percentiles_s"])
    }  # fmt: skip


def test_intervals_stand_around_their_own_number_and_no_other() -> None:
    """Eight problems: every ratio differs from every other, so an interval of another one would miss it."""
    rows = [sample(i, content_tokens=40 + i, forwards=10, total_s=2.0, correct=i < 6) for i in range(8)]
    result = aggregate(table(rows))
    for name in ("tpf", "tps", "latency_s", "accuracy"):
        low, high = result[f"{name}_ci95"]
        assert low <= result[name] <= high
    assert result["tpf_ci95"] == pytest.approx((4.19, 4.51), abs=0.03)  # 4.35, give or take 1.96 standard errors
    assert result["tps_ci95"] == pytest.approx((20.96, 22.54), abs=0.15)
    assert result["latency_s_ci95"] == (2.0, 2.0)
    assert result["accuracy_ci95"] == pytest.approx((0.4093, 0.9285), abs=1e-4)  # Wilson, 6 of 8


def test_the_ten_fastest_are_the_fastest() -> None:
    """Twelve samples of 10 tokens in 1 to 12 seconds."""
    rows = [sample(i, content_tokens=10, total_s=float(i + 1)) for i in range(12)]
    result = aggregate(table(rows))
    assert result["tps_top10_mean"] == pytest.approx(sum(10 / s for s in range(1, 11)) / 10)
    assert result["tps_sample_max"] == 10.0


def test_a_reply_under_load_is_answered_within_all_limits_or_is_not_good() -> None:
    times = [(1.0, 0.1), (2.0, 0.3), (3.0, 0.1), (1.0, None)]
    rows = [sample(i, total_s=total, ttft_s=first) for i, (total, first) in enumerate(times)]
    rows.append(sample(4, total_s=0.1, ttft_s=0.1, finish_reason="timeout", correct=None))
    assert load(table(rows), wall_s=2.0) == {"requests_s": 2.0}
    assert load(table(rows), 2.0, slo_s=2.0) == {"requests_s": 2.0, "good": 3, "goodput_s": 1.5}
    assert load(table(rows), 2.0, slo_s=2.0, slo_ttft_s=0.3) == {"requests_s": 2.0, "good": 2, "goodput_s": 1.0}
    assert load(table(rows), None) == {"requests_s": None}


def test_what_a_server_tells_has_names_of_its_own() -> None:
    rows = [
        sample(0, content_tokens=10, server_s=1.0, ttft_s=0.5, itl_s=[0.1, 0.2], cached_tokens=4),
        sample(1, content_tokens=30, server_s=3.0, ttft_s=1.5, itl_s=[0.3], cached_tokens=0),
    ]
    samples = table(rows)
    found = latencies(samples, numeric(samples))
    assert (found["tps_server"], found["latency_server_s"], found["cached_prompts"]) == (10.0, 2.0, 1)
    assert found["ttft_percentiles_s"] == pytest.approx({"p50": 1.0, "p95": 1.45, "p99": 1.49})
    assert found["itl_percentiles_s"] == pytest.approx({"p50": 0.2, "p95": 0.29, "p99": 0.298})
    assert percentiles(numeric(table([sample(0)]))["server_s"]) is None


def test_requests_under_way_together_have_a_latency_and_no_speed_each() -> None:
    rows = [sample(i, content_tokens=30, total_s=3.0, concurrency=2, wall_s=1.0, server_s=2.0) for i in range(2)]
    result = aggregate(table(rows))
    assert (result["latency_s"], result["tps"], result["tps_clock"]) == (3.0, 30.0, "wall")
    assert (result["tps_server"], result["total_s"], result["tps_ci95"]) == (None, None, None)
    assert aggregate(table(rows), "lopa_dist")["tps"] is None, "a mean of speeds that nobody has"


def test_pairs_are_the_same_sample_of_the_same_problem() -> None:
    """Two samples of each problem, in another order in b: 4 pairs; b is right where a is wrong in one of them."""
    a = [sample(p, sample_index=s, content_tokens=10, correct=s == 0) for p in (0, 1) for s in (0, 1)]
    b = [sample(p, sample_index=s, content_tokens=20, correct=(p, s) != (1, 1)) for s in (1, 0) for p in (1, 0)]
    result = compare(table(a), table(b))
    assert (result.pairs, result.unpaired, result.judged_pairs) == (4, 0, 4)
    assert (result.only_a_correct, result.only_b_correct) == (0, 1)
    assert (result.accuracy.a, result.accuracy.b, result.accuracy.difference.value) == (0.5, 0.75, 0.25)


def test_single_samples_pair_by_problem_too() -> None:
    a = [sample(0, correct=True), sample(1, correct=False)]
    b = [sample(1, correct=True), sample(0, correct=True), sample(2)]
    result = compare(table(a), table(b))
    assert (result.pairs, result.unpaired) == (2, 1)
    assert (result.accuracy.difference.value, result.only_a_correct, result.only_b_correct) == (0.5, 0, 1)


def test_differences_are_b_minus_a_and_ratios_b_over_a() -> None:
    a = [sample(i, content_tokens=10, forwards=5, total_s=1.0) for i in range(3)]
    b = [sample(i, content_tokens=30, forwards=5, total_s=2.0) for i in range(3)]
    result = compare(table(a), table(b))
    tpf, tps = result.quantities["tpf"], result.quantities["tps"]
    assert (tpf.a, tpf.b, tpf.difference, tpf.ratio.value) == (2, 6, Estimate(4.0, (4.0, 4.0)), 3)
    assert (tps.a, tps.b, tps.difference.value, tps.ratio) == (10, 15, 5, Estimate(1.5, (1.5, 1.5)))


def test_a_pair_in_which_one_side_has_no_time_is_no_pair_of_speeds() -> None:
    a = [sample(0, content_tokens=10, total_s=None), sample(1, content_tokens=10, total_s=1.0)]
    b = [sample(0, content_tokens=90, total_s=1.0), sample(1, content_tokens=20, total_s=1.0)]
    tps = compare(table(a), table(b)).quantities["tps"]
    assert (tps.a, tps.b, tps.ratio.value) == (10.0, 20.0, 2.0)
