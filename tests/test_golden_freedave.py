"""FreeDave is `select=exact` over one token a forward, or over a threshold: its traces, call by call and row by row."""

from __future__ import annotations

from typing import Any

import pytest

from decoders import DecoderConfig
from tests.golden_cases import RELEASED, Replay, cases_of, check_masked, load, replay


def config_of(case: dict[str, Any]) -> DecoderConfig:
    """Under full attention a threshold that nothing passes fills one token; unlike greedy it may follow a block's first
    position. Block attention is SDAR's, with a quota of one token.
    """
    p = case["params"]
    if p["attention"] == "block":
        tau = p["confidence_threshold"]  # FreeDave++
        rule = {"fill": "static"} if tau is None else {"fill": "dynamic", "tau_conf": tau}
        return DecoderConfig(
            base="sdar", grid="absolute", store="forward", select="exact", k=p["draft_steps"] - 1,
            gen_length=len(case["base"]["generated_ids"]), block_size=p["block_length"], attention="block_causal",
            **rule, **RELEASED,
        )  # fmt: skip
    first = "unconditional" if p.get("shifted") else "rule"
    return DecoderConfig(
        base="fast_dllm", tau_conf=1.0, first_position=first, select="exact", k=p["draft_steps"] - 1,
        gen_length=p["max_gen_length"], block_size=p["block_length"], cache="dual" if p["dual_cache"] else "prefix",
        attention="full", **RELEASED,
    )  # fmt: skip


def of_attention(attention: str) -> list[str]:
    return [name for name in cases_of("freedave") if load(name)["params"]["attention"] == attention]


def check_call(log: Replay, i: int, theirs: dict[str, Any], text: list[int]) -> None:
    """The rows of a call are the program's drafts, but for one that completes the block and so predicts nothing.

    The program fills a token when the next call's drafts hold it, ours in the call whose row predicts it.
    """
    assert log.generation is not None
    request, ours = log.requests[i], log.generation.steps[i]
    start, end = theirs["forward_start"], theirs["forward_start"] + theirs["forward_len"]
    drafts = [filled(text, draft) for draft in theirs["drafts"]] or [text]
    masked = [row for row in theirs["masked"] if row]
    assert request.ids.tolist() == [draft[request.start : end] for draft in drafts[: len(masked) or 1]], i
    for row, masks in enumerate(masked):
        check_masked(log, i, masks, row)
    assert ours.winner == min(theirs["accepted"] or 0, max(len(masked), 1) - 1)
    if theirs["forward"] == "store":
        assert (ours.positions, ours.kept) == ((), (start, end))
    else:
        assert ours.positions


def after(theirs: dict[str, Any], text: list[int]) -> list[int]:
    for commit in (theirs["commit"], theirs["tail_commit"]):
        text = filled(text, commit) if commit else text
    return text


@pytest.mark.parametrize("name", of_attention("full"))
def test_golden_freedave_full(name: str) -> None:
    case, complete = load(name), 0
    log = replay(case, config_of(case))
    assert log.generation is not None
    assert log.generation.forwards == case["counts"]["forward_passes"]
    text = case["prompt_ids"] + [case["mask_token_id"]] * case["params"]["max_gen_length"]
    for i, theirs in enumerate(case["steps"]):
        request = log.requests[i]
        assert (request.start, request.ids.shape[1]) == (theirs["forward_start"], theirs["forward_len"])
        check_call(log, i, theirs, text)
        complete += sum(not row for row in theirs["masked"])
        text = after(theirs, text)
    assert log.generation.rows == case["counts"]["rows"] - complete
    assert complete
    assert text[len(case["prompt_ids"]) :] == list(log.generation.ids) == case["final"]["generated_ids"]


def is_saved(theirs: dict[str, Any], last: bool) -> bool:
    """Ours saves the prompt's own call (the first block's computes it), the store of the last block, which nothing
    reads, and calls whose drafts are all complete: the row that predicted them has filled the block already.
    """
    idle = theirs["forward"] == "draft" and not any(theirs["masked"])
    return theirs["forward"] == "prefill" or idle or (theirs["forward"] == "store" and last)


@pytest.mark.parametrize("name", of_attention("block"))
def test_golden_freedave_block(name: str) -> None:
    """With `early_exit` the program gives up behind a block of end tokens, where ours goes on by length."""
    case, i = load(name), 0
    log = replay(case | {"eos_token_id": None}, config_of(case))  # an end token inside a block does not stop it
    assert log.generation is not None
    prompt, early = len(case["prompt_ids"]), case["params"]["early_exit"]
    text = case["prompt_ids"] + [case["mask_token_id"]] * len(case["base"]["generated_ids"])
    for theirs in case["steps"]:
        if not is_saved(theirs, last=theirs is case["steps"][-1] and not early):
            assert log.requests[i].start == (theirs["forward_start"] if i else 0)
            check_call(log, i, theirs, text)
            i += 1
        text = after(theirs, text)
    done = text.index(case["mask_token_id"]) if early else len(text)
    assert list(log.generation.ids)[: done - prompt] == text[prompt:done]
    assert case["final"]["generated_ids"] == text[prompt:done] + [case["eos_token_id"]] * (len(text) - done)
    assert (i == log.generation.forwards) != early


def filled(text: list[int], draft: dict[str, list[int]]) -> list[int]:
    there = dict(zip(draft["positions"], draft["tokens"], strict=True))
    return [there.get(position, token) for position, token in enumerate(text)]


def test_some_drafts_of_the_traces_come_true() -> None:
    accepted = [step["accepted"] or 0 for name in cases_of("freedave") for step in load(name)["steps"]]
    assert max(accepted) >= 4
