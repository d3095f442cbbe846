"""Counts and ratios, with the worked examples that fix their meaning."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lopa_bench.metrics.aggregate import Running, aggregate
from lopa_bench.metrics.paired import compare
from lopa_bench.metrics.presets import PRESETS, PresetError
from lopa_bench.metrics.statistics import Ratio, bootstrap, mcnemar, mean_pass_at, wilson
from lopa_bench.records.schema import COLUMNS, to_table
from tests.test_records import sample


def table(*rows: dict[str, Any]) -> Any:
    """Rows with distinct problems, unless they name theirs."""
    return to_table("samples", [sample(index) | row for index, row in enumerate(rows)])


def test_content_end_and_window_are_counted_apart() -> None:
    """Prompt 500 ids, window 32, end id at index 11, 8 forwards, 2.0 s."""
    result = aggregate(
        table(
            {"prompt_tokens": 500, "window_tokens": 32, "eos_tokens": 12, "content_tokens": 11}
            | {"forwards": 8, "total_s": 2.0}
        )
    )
    assert (result["content_tokens"], result["eos_tokens"], result["window_tokens"]) == (11, 12, 32)
    assert result["tpf"] == 1.375
    assert result["tps"] == 5.5
    assert (result["tpf_eos"], result["tpf_window"]) == (1.5, 4.0)


def test_ratios_are_pooled_and_means_of_ratios_say_so() -> None:
    """100 tokens / 25 forwards / 2 s and 10 / 10 / 1 s."""
    result = aggregate(
        table(
            {"content_tokens": 100, "forwards": 25, "total_s": 2.0},
            {"content_tokens": 10, "forwards": 10, "total_s": 1.0},
        )
    )
    assert result["tps"] == pytest.approx(36.67, abs=0.005)
    assert result["tpf"] == pytest.approx(3.143, abs=0.0005)
    assert (result["tps_sample_mean"], result["tpf_sample_mean"]) == (30.0, 2.5)
    assert result["latency_s"] == 1.5


def test_a_call_is_one_forward_and_its_branches_are_rows() -> None:
    """20 tokens over five calls that carry 1+3+3+3+3 rows."""
    result = aggregate(table({"content_tokens": 20, "forwards": 5, "rows": 13, "tokens_processed": 400}))
    assert result["tpf"] == 4.0
    assert result["tpf_row"] == pytest.approx(1.538, abs=0.0005)
    assert result["tokens_per_processed"] == 0.05
    assert (result["forwards"], result["rows"]) == (5, 13)


@pytest.mark.parametrize("row", [{"content_tokens": 0, "forwards": 0, "total_s": 0.0}, {"total_s": None}])
def test_zero_time_or_no_time_is_null(row: dict[str, Any]) -> None:
    result = aggregate(table(row, row))
    assert result["tps"] is None
    assert result["tps_ci95"] is None
    assert result["tps_sample_mean"] is None
    assert aggregate(table())["tpf"] is None
    assert aggregate(table())["accuracy_ci95"] is None


def test_errors_are_counted_and_stay_out_of_the_ratios() -> None:
    """Seven right, three that gave no answer: 7/7 answered, 7/10 attempted, the run is incomplete."""
    good = [{"content_tokens": 10, "forwards": 5, "total_s": 1.0, "correct": True}] * 7
    bad = [
        {"finish_reason": reason, "content_tokens": 0, "forwards": 99, "total_s": 60.0, "correct": None}
        for reason in ("error", "prompt_too_long", "non_finite")
    ]
    result = aggregate(table(*good, *bad))
    assert (result["n"], result["errors"], result["judged"]) == (10, 3, 7)
    assert (result["accuracy"], result["accuracy_attempted"]) == (1.0, 0.7)
    assert (result["tpf"], result["tps"], result["forwards"]) == (2.0, 10.0, 35)
    assert result["complete"] is False
    assert result["finish_reasons"] == {"eos": 7, "error": 1, "prompt_too_long": 1, "non_finite": 1}


def test_a_completion_that_could_not_be_judged_is_not_wrong() -> None:
    result = aggregate(table({"correct": True}, {"correct": None, "score_status": "timeout"}))
    assert (result["accuracy"], result["accuracy_attempted"], result["unjudged"]) == (1.0, 0.5, 1)
    assert result["complete"] is False


def test_batched_samples_have_no_time_of_their_own_so_the_wall_clock_of_the_run_counts() -> None:
    rows = [{"content_tokens": 10, "batch": 4, "total_s": None, "prefill_s": None, "decode_s": None}] * 4
    last = {"content_tokens": 10, "batch": 1, "total_s": 0.01}
    result = aggregate(table(*rows, last), wall_s=2.0)
    assert (result["tps"], result["tps_clock"], result["tps_ci95"]) == (25.0, "wall", None)
    assert (result["batched"], result["latency_s"], result["tps_sample_max"]) == (True, None, None)
    assert aggregate(table(*rows, last))["tps"] is None


# One row for the presets: 40 positions filled; 20 tokens, then the end token; the stop string came after 15.
_ROW: dict[str, Any] = {
    "window_tokens": 40, "eos_tokens": 21, "content_tokens": 15, "finish_reason": "stop",
    "rounds": 9, "forwards": 10, "prefill_s": 1.0, "decode_s": 4.0, "total_s": 5.0,
}  # fmt: skip


@pytest.mark.parametrize(
    ("preset", "tpf", "tps"),
    [
        ("effective", 15 / 10, 15 / 5),
        ("lopa_dream", 40 / 10, 40 / 5),  # rounds + 1
        ("lopa_diffucoder", 20 / 9, 20 / 5),
        ("lopa_dist", 40 / 9, 40 / 4),
        ("fast_dllm", 15 / 10, 15 / 5),
        ("d3llm", 15 / 10, 15 / 5),
    ],
)
def test_each_publication_counts_in_its_own_way(preset: str, tpf: float, tps: float) -> None:
    result = aggregate(table(_ROW), preset)
    assert (result["tpf"], result["tps"], result["preset"]) == (tpf, tps, preset)
    assert result["tpf_window"] == 4.0  # a name that says what it counts means the same under every preset


def test_lopa_dist_averages_the_speed_of_samples() -> None:
    result = aggregate(table(_ROW, _ROW | {"decode_s": 1.0}), "lopa_dist")
    assert result["tps"] == result["tps_sample_mean"] == (10 + 40) / 2
    assert result["tps_sample_max"] == 40
    assert result["tpf"] == 80 / 18


def test_d3llm_also_counts_the_text_behind_the_stop_string() -> None:
    result = aggregate(table(_ROW), "d3llm")
    assert (result["tpf_uncut"], result["tps_uncut"]) == (20 / 10, 20 / 5)


def test_a_server_is_counted_by_its_usage_record_or_not_at_all() -> None:
    row = {"window_tokens": 50, "total_s": 2.0, "token_source": "usage"}
    result = aggregate(table(row), "ar_server")
    assert (result["tpf"], result["tps"]) == (1.0, 25.0)
    with pytest.raises(PresetError, match="needs rows with token_source 'usage'"):
        aggregate(table(_ROW), "ar_server")


def test_an_unknown_preset_names_the_ones_there_are() -> None:
    with pytest.raises(PresetError, match="effective, lopa_dream"):
        aggregate(table(), "lopa")
    assert all(preset.description and preset.formula for preset in PRESETS.values())


def test_wilson_is_the_published_interval() -> None:
    """Newcombe (1998), table I: 81 of 263 gives 0.2553 to 0.3662; 0 of 20 gives 0 to 0.1611."""
    assert wilson(81, 263) == pytest.approx((0.2553, 0.3662), abs=5e-5)
    assert wilson(0, 20) == pytest.approx((0.0, 0.1611), abs=5e-5)
    assert wilson(0, 0) is None


def test_the_bootstrap_agrees_with_scipy_and_is_seeded() -> None:
    from scipy.stats import bootstrap as reference

    generator = np.random.default_rng(1)
    tokens, forwards = generator.integers(20, 200, 300).astype(float), generator.integers(10, 60, 300).astype(float)
    expected = reference(
        (tokens, forwards), lambda t, f, axis=-1: t.sum(axis) / f.sum(axis), paired=True, method="percentile",
        n_resamples=4000, rng=2,
    ).confidence_interval  # fmt: skip
    groups = np.arange(300)
    interval = bootstrap({"tpf": Ratio(tokens, forwards)}, groups, seed=0)["tpf"]
    assert interval == pytest.approx((expected.low, expected.high), rel=0.01)
    assert interval == bootstrap({"tpf": Ratio(tokens, forwards)}, groups, seed=0)["tpf"]


def test_several_samples_of_a_problem_do_not_narrow_the_interval() -> None:
    rows = [
        {"content_tokens": 10 + 9 * p, "forwards": 10, "correct": p % 2 == 0, "problem_id": str(p)} for p in range(30)
    ]
    once = aggregate(table(*rows))
    fourfold = aggregate(table(*[row | {"sample_index": s} for row in rows for s in range(4)]))
    assert fourfold["tpf_ci95"] == pytest.approx(once["tpf_ci95"])
    assert (once["accuracy_ci95_method"], fourfold["accuracy_ci95_method"]) == ("wilson", "bootstrap")
    low, high = fourfold["accuracy_ci95"]
    assert high - low > 0.3
    assert (fourfold["n"], fourfold["problems"]) == (120, 30)


def test_intervals_of_a_full_gsm8k_run_take_a_fraction_of_a_second() -> None:
    generator = np.random.default_rng(0)
    fractions = {name: Ratio(generator.random(1319), generator.random(1319)) for name in ("tpf", "tps")}
    best = min(_seconds(lambda: bootstrap(fractions, np.arange(1319), seed=0)) for _ in range(3))
    assert best < 1.0  # about 0.05 s on an idle core; the bound leaves room for a busy machine


def _seconds(call: Any) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def test_mcnemar_is_the_binomial_test_on_discordant_pairs() -> None:
    assert mcnemar(0, 0) == 1.0
    assert mcnemar(1, 9) == pytest.approx(2 * 11 / 2**10)


def test_two_runs_are_compared_pair_by_pair() -> None:
    """Twice the tokens for each forward on every problem: the ratio is 2 with no doubt at all, for any spread."""
    generator = np.random.default_rng(0)
    spread = generator.integers(5, 500, 40).tolist()
    a = table(*[{"content_tokens": c, "forwards": 10, "total_s": 2.0, "correct": True} for c in spread])
    b = table(
        *[
            {"content_tokens": c, "forwards": 5, "total_s": 4.0, "correct": index >= 6}
            for index, c in enumerate(spread)
        ],
        {"finish_reason": "error", "correct": None},
    )
    result = compare(a, b)
    assert (result.pairs, result.unpaired) == (40, 0)
    tpf = result.quantities["tpf"]
    assert tpf.ratio.value == pytest.approx(2)
    assert tpf.ratio.interval == pytest.approx((2, 2))
    assert result.quantities["tps"].ratio.interval == pytest.approx((0.5, 0.5))
    assert tpf.difference.value == pytest.approx(tpf.b - tpf.a)
    low, high = tpf.difference.interval
    assert low < tpf.difference.value < high
    assert (result.only_a_correct, result.only_b_correct) == (6, 0)
    assert result.accuracy.difference.value == -0.15
    assert result.mcnemar_p == pytest.approx(2 / 2**6)


def test_only_samples_that_both_runs_finished_are_compared() -> None:
    a = table({"total_s": None}, {"finish_reason": "error"}, {}, {"correct": None})
    b = table({}, {}, {"total_s": 4.0}, {}, {})
    result = compare(a, b)
    assert (result.pairs, result.unpaired, result.judged_pairs) == (3, 2, 2)
    assert result.quantities["tps"].a == 22 / 4.0  # the first pair has no time on one side
    assert compare(table(), table()).quantities["tpf"].ratio.interval is None


def test_runs_on_different_problems_are_not_compared() -> None:
    with pytest.raises(ValueError, match="not the same problems"):
        compare(table({"gold": "4"}), table({"gold": "5"}))


@pytest.mark.parametrize(
    ("tallies", "k", "value"),
    [([(5, 2)], 1, 0.4), ([(5, 2)], 2, 0.7), ([(3, 1)], 5, None), ([(1, 1), (1, 0)], 1, 0.5), ([], 1, None)],
)
def test_pass_at_k_is_the_unbiased_mean_over_problems(
    tallies: list[tuple[int, int]], k: int, value: float | None
) -> None:
    assert mean_pass_at(k, tallies) == pytest.approx(value)


def test_pass_at_k_is_there_for_the_samples_that_there_are() -> None:
    once = aggregate(to_table("samples", [sample(0), sample(1, correct=False)]))
    assert once["pass_at"] == {"1": 0.5}
    rows = [sample(0, sample_index=i, correct=i < 2) for i in range(5)]
    assert aggregate(to_table("samples", rows))["pass_at"] == {
        "1": pytest.approx(0.4), "2": pytest.approx(0.7), "5": 1.0,
    }  # fmt: skip


def test_the_wall_clock_of_batched_samples_is_in_the_rows_so_that_resumed_runs_and_shards_add_up() -> None:
    rows = [sample(i, batch=4, total_s=None, content_tokens=30, wall_s=0.5) for i in range(4)]
    numbers = aggregate(to_table("samples", rows))
    assert (numbers["wall_s"], numbers["tps"], numbers["tps_clock"]) == (2.0, 60.0, "wall")


def test_the_running_numbers_end_at_the_aggregates() -> None:
    rows = [sample(0), sample(1, correct=False, content_tokens=50), sample(2, finish_reason="error", correct=None)]
    running = Running()
    for row in rows:
        running.add(row)
    result = aggregate(to_table("samples", rows))
    assert (running.accuracy, running.tpf, running.tps) == (result["accuracy"], result["tpf"], result["tps"])
    assert (running.n, running.errors) == (3, 1)
    assert Running().tpf is None


def test_the_documentation_names_every_column_preset_and_ratio() -> None:
    text = (Path(__file__).parents[1] / "docs" / "metrics.md").read_text(encoding="utf-8")
    result = aggregate(table({}))
    ratios = [name for name in result if name.startswith(("tpf", "tps", "tokens_per")) and not name.endswith("_ci95")]
    names = [*(name for columns in COLUMNS.values() for name in columns), *PRESETS, *ratios]
    assert [name for name in names if f"`{name}`" not in text] == []
