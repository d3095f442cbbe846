"""FreeDave under full attention is `select=exact` over one token a forward: its traces, call by call and row by row."""

from __future__ import annotations

from typing import Any

import pytest

from decoders import DecoderConfig
from tests.golden_cases import RELEASED, cases_of, load, replay

PROB = 2e-5  # tolerance of the traces' README


def config_of(case: dict[str, Any]) -> DecoderConfig:
    """A threshold that nothing passes fills one token; unlike greedy it may follow a block's first position."""
    p = case["params"]
    first = "unconditional" if p.get("shifted") else "rule"
    return DecoderConfig(
        base="fast_dllm", tau_conf=1.0, first_position=first, select="exact", k=p["draft_steps"] - 1,
        gen_length=p["max_gen_length"], block_size=p["block_length"], cache="dual" if p["dual_cache"] else "prefix",
        attention="full", **RELEASED,
    )  # fmt: skip


@pytest.mark.parametrize("name", cases_of("freedave"))
def test_golden_freedave(name: str) -> None:
    """The rows of a call are the program's drafts, but for one that completes the block and so predicts nothing.

    The program fills a token when the next call's drafts hold it, ours in the call whose row predicts it.
    """
    case, complete = load(name), 0
    log = replay(case, config_of(case))
    assert log.generation is not None
    assert log.generation.forwards == case["counts"]["forward_passes"]
    text = case["prompt_ids"] + [case["mask_token_id"]] * case["params"]["max_gen_length"]
    for i, theirs in enumerate(case["steps"]):
        request, prediction, ours = log.requests[i], log.predictions[i], log.generation.steps[i]
        start, width = theirs["forward_start"], theirs["forward_len"]
        assert (request.start, request.ids.shape[1]) == (start, width)
        drafts = [filled(text, draft) for draft in theirs["drafts"]] or [text]
        masked = [row for row in theirs["masked"] if row]
        assert request.ids.tolist() == [draft[start : start + width] for draft in drafts[: len(masked)]], i
        for row, masks in enumerate(masked):
            for position, token, prob in masks:
                assert prediction.token[row, position - start] == token, (i, row, position)
                assert prediction.prob[row, position - start] == pytest.approx(prob, abs=PROB)
        assert ours.winner == min(theirs["accepted"] or 0, len(masked) - 1)
        complete += len(theirs["masked"]) - len(masked)
        for commit in (theirs["commit"], theirs["tail_commit"]):
            text = filled(text, commit) if commit else text
    assert log.generation.rows == case["counts"]["rows"] - complete
    assert complete
    assert text[len(case["prompt_ids"]) :] == list(log.generation.ids) == case["final"]["generated_ids"]


def filled(text: list[int], draft: dict[str, list[int]]) -> list[int]:
    there = dict(zip(draft["positions"], draft["tokens"], strict=True))
    return [there.get(position, token) for position, token in enumerate(text)]


def test_some_drafts_of_the_traces_come_true() -> None:
    accepted = [step["accepted"] or 0 for name in cases_of("freedave") for step in load(name)["steps"]]
    assert max(accepted) >= 4
