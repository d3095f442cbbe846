"""The cost model: bytes, operations and messages of a step by hand, and what a command line may ask."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from analysis.__main__ import main as analysis
from analysis.figures.cost import RANKS, best, draw, published_curves
from analysis.tables.cost import comparison, overhead_s
from lopa_bench.cost.__main__ import main
from lopa_bench.cost.arguments import question
from lopa_bench.cost.devices import COLLECTIVE_S, Device, device, devices
from lopa_bench.cost.predict import answer
from lopa_bench.cost.recorded import recorded
from lopa_bench.cost.sizes import sized
from lopa_bench.cost.step import Setup, Workload, step, weight_bytes
from tests.analysis_runs import simulate, write_run
from tests.test_records import sample
from tests.test_records import step as step_row

DREAM = sized("d2f_dream").config
WORK = Workload(rows=8, window=64, masked=32, cached=1000, committed=10)
ENDLESS = {"bfloat16": 1e30, "int8": 1e30}
SLOW_MEMORY = Device("", "", 1e12, bandwidth=1e9, flops=ENDLESS, link=1e30, source="")
SLOW_PRODUCTS = replace(SLOW_MEMORY, bandwidth=1e30, flops={"bfloat16": 1e12, "int8": 2e12})
MATRICES = 7_615_616_512 - 2 * 152_064 * 3584  # of Qwen2.5-7B without both ends; norms and biases are 0.01 % of it


def test_the_weights_are_those_of_the_published_network() -> None:
    assert weight_bytes(DREAM, Setup(device("h200"))) == pytest.approx(2 * 7_615_616_512, rel=1e-4)
    w8a8 = weight_bytes(DREAM, Setup(device("910c"), tensor_ranks=4, dtype="w8a8"))
    assert w8a8 == pytest.approx(MATRICES / 4 + 2 * 2 * 152_064 * 3584, rel=1e-3)


def test_without_tokens_a_step_is_the_reading_of_weights_and_cache() -> None:
    taken = step(DREAM, replace(WORK, rows=1, window=1e-9, masked=0), Setup(SLOW_MEMORY))
    assert taken.layers == pytest.approx(2 * MATRICES / 1e9, rel=1e-4)
    assert taken.head == pytest.approx(2 * 152_064 * 3584 / 1e9)
    assert taken.attention == pytest.approx(28 * 2 * 4 * 128 * 2 * 1000 / 1e9, rel=1e-6)


def test_with_endless_bandwidth_a_step_is_two_operations_a_number_and_token() -> None:
    taken = step(DREAM, WORK, Setup(SLOW_PRODUCTS))
    assert taken.layers == pytest.approx(2 * MATRICES * 8 * 64 / 1e12, rel=1e-4)
    assert taken.attention == pytest.approx(28 * 4 * 8 * 64 * 1064 * 28 * 128 / 1e12)
    assert step(DREAM, WORK, Setup(SLOW_PRODUCTS, dtype="w8a8")).layers == pytest.approx(taken.layers / 2)


def test_ranks_send_records_of_masked_positions_and_a_commit_sends_the_cache() -> None:
    slow_link = replace(SLOW_MEMORY, link=1e9)
    one_phase = step(DREAM, WORK, Setup(slow_link, branch_ranks=4, protocol="single_phase"))
    assert one_phase.link_bytes == 6 * 32 * 12  # two of eight rows are this rank's own
    assert one_phase.branch_link == pytest.approx(COLLECTIVE_S + 6 * 32 * 12 / 1e9)
    both = step(DREAM, WORK, Setup(slow_link, branch_ranks=4))
    assert both.link_bytes == one_phase.link_bytes + 10 * 2 * 28 * 4 * 128 * 2
    logits = step(DREAM, WORK, Setup(slow_link, branch_ranks=4, protocol="single_phase", gather="logits"))
    assert logits.link_bytes == 6 * 64 * 152_064 * 2
    assert step(DREAM, WORK, Setup(slow_link)).link_bytes == 0


def test_tensor_ranks_share_the_layers_and_sum_twice_in_each() -> None:
    whole, shared = (step(DREAM, WORK, Setup(SLOW_PRODUCTS, tensor_ranks=ranks)) for ranks in (1, 4))
    assert (shared.layers, shared.attention) == pytest.approx((whole.layers / 4, whole.attention / 4))
    assert shared.head == whole.head
    assert shared.link_bytes == 2 * 28 * 1.5 * 8 * 64 * 3584 * 2


def test_the_slowest_rank_counts() -> None:
    steps = [step(DREAM, WORK, Setup(SLOW_PRODUCTS, branch_ranks=ranks)).layers for ranks in (1, 2, 3, 4, 8, 9)]
    assert [one / steps[0] for one in steps] == pytest.approx([1, 4 / 8, 3 / 8, 2 / 8, 1 / 8, 1 / 8])


def test_of_experts_those_count_that_the_tokens_meet() -> None:
    config = sized("sdar_30b_a3b").config
    attention = 48 * (2048 * 40 * 128 + 32 * 128 * 2048 + 2048 * 128)
    for tokens, met in ((1, 8), (2, 128 * (1 - (1 - 1 / 16) ** 2)), (10_000, 128)):
        work = Workload(rows=1, window=tokens, masked=0, cached=0, committed=0)
        read = (
            step(config, work, Setup(SLOW_MEMORY)).layers - step(config, work, Setup(SLOW_MEMORY, dtype="w8a8")).layers
        )
        assert read * 1e9 == pytest.approx(attention + 48 * 3 * 2048 * 768 * met, rel=1e-6)


def test_a_recorded_run_gives_k_tpf_and_the_mean_step(tmp_path: Path) -> None:
    runs = [write_run(tmp_path, f"k{k}", {"name": "lopa", "k": k}, simulate(4, k, 0.9, seed=k)) for k in (0, 3)]
    found = answer(question(["model=d2f_dream", "ranks=1,4", f"run={runs[0]},{runs[1]}", "overhead_ms=10"]))
    lines = [(one.k, one.ranks) for one in found.predictions]
    assert lines == [(0, 1), (0, 4), (3, 1), (3, 4)]
    for one in found.predictions:
        assert one.tps == pytest.approx((one.tpf or 0) / one.step.seconds)
        assert one.step.seconds > 0.010
    assert found.predictions[3].tps > found.predictions[2].tps > found.predictions[0].tps
    assert found.predictions[0].pays_from == 1


def test_the_mean_step_of_a_run_leaves_out_the_prompt_s(tmp_path: Path) -> None:
    """Of 9 tokens in 3 calls each enters the cache: 3 a call. Before a call there were 3 masks more than behind it."""
    widths, cached, left = (30, 10, 8), (0, 20, 24), (9, 6, 0)
    steps = [
        step_row(at, window_width=width, cached=kept, masks_left=masks)
        for at, (width, kept, masks) in enumerate(zip(widths, cached, left))
    ]
    folder = write_run(tmp_path, "r", {"name": "lopa", "k": 3}, [(sample(0, window_tokens=9, forwards=3), steps)])
    found = recorded(str(folder), "effective")
    assert (found.k, found.work) == (3, Workload(rows=4, window=9, masked=6, cached=22, committed=3))


def test_every_setting_of_what_runs_where_arrives() -> None:
    words = "device=a100 ranks=2 tensor=4 dtype=w8a8 protocol=single_phase gather=logits overhead_ms=3"
    assert answer(question(words.split())).setup == Setup(
        device("a100"), 1, 4, "w8a8", "single_phase", "logits", overhead_s=0.003
    )


def test_a_run_that_cannot_say_its_steps_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    decoded = simulate(4, 3, 0.9, seed=3)
    whole = write_run(tmp_path, "whole", {"name": "lopa", "k": 3}, decoded)
    spoilt = {
        "of several models, mini, mine": write_run(tmp_path, "mine", {"name": "lopa", "k": 1}, decoded, model="mine"),
        "is damaged: ": write_run(tmp_path, "damaged", {"name": "lopa", "k": 1}, decoded, n=5),
        "no steps of a fixed number of branches (decoder=ar": write_run(tmp_path, "ar", None, decoded, decoder="ar"),
        "is interrupted; allowed: a finished run": write_run(tmp_path, "half", None, decoded, status="interrupted"),
    }
    for message, folder in spoilt.items():
        assert main([f"run={whole},{folder}"]) == 2
        assert message in capsys.readouterr().err
    assert main([f"run={whole}", "device= H200 ", "ranks=8"]) == 0
    assert "where there are more ranks than rows" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("device=h100", "device=h100 is not allowed; allowed: h200, a100, 910c"),
        ("model=dreem", "model=dreem is not allowed"),
        ("model=sdar_4b", "the sizes of model=sdar_4b are not known"),
        ("ranks=1,0", "ranks=1,0 is not allowed; allowed: integers from 1"),
        ("k=7", "did you mean decoder.k="),
        ("tpf=3,4 decoder.k=7", "tpf has 2 values for 1 of decoder.k"),
        ("tensor=3", "tensor=3 does not divide the network's 28 query heads, 4 KV heads, 18944 numbers inside"),
        ("tensor=8", "; allowed: 1, 2, 4"),
        ("window=10 masked=11", "masked=11 is more than the window's 10"),
        ("run=nowhere", "names no single run"),
        ("cached=9999999", "GB of each device"),
        ("ranks=1 ranks=2", "ranks is set twice"),
        ("ranks=1,2,2", "ranks has 2 twice"),
        ("tpf=3,5", "a comma stands between values, a point in a number"),
        ("tpf=49", "tpf=49 is more than the 48 masked positions of a step"),
        ("model=~nobody-here/x", "model=~nobody-here/x is not allowed"),
    ],
)
def test_a_wrong_word_is_one_error(words: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words.split()) == 2
    said = capsys.readouterr()
    assert message in said.err
    assert said.err.count("error") == 1
    assert said.out == ""


def test_every_device_has_its_source_and_runs_the_article_s_model(capsys: pytest.CaptureFixture[str]) -> None:
    for name, one in devices().items():
        assert main(["model=d2f_dream", "decoder.k=7", "ranks=1,2,4,8", f"device={name}"]) == 0
        assert one.source in capsys.readouterr().out


def test_the_article_s_table_4_stands_beside_what_is_predicted() -> None:
    table = comparison()
    assert len(table.records) == 72
    tested = [row for row in table.values if row["published_tpf"] is not None]
    assert {row["setting"] for row in tested} == {"S12", "S18"}
    for row in tested:
        assert row["error"] == pytest.approx(row["tps"] / row["published_tps"] - 1)
        assert row["error_with_overhead"] == pytest.approx(row["tps_with_overhead"] / row["published_tps"] - 1)
        assert row["step_ms_with_overhead"] - row["step_ms"] == pytest.approx(1e3 * overhead_s())
        assert row["tps_with_overhead"] == pytest.approx(1e3 * row["published_tpf"] / row["step_ms_with_overhead"])
    assert all(row["implied_tpf"] > 1 for row in table.values if row["published_tpf"] is None)


def test_the_figure_has_a_curve_for_each_number_of_devices_and_says_the_best_k() -> None:
    setup = Setup(device("h200"), overhead_s=0.01)
    curves = published_curves()
    axes = draw(setup).axes
    assert len(axes) == len(curves) == 4
    for ax, ((model, _), curve) in zip(axes, curves.items()):
        drawn = {line.get_label(): line.get_ydata() for line in ax.lines}
        found = best(sized("d2f_dream" if "Dream" in model else "d2f_diffucoder"), curve, setup)
        assert [ranks for ranks, *_ in found] == list(RANKS)
        for ranks, k, speed, _ in found:
            ys = drawn[f"{ranks} device{'s' if ranks > 1 else ''}"]
            assert max(ys) == pytest.approx(speed) == ys[[one for one, *_ in curve].index(k)]
            (_, tpf, work) = next(point for point in curve if point[0] == k)
            assert tpf / speed == pytest.approx(step(DREAM, work, replace(setup, branch_ranks=ranks)).seconds)
            assert tpf / speed > setup.overhead_s


@pytest.mark.parametrize("told", ["--model mini", "--preset lopa_dist"])
def test_what_only_recorded_runs_need_is_refused_without_them(told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert analysis(["cost", *told.split()]) == 2
    assert f"{told} has no meaning here: it is read with --runs" in capsys.readouterr().err
