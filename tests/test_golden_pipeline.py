"""D2F and LoPA against step-by-step traces of the released programs."""

from __future__ import annotations

from typing import Any

import pytest

from tests.golden_cases import CONF, Replay, cases_of, check_masked, load, pipeline_config, replay


def fed_row(run: Replay, i: int, row: int) -> list[int]:
    request = run.requests[i]
    return request.ids[row, : request.lengths[row]].tolist()


def check_said(run: Replay, i: int, row: int, masked: list[list[Any]], confidence: str) -> None:
    check_masked(run, i, [(position, token, prob) for position, _block, token, prob, _conf in masked], row)
    for position, *_, conf in masked:
        told = run.predictions[i].measure(confidence)[row, position - run.requests[i].start]
        assert told == pytest.approx(conf, abs=CONF)


@pytest.mark.parametrize("name", cases_of("d2f_single", "d2f_dream", "d2f_llada"))
def test_golden_d2f(name: str) -> None:
    case = load(name)
    config = pipeline_config(case)
    run = replay(case, config)
    generation = run.generation
    assert generation is not None
    assert generation.forwards == case["counts"]["forward_passes"]
    for i, (ours, theirs) in enumerate(zip(generation.steps, case["steps"], strict=True)):
        start = theirs["input_start"]
        assert run.requests[i].start == start == theirs["cache_len_before"]
        assert fed_row(run, i, 0) == (case["prompt_ids"] + theirs["gen_before"])[start:]
        check_said(run, i, 0, theirs["masked"], config.confidence or "prob")
        assert ours.positions == tuple(theirs["commit"]["positions"]), i
        assert ours.tokens == tuple(theirs["commit"]["tokens"])
        commit = theirs["kv_commit"]
        assert ours.kept == ((commit["start"], commit["end"]) if commit else None)
        assert ours.masks_left == theirs["masked_left"]
    assert list(generation.ids) == case["final"]["generated_ids"]


@pytest.mark.parametrize("name", cases_of("lopa", "lopa_dist"))
def test_golden_lopa(name: str) -> None:
    case = load(name)
    config = pipeline_config(case)
    run = replay(case, config)
    generation = run.generation
    assert generation is not None
    assert generation.rounds == case["counts"]["rounds"]
    assert generation.rows == case["counts"]["forward_passes"]  # the reference calls the model once a branch
    for i, (ours, theirs) in enumerate(zip(generation.steps, case["steps"], strict=True)):
        branches = theirs["branches"]
        rows = [len(branches) - 1, *range(len(branches) - 1)]  # the reference lists the anchor last
        assert ours.branches == len(branches)
        assert run.requests[i].start == theirs["input_start"] == theirs["cache_len_before"]
        for row, index in enumerate(rows):
            assert fed_row(run, i, row) == (case["prompt_ids"] + branches[index]["gen"])[theirs["input_start"] :]
            assert ours.scores[row] == pytest.approx(branches[index]["score"], abs=CONF)
        assert rows[ours.winner] == theirs["winner"], i
        check_said(run, i, ours.winner, theirs["masked"], config.confidence or "prob")
        assert ours.positions == tuple(theirs["commit"]["positions"]), i
        assert ours.tokens == tuple(theirs["commit"]["tokens"])
        commit = theirs["kv_commit"]
        assert ours.kept == ((commit["start"], commit["end"]) if commit else None)
        assert ours.masks_left == theirs["masked_left"]
    for ours, theirs in zip(generation.steps[1:], case["steps"]):
        assert ours.lookahead_positions == tuple(candidate[0] for candidate in theirs["lookahead"])
        assert ours.lookahead_tokens == tuple(candidate[1] for candidate in theirs["lookahead"])
    assert list(generation.ids) == case["final"]["generated_ids"]
