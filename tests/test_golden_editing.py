"""Decoders that edit, against step-by-step traces of the released programs."""

from __future__ import annotations

from typing import Any

import pytest

from decoders import DecoderConfig
from tests.golden_cases import PROB, Replay, cases_of, check_filled, check_masked, load, replay


def joint_config(case: dict[str, Any]) -> DecoderConfig:
    """01 to 07 are the model's own program, which keeps no cache; 08 to 11 are SGLang."""
    p, shared = case["params"], {"name": "joint_threshold", "grid": "absolute", "mask_logit": "keep"}
    shared |= {"gen_length": len(case["final"]["generated_ids"]), "tau_conf": p["threshold"]}
    if p.get("program") == "sglang":
        return DecoderConfig(
            block_size=p["block_size"], tau_edit=p["edit_threshold"], max_post_edit=p["max_post_edit_steps"],
            penalty=p["penalty_lambda"], **shared,
        )  # fmt: skip
    return DecoderConfig(
        block_size=p["block_length"], tau_edit=p["editing_threshold"], max_post_edit=p["max_post_steps"],
        tokens_per_step=p["num_to_transfer"], capped="end", cache="none", **shared,
    )  # fmt: skip


def wino_config(case: dict[str, Any]) -> DecoderConfig:
    p = case["params"]
    return DecoderConfig(
        name="wino", gen_length=p["gen_length"], block_size=p["block_length"], tau_conf=p["threshold"],
        tau_back=p["threshold_back"], decode_tail=True, mask_logit="keep",
    )  # fmt: skip


def check_step(log: Replay, i: int, theirs: dict[str, Any]) -> None:
    """What the network said of masks, what was filled, and what was edited in the same round."""
    assert log.generation is not None
    check_masked(log, i, theirs["masked"])
    check_filled(log, i, theirs["commit"])
    assert log.generation.steps[i].edits is not None


@pytest.mark.parametrize("name", cases_of("joint_threshold"))
def test_golden_joint_threshold(name: str) -> None:
    """The prompt's own forward is saved: the first block's stores it as well. Which forwards are kept is the same."""
    case = load(name)
    ends_early = case["params"].get("eos_early_stop", True)
    if not ends_early:  # it goes on by length whatever stands in the text
        case = {**case, "eos_token_id": None}
    log = replay(case, joint_config(case))
    assert log.generation is not None
    steps = [step for step in case["steps"] if step["forward"] != "prefill"]
    assert log.generation.forwards == len(steps)
    for i, theirs in enumerate(steps):
        check_step(log, i, theirs)
        ours, request = log.generation.steps[i], log.requests[i]
        assert [list(edit) for edit in ours.edits or ()] == theirs["edits"], i
        for position, token, best, prob in theirs["standing"]:
            at = (0, position - request.start)
            assert (request.ids[at], log.predictions[i].token[at]) == (token, best), (i, position)
            assert log.predictions[i].prob[at] == pytest.approx(prob, abs=PROB)
        assert request.start + request.ids.shape[1] == theirs["forward_start"] + theirs["forward_len"]
        if theirs["kv_commit"]:
            assert ours.kept is not None
            assert ours.kept[1] == theirs["kv_commit"]["end"]
    final = case["final"]["generated_ids"]
    stop = final.index(case["eos_token_id"]) + 1 if case["eos_token_id"] in final else len(final)
    assert list(log.generation.ids) == final[:stop]


def test_the_traces_edit_while_they_fill_and_behind_it() -> None:
    """None of them meets the cap: tests/test_editing.py."""
    steps = [step for name in cases_of("joint_threshold") for step in load(name)["steps"]]
    assert any(step["edits"] and step["commit"]["positions"] for step in steps)
    assert any(step["edits"] and not step["masked"] for step in steps)


@pytest.mark.parametrize("name", cases_of("wino"))
def test_golden_wino(name: str) -> None:
    case = load(name)
    log = replay(case, wino_config(case))
    assert log.generation is not None
    assert log.generation.forwards == case["counts"]["forward_passes"]
    for i, theirs in enumerate(case["steps"]):
        check_step(log, i, theirs)
        ours, request = log.generation.steps[i], log.requests[i]
        assert [edit.position for edit in ours.edits or ()] == theirs["remask"], i
        assert {edit.new for edit in ours.edits or ()} <= {log.mask_id}
        for position, token, prob in theirs["shadow"]:
            at = (0, position - request.start)
            assert request.ids[at] == token
            assert log.predictions[i].measure("shadow")[at] == pytest.approx(prob, abs=PROB)
        assert ours.tokens_processed == theirs["forward_len"]  # the shadows are computed too
        behind = case["params"]["gen_length"] - (theirs["block"] + 1) * case["params"]["block_length"]
        assert ours.masks_left == theirs["masked_left"] + behind
    assert log.generation.edits == case["counts"]["remasked"]
    assert list(log.generation.ids) == case["final"]["generated_ids"]
