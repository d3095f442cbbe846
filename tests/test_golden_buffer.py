"""MultiBD, a buffer of blocks on the absolute grid, against step-by-step traces of Diffulex."""

from __future__ import annotations

from typing import Any

import pytest

from decoders import DecoderConfig
from tests.golden_cases import cases_of, check_masked, load, replay


def config_of(case: dict[str, Any]) -> DecoderConfig:
    p = case["params"]
    return DecoderConfig(
        name="multibd", gen_length=len(case["final"]["generated_ids"]), block_size=p["block_size"], grid="absolute",
        buffer_size=p["buffer_size"], tau_add=p["add_block_threshold"], tau_act=p["semi_complete_threshold"],
        tau_conf=p["accept_threshold"], decode_tail=True,
    )  # fmt: skip


def made_by_us(case: dict[str, Any]) -> list[dict[str, Any]]:
    """The reference's calls without those that fill nothing, which only store: the next call does that as well."""
    calls: list[dict[str, Any]] = []
    stores: dict[str, Any] | None = None
    for step in case["steps"]:
        if not step["commit"]["positions"]:
            assert step["masked"] == []
            assert stores is None
            stores = {name: step[name] for name in ("cache_len_before", "kv_commit")}
        else:
            calls.append(step | (stores or {}))
            stores = None
    return calls


@pytest.mark.parametrize("name", cases_of("multibd"))
def test_golden_multibd(name: str) -> None:
    """A trace that ends by length stops with masks in the buffer, which ours goes on to fill."""
    case = load(name)
    log = replay(case, config_of(case))
    assert log.generation is not None
    calls, steps = made_by_us(case), log.generation.steps
    for i, theirs in enumerate(calls):
        request = log.requests[i]
        assert request.start == theirs["cache_len_before"], i
        assert request.ids.tolist() == [(case["prompt_ids"] + theirs["gen_before"])[request.start :]], i
        check_masked(log, i, [(position, token, prob) for position, _block, token, prob in theirs["masked"]])
        assert steps[i].positions == tuple(theirs["commit"]["positions"]), i
        assert steps[i].tokens == tuple(theirs["commit"]["tokens"])
        commit = theirs["kv_commit"]
        assert steps[i].kept == ((commit["start"], commit["end"]) if commit else None), i
        assert steps[i].masks_left == theirs["masked_left"]
    final = case["final"]["generated_ids"]
    left = final.count(case["mask_token_id"])
    assert (len(steps) == len(calls)) == (left == 0) == (case["completion_reason"] == "eos_token_generated")
    assert sum(len(step.positions) for step in steps[len(calls) :]) == left
    assert len(log.generation.ids) == len(final)
    assert all(token in (ours, log.mask_id) for ours, token in zip(log.generation.ids, final))


def test_the_traces_fill_a_buffer_and_find_it_empty_of_masks() -> None:
    cases = [load(name) for name in cases_of("multibd")]
    assert any(len(case["steps"]) > len(made_by_us(case)) + 1 for case in cases)
    for case in cases:
        size = case["params"]["buffer_size"]
        states = [[slot[3] for slot in step["blocks_before"]] for step in case["steps"]]
        assert size > 1
        assert max(row.count("active") + row.count("to_cache") for row in states) == size
