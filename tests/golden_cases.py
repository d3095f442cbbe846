"""Traces of the reference implementations: how a case maps onto our settings, and how it is replayed.

The traces come from running the released programs on tiny random checkpoints (tests/golden/README.md).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from decoders import DecoderConfig, Generation, Prediction, Request, ScoreConfig, Vocabulary, decode, make_decoder
from decoders.types import Decode
from lopa_bench.backends.local import LocalBackend
from lopa_bench.models.checkpoint.loader import load_model

torch.set_num_threads(1)  # the networks are tiny

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "tests" / "golden"
PROB, CONF = 2e-5, 1e-4  # tolerances of the traces' README

# What the released programs do and we do not by default.
RELEASED: dict[str, Any] = {"decode_tail": True, "mask_logit": "keep"}
CONFIDENCE = {"default": "prob", "margin": "margin", "neg_entropy": "neg_entropy"}


def case_files() -> dict[str, Path]:
    """All cases by id."""
    return {path.stem: path for path in sorted((FOLDER / "cases").glob("*.json"))}


def cases_of(*decoders: str) -> list[str]:
    return [name for name in case_files() if name.rsplit("_", 1)[0] in decoders]


def load(name: str) -> dict[str, Any]:
    return json.loads(case_files()[name].read_text())


@cache
def backend(model: str) -> LocalBackend:
    return LocalBackend(load_model(FOLDER / "models" / model, torch.float32, torch.device("cpu")), max_length=256)


def vocabulary(case: dict[str, Any]) -> Vocabulary:
    eos = case["eos_token_id"]
    return Vocabulary(case["mask_token_id"], () if eos is None else (eos,), backend(case["model"]).config.vocab_size)


def pipeline_config(case: dict[str, Any]) -> DecoderConfig:
    """Settings of the D2F and LoPA cases."""
    p, decoder = case["params"], case["decoder"]
    block = p["block_size"]
    confidence = CONFIDENCE[p["sampling_strategy"]]
    shared: dict[str, Any] = {
        "gen_length": p["max_new_tokens"] // block * block,
        "block_size": block,
        "tau_add": p["block_add_threshold"],
        "tau_act": p["decoded_token_threshold"],
        "tau_conf": p["skip_threshold"],
        "confidence": confidence,
        "attention": "full" if p.get("use_full_attention") else "block_causal",
        **RELEASED,
    }
    if decoder not in ("lopa", "lopa_dist"):
        return DecoderConfig(name="d2f", **shared)
    b = p["branching_factor"]
    k = b - 1 if decoder == "lopa_dist" else (b if b > 1 else 0)
    score = ScoreConfig(bottom=p["branch_topp"], creation_weight=p["selection_conf_alpha"])
    return DecoderConfig(
        name="lopa", base="d2f", k=k, fill_confidence=confidence, complete="verify", score=score, **shared
    )


def sampler_config(case: dict[str, Any]) -> DecoderConfig:
    """Settings of the Dream, LLaDA and Fast-dLLM cases."""
    p, decoder = case["params"], case["decoder"]
    length = p.get("gen_length") or p["max_new_tokens"]
    shared: dict[str, Any] = {"gen_length": length, **RELEASED}
    if decoder == "vanilla_dream":
        confidence = {"maskgit_plus": "prob", "topk_margin": "margin", "entropy": "neg_entropy", "origin": "prob"}[
            p["alg"]
        ]
        fill = "origin" if p["alg"] == "origin" else "schedule"
        return DecoderConfig(
            name="dream", fill=fill, steps=p["steps"], confidence=confidence, empty_steps="run", **shared
        )
    if decoder == "fastdllm_dream" and p["variant"] == "nocache":
        return DecoderConfig(name="dream", fill="budget", steps=p["steps"], tau_conf=p["threshold"], **shared)
    shared["block_size"] = p["block_length"]
    if decoder == "vanilla_llada":
        return DecoderConfig(name="llada", steps=p["steps"], **shared)
    shared |= {"name": "fast_dllm", "cache": {"nocache": "none"}.get(p["variant"], p["variant"].removesuffix("_cache"))}
    if decoder == "fastdllm_dream":
        shared["first_position"] = "unconditional"
        if p["alg"] != "confidence_threshold":
            return DecoderConfig(fill="schedule", steps=p["steps"], confidence="neg_entropy", **shared)
        return DecoderConfig(fill="threshold", tau_conf=p["threshold"], **shared)
    if p["factor"] is not None:
        return DecoderConfig(fill="factor_released", factor=p["factor"], **shared)
    if p["threshold"] is not None:
        return DecoderConfig(fill="threshold", tau_conf=p["threshold"], **shared)
    return DecoderConfig(fill="quota", steps=p["steps"], **shared)


def block_config(case: dict[str, Any]) -> DecoderConfig:
    """Settings of the SDAR and Fast-dLLM v2 cases. The references decode whole blocks of the grid."""
    p, prompt = case["params"], case["prompt_length"]
    shared: dict[str, Any] = {"grid": "absolute", "decode_tail": True, "mask_logit": "keep"}
    if case["decoder"] == "sdar":
        block = shared["block_size"] = p["block_length"]
        fill = p["strategy"].removeprefix("low_confidence_")
        shared |= {"tau_conf": p["threshold"]} if fill == "dynamic" else {}
        length = -(-(prompt + p["gen_length"]) // block) * block - prompt
        return DecoderConfig(name="sdar", fill=fill, gen_length=length, denoising_steps=p["denoising_steps"], **shared)
    block = p["block_size"]
    length = p["max_new_tokens"] // block * block - prompt % block + 1  # what its last commit forward says as well
    return DecoderConfig(
        name="fast_dllm_v2", gen_length=length, block_size=block, sub_block_size=p["small_block_size"],
        tau_conf=p["threshold"], cache="sub_block" if p["use_block_cache"] else "exact", **shared,
    )  # fmt: skip


def set_config(case: dict[str, Any]) -> DecoderConfig:
    """Settings of the rules that bound how many masks are filled, and of KLASS."""
    p, decoder = case["params"], case["decoder"]
    length = p.get("gen_length") or p["max_new_tokens"]
    shared: dict[str, Any] = {"gen_length": length, "block_size": p.get("block_length", length), **RELEASED}
    shared["cache"] = {"nocache": "none"}.get(p.get("variant", "nocache"), p.get("variant", "").removesuffix("_cache"))
    if decoder == "eb":
        stops = p["stop_until_eos"]
        behind = {"behind_end": "wait", "decode_tail": False} if stops else {}
        return DecoderConfig(name="eb", gamma=p["gamma"], **{**shared, **behind})
    if decoder == "frechet":
        first = "unconditional" if "max_new_tokens" in p else "rule"
        return DecoderConfig(name="frechet", delta=p["frechet_margin"], first_position=first, **shared)
    if decoder == "klass":
        shared |= {"tau_conf": p["conf_threshold"], "tau_kl": p["kl_threshold"], "kl_steps": p["kl_history_length"]}
        return DecoderConfig(name="klass", steps=p["steps"], **shared)
    return DecoderConfig(name="entropy", tau_entropy=p["threshold"], **shared)


@dataclass
class Replay:
    """What happened when a case was run with our decoder."""

    requests: list[Request] = field(default_factory=list)
    predictions: list[Prediction] = field(default_factory=list)
    generation: Generation | None = None
    mask_id: int | None = None


def spy(steps: Decode, replay: Replay) -> Decode:
    """Passes a decode through and notes what it asks and is told."""
    request = next(steps)
    while True:
        replay.requests.append(request)
        prediction = yield request
        replay.predictions.append(prediction)
        try:
            request = steps.send(prediction)
        except StopIteration as stop:
            return stop.value


def recorded_uniform(case: dict[str, Any]) -> Callable[[int], np.ndarray] | None:
    """The random numbers that the reference drew, in its order."""
    if "uniform" not in case["steps"][0]:
        return None
    draws = iter([step["uniform"] for step in case["steps"] if step.get("uniform")])
    return lambda n: np.array(next(draws))


def replay(case: dict[str, Any], config: DecoderConfig) -> Replay:
    """Runs a case's prompt through our decoder and network."""
    log, decoder, vocab = Replay(mask_id=case["mask_token_id"]), make_decoder(config), vocabulary(case)
    local = backend(case["model"])
    cache = local.new_cache()
    cached = case["params"].get("prefix_length", 0)
    if cached:  # the cache still holds the first positions of an earlier request
        local.decode(decode(decoder, case["prefix_reuse"]["previous_prompt_ids"], vocab), cache)
    steps = decode(decoder, case["prompt_ids"], vocab, cached, uniform=recorded_uniform(case))
    outcome = local.decode(spy(steps, log), cache)
    assert outcome.generation is not None, outcome.error
    log.generation = outcome.generation
    return log


def check_masked(log: Replay, i: int, masked: Sequence[Any], row: int = 0) -> None:
    """In call i the network said of these masks (position, token, probability, ...) what the trace has."""
    request, prediction = log.requests[i], log.predictions[i]
    for position, token, prob, *_ in masked:
        at = (row, position - request.start)
        assert prediction.token[at] == token, (i, row, position)
        assert prediction.prob[at] == pytest.approx(prob, abs=PROB)


def check_filled(log: Replay, i: int, commit: dict[str, Any]) -> None:
    """Call i filled what the trace's filled, in whatever order."""
    assert log.generation is not None
    ours = log.generation.steps[i]
    assert dict(zip(ours.positions, ours.tokens, strict=True)) == dict(
        zip(commit["positions"], commit["tokens"], strict=True)
    ), i
