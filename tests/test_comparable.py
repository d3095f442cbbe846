"""Like with like: which runs stand side by side, on which samples, and which settings may be compared at their best."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from lopa_bench.metrics.comparable import Counted, common_grid, key, shared, stand
from lopa_bench.records.runs import Run, as_run
from lopa_bench.records.schema import to_table
from tests.test_records import run_row, sample


def run(**changes: Any) -> Run:
    return as_run(run_row(**changes))


def counted(*indices: int, rule: str = "effective", **row: Any) -> Counted:
    return Counted(run(**row), to_table("samples", [sample(i) for i in indices]), rule)


def test_runs_that_differ_in_their_decoder_alone_stand_side_by_side_on_what_both_decoded() -> None:
    standing = stand(counted(0, 1, 2, 3, k="0"), counted(2, 3, 4, k="8", decoder="lopa", limit=3, run_id="s"))
    assert standing
    assert (standing.pairs, standing.alone, standing.why) == (2, 3, "")


CONFIG: dict[str, Any] = {"task": {"shots": 4}, "backend": {"concurrency": 1}, "model": {"add_bos": False}}


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"task": "mbpp"}, "task: gsm8k / mbpp"),
        ({"source_name": "mine", "source_sha256": "1" * 64}, "source: embedded word problems / mine"),
        ({"scorer": "strict"}, "scorer: lopa_bench / strict"),
        ({"model": "mini_ar"}, "model: mini / mini_ar"),
        ({"device": "cuda"}, "device: local on cpu float32 / local on cuda float32"),
        ({"dtype": "bfloat16"}, "device: local on cpu float32 / local on cpu bfloat16"),
        ({"backend": "sglang"}, "device: local on cpu float32 / sglang on cpu float32"),
        ({"batch": 16}, "batch: 1 / 16"),
    ],
)
def test_what_differs_is_named_with_both_values(change: dict[str, Any], why: str) -> None:
    standing = stand(counted(0, 1), counted(0, 1, **change))
    assert not standing
    assert standing.why == why
    assert key(run()) != key(run(**change))


def test_sources_without_a_checksum_are_told_apart_by_name() -> None:
    one, other = (run(source_sha256=None, source_name=name) for name in ("mine", "yours"))
    assert key(one) != key(other)
    assert key(one) == key(replace(one))


@pytest.mark.parametrize(
    ("change", "fact"),
    [
        ({"source_sha256": "1" * 64}, "source"),  # another file of the same name
        ({"model_sha256": "a" * 64}, "model"),
        ({"config": CONFIG | {"model": {"add_bos": True}}}, "model"),
        ({"config": CONFIG | {"model": {"add_bos": False, "lora": "adapter"}}}, "model"),
        ({"config": CONFIG | {"task": {"shots": 0}}}, "prompt"),
        ({"config": CONFIG | {"task": {"shots": 4, "prompt_style": "chat"}}}, "prompt"),
        ({"config": CONFIG | {"backend": {"concurrency": 8}}}, "batch"),
        ({"host": {"processor": "B", "threads": 1}}, "device"),
        ({"host": {"processor": "A", "threads": 2}}, "device"),
    ],
)
def test_a_difference_that_no_name_shows_counts_as_well(change: dict[str, Any], fact: str) -> None:
    usual: dict[str, Any] = {"config": CONFIG, "host": {"processor": "A", "threads": 1}}
    standing = stand(counted(0, **usual), counted(0, **(usual | change)))
    assert [difference.fact for difference in standing.differences] == [fact]
    assert standing.differences[0].a != standing.differences[0].b


def test_the_kind_of_accelerator_is_part_of_the_device_and_its_host_is_not() -> None:
    a, b, c = (
        counted(0, device="cuda", host={"gpu": gpu, "hostname": host, "threads": threads})
        for gpu, host, threads in (("H200", "x", 1), ("H200", "y", 2), ("A100", "x", 1))
    )
    assert stand(a, b)
    assert [difference.fact for difference in stand(a, c).differences] == ["device"]


def test_columns_hold_the_same_whether_they_are_json_or_not_yet() -> None:
    assert key(run(host={"processor": "A"}, config=CONFIG)) == key(
        run(host='{"processor": "A"}', config='{"task": {"shots": 4}, "backend": {"concurrency": 1}, '
                '"model": {"add_bos": false}}')
    )  # fmt: skip


def test_numbers_of_two_counting_rules_do_not_stand_side_by_side() -> None:
    assert stand(counted(0), counted(0, rule="lopa_dream")).why == "counting: effective / lopa_dream"


def test_a_fact_that_is_what_is_compared_may_differ() -> None:
    assert stand(counted(0), counted(0, model="mini_ar"), but=("model",))
    assert not stand(counted(0), counted(0, model="mini_ar", task="math"), but=("model",))
    assert key(run(), but=("model",)) == key(run(model="mini_ar"), but=("model",))


def test_runs_without_a_problem_in_common_do_not_stand_side_by_side() -> None:
    assert stand(counted(0, 1), counted(2)).why == "no problem in common that both decoded"


def test_other_gold_answers_are_other_problems() -> None:
    a, b = (Counted(run(), to_table("samples", [sample(0, gold=gold)])) for gold in "45")
    assert stand(a, b).why == "gold answers (p0): '4' / '5'"


def test_only_samples_that_both_decoded_count_and_a_verdict_needs_both() -> None:
    a = to_table("samples", [sample(0), sample(1, finish_reason="error", correct=None), sample(2), sample(4)])
    b = to_table("samples", [sample(4, correct=None), sample(2, correct=False), sample(1), sample(0, sample_index=1)])
    assert stand(Counted(run(), a), Counted(run(), b)).pairs == 2
    first, second = shared([a, b])
    assert first["problem_id"].to_pylist() == second["problem_id"].to_pylist() == ["p2", "p4"]
    assert first["correct"].to_pylist() == [True, None]
    assert second["correct"].to_pylist() == [False, None]


def test_what_runs_share_may_be_nothing() -> None:
    a, b = (to_table("samples", [sample(index)]) for index in (0, 1))
    assert [table.num_rows for table in shared([a, b])] == [0, 0]
    assert shared([]) == []


@pytest.mark.parametrize(
    ("offered", "grid", "tuned"),
    [
        ({"k=0": "abc", "k=8": "abc"}, "abc", ("k=0", "k=8")),
        ({"k=0": "a", "k=8": "abc"}, "", ()),  # one default run beside the best of three
        ({"k=0": "ab", "k=8": "bcda"}, "ab", ("k=0", "k=8")),
        ({"k=0": "ab", "k=8": "bc"}, "", ()),
        ({"greedy": "x", "k=0": "abc", "k=4": "a", "k=8": "abcd"}, "abc", ("k=0", "k=8")),
        ({"k=0": "abc"}, "", ()),
        ({"k=0": "aaa", "k=8": "aa"}, "", ()),
        ({}, "", ()),
    ],
)
def test_the_best_points_of_two_sides_come_from_one_grid(
    offered: dict[str, str], grid: str, tuned: tuple[str, ...]
) -> None:
    assert common_grid(offered) == (frozenset(grid), tuned)


def test_the_speed_of_one_worker_does_not_stand_beside_that_of_two() -> None:
    """Rows from before there were workers are those of one."""
    here: dict[str, Any] = {"processor": "A", "threads": 1}
    before, one, two, both = (
        counted(0, host=here | more) for more in ({}, {"workers": [1]}, {"workers": [2]}, {"workers": [1, 2]})
    )
    assert stand(before, one)
    assert stand(one, two).why == "device: local on cpu float32 / local on cpu float32, 2 workers"
    assert stand(two, both).why.endswith("2 workers / local on cpu float32, 1 or 2 workers")
    assert stand(one, two, but=("device",))
