"""Dream, LLaDA and Fast-dLLM against step-by-step traces of the released programs."""

from __future__ import annotations

from typing import Any

import pytest

from decoders import DecoderConfig
from tests.golden_cases import CONF, Replay, cases_of, check_filled, check_masked, load, replay, sampler_config


def productive(case: dict[str, Any]) -> list[dict[str, Any]]:
    """The reference's steps without the model calls that it makes after a block is complete; we make none."""
    if case["decoder"].startswith("vanilla"):
        return case["steps"]
    return [step for step in case["steps"] if step["commit"]["positions"]]


def check_step(case: dict[str, Any], config: DecoderConfig, run: Replay, i: int, theirs: dict[str, Any]) -> None:
    assert run.generation is not None
    ours, request, prediction = run.generation.steps[i], run.requests[i], run.predictions[i]
    # The reference computes no ranking confidence where it fills unconditionally.
    unconditional = config.first_position == "unconditional" and theirs["forward"] == "full"
    check_masked(run, i, theirs["masked"])
    for position, _token, _prob, *conf in theirs["masked"]:
        if conf and config.confidence and not unconditional:
            told = prediction.measure(config.confidence)[0, position - request.start]
            assert told == pytest.approx(conf[0], abs=CONF)
    check_filled(run, i, theirs["commit"])
    assert ours.masks_left == theirs["masked_left"] or "block" in theirs  # there it counts the current block only
    if "forward_start" in theirs:
        assert request.start == theirs["forward_start"]
        assert request.ids.shape[1] == theirs["forward_len"]
        commit = theirs["kv_commit"]
        assert ours.kept == ((commit["start"], commit["end"]) if commit else None)


@pytest.mark.parametrize(
    "name", cases_of("vanilla_dream", "vanilla_llada", "fastdllm_llada", "fastdllm_llada_factor", "fastdllm_dream")
)
def test_golden_sampler(name: str) -> None:
    case = load(name)
    config = sampler_config(case)
    run = replay(case, config)
    assert run.generation is not None
    steps = productive(case)
    assert run.generation.forwards == len(steps)
    for i, theirs in enumerate(steps):
        check_step(case, config, run, i, theirs)
    assert list(run.generation.ids) == case["final"]["generated_ids"]
