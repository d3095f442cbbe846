"""Settings of decoders: each is read, or refused by name with what is allowed; nothing is taken in silence."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np
import pytest

from decoders import BASES, DecoderConfig, DecoderError, ScoreConfig, make_decoder, resolve_settings
from decoders.config import settings

WRONG: list[tuple[dict[str, Any], str]] = [
    ({"name": "nope"}, f"decoder=nope is unknown; allowed: {', '.join(BASES)}, lopa, ar, served"),
    ({"name": None}, "decoder.name=null is not allowed; allowed: text"),
    ({"name": "d\n2f"}, r"decoder='d\n2f' is unknown"),
    ({"base": "nope"}, "decoder.base=nope is unknown; allowed: greedy, llada, dream, fast_dllm, d2f"),
    ({"name": "greedy", "base": "d2f"}, "decoder.base=d2f has no meaning for decoder=greedy; only lopa has a base"),
    ({"k": -1}, "decoder.k=-1 is not allowed; allowed: an integer from 0 to 1024"),
    ({"k": 1025}, "decoder.k=1025 is not allowed; allowed: an integer from 0 to 1024"),
    ({"k": "two"}, "decoder.k=two is not allowed; allowed: an integer from 0 to 1024, or auto"),
    ({"k": 1.5}, "decoder.k=1.5 is not allowed; allowed: an integer from 0 to 1024, or auto"),
    ({"k": True}, "decoder.k=True is not allowed; allowed: an integer from 0 to 1024, or auto"),
    ({"k": None}, "decoder.k=null is not allowed"),
    ({"gen_length": 0}, "decoder.gen_length=0 is not allowed; allowed: an integer from 1 to 65536"),
    ({"gen_length": 4.0}, "decoder.gen_length=4.0 is not allowed; allowed: an integer from 1 to 65536"),
    ({"gen_length": None}, "decoder.gen_length=null is not allowed"),
    ({"block_size": 0}, "decoder.block_size=0"),
    ({"block_size": "8"}, "decoder.block_size=8 is not allowed; allowed: an integer from 1 to 65536"),
    ({"tau_conf": 1.5}, "decoder.tau_conf=1.5 is not allowed; allowed: a finite number from 0 to 1"),
    ({"tau_conf": float("nan")}, "decoder.tau_conf=nan is not allowed; allowed: a finite number from 0 to 1"),
    ({"tau_conf": "0.9"}, "decoder.tau_conf=0.9 is not allowed; allowed: a finite number from 0 to 1"),
    ({"tau_act": 0}, "decoder.tau_act=0 is not allowed; allowed: a finite number above 0 to 1"),
    ({"tau_act": []}, "decoder.tau_act=[] is not allowed; allowed: a finite number above 0 to 1"),
    ({"temperature": float("inf")}, "decoder.temperature=inf is not allowed; allowed: a finite number from 0 to 100"),
    ({"temperature": -0.1}, "decoder.temperature=-0.1 is not allowed"),
    ({"top_p": 0}, "decoder.top_p=0 is not allowed; allowed: a finite number above 0 to 1"),
    ({"top_p": None}, "decoder.top_p=null is not allowed"),
    ({"top_k": 0}, "decoder.top_k=0 is not allowed; allowed: an integer from 1"),
    ({"cfg_scale": -1}, "decoder.cfg_scale=-1 is not allowed; allowed: a finite number from 0 to 100"),
    ({"cfg_scale": 1.0}, "decoder.cfg_scale=1 is not supported by decoder.cache=exact: the text without"),
    ({"logits_eos_inf": 1}, "decoder.logits_eos_inf=1 is not allowed; allowed: true or false"),
    ({"eos_penalty": 3}, "time by which it fades; allowed: 0, or decoder=dream, or fast_dllm with fill=schedule"),
    ({"name": "dream", "eos_penalty": -0.5}, "decoder.eos_penalty=-0.5 is not allowed; allowed: a finite number"),
    ({"name": "dream", "eos_penalty": "3"}, "decoder.eos_penalty=3 is not allowed; allowed: a finite number from 0"),
    ({"name": "dream", "eos_penalty": None}, "decoder.eos_penalty=null is not allowed"),
    ({"name": "dream", "fill": "origin", "eos_penalty": 3}, "allowed: 0, or decoder.fill=schedule"),
    ({"name": "dream", "eos_penalty": 3, "logits_eos_inf": True}, "allowed: 0, or decoder.logits_eos_inf=false"),
    (
        {"name": "fast_dllm", "fill": "schedule", "first_position": "unconditional", "eos_penalty": 3},
        "decoder.eos_penalty=3 is not supported by decoder.first_position=unconditional",
    ),
    ({"name": "ar", "eos_penalty": 3}, "decoder.eos_penalty=3 has no meaning for decoder=ar"),
    ({"alg_temp": 0.5}, "decoder.alg_temp=0.5 has no meaning for decoder.base=d2f"),
    ({"name": "dream", "fill": "origin", "alg_temp": 0.5}, "allowed: decoder.fill=schedule"),
    ({"confidence_eos_eot_inf": True}, "decoder.confidence_eos_eot_inf=True has no meaning for decoder.base=d2f"),
    ({"name": "fast_dllm", "confidence_eos_eot_inf": True}, "allowed: decoder.fill=quota, which read it"),
    (
        {"name": "llada", "confidence": "margin", "confidence_eos_eot_inf": True},
        "decoder.confidence_eos_eot_inf=true has no meaning for positions that are ranked by margin; allowed: prob",
    ),
    ({"name": "ar", "top_p": 0.9}, "decoder.top_p=0.9 has no meaning for decoder=ar; allowed: gen_length, k, temper"),
    ({"decode_tail": "yes"}, "decoder.decode_tail=yes is not allowed; allowed: true or false"),
    ({"mask_logit": None}, "decoder.mask_logit=null is not allowed; allowed: exclude, keep"),
    ({"attention": "causal"}, "decoder.attention=causal is not allowed; allowed: full, block_causal"),
    ({"confidence": "entropy"}, "allowed: prob, margin, neg_entropy"),
    ({"fill": "quota"}, "decoder.fill=quota is not supported by d2f; allowed: threshold"),
    ({"fill": 5}, "decoder.fill=5 is not allowed; allowed: text"),
    ({"cache": "dual"}, "decoder.cache=dual is not supported by d2f; allowed: exact, none"),
    ({"name": "eb", "gamma": -0.1}, "decoder.gamma=-0.1 is not allowed; allowed: a finite number from 0 to 1000000"),
    ({"name": "frechet", "delta": 1.5}, "decoder.delta=1.5 is not allowed; allowed: a finite number from -65536 to 1"),
    ({"name": "entropy", "tau_entropy": "low"}, "decoder.tau_entropy=low is not allowed; allowed: a finite number"),
    ({"name": "klass", "kl_steps": 0}, "decoder.kl_steps=0 is not allowed; allowed: an integer from 1 to 65536"),
    ({"name": "klass", "tau_kl": -1}, "decoder.tau_kl=-1 is not allowed; allowed: a finite number from 0 to 1000000"),
    ({"base": "klass", "k": 2, "select": "exact"}, "decoder.select=exact is not supported by decoder.fill=stable: it"),
    ({"base": "klass", "k": "auto"}, "decoder.k=auto is not supported by decoder.fill=stable: it compares a forward"),
    ({"name": "eb", "behind_end": "stop"}, "decoder.behind_end=stop is not allowed; allowed: fill, wait, or null"),
    ({"name": "eb", "first_position": "unconditional"}, "decoder.first_position=unconditional has no meaning for"),
    ({"name": "fast_dllm", "cache": "exact"}, "decoder.cache=exact needs decoder.attention=block_causal"),
    ({"name": "fast_dllm", "cache": "dual", "attention": "block_causal"}, "needs decoder.attention=full; allowed with"),
    ({"name": "llada", "gen_length": 8, "block_size": 4, "steps": 5}, "multiples of the 2 blocks"),
    ({"name": "dream", "fill": "budget", "gen_length": 8, "steps": 3}, "divisors of gen_length=8"),
    ({"score": ScoreConfig(window=3, bottom=0.5)}, "exclude each other; allowed: one of them"),
    ({"score": {"kind": "mean"}}, "decoder.score={'kind': 'mean'} is not allowed; allowed: kind, target, bottom,"),
    ({"score": ScoreConfig(kind="median")}, "decoder.score.kind=median is not allowed; allowed: mean, mixed"),
    ({"score": ScoreConfig(bottom=0)}, "decoder.score.bottom=0 is not allowed; allowed: a finite number above 0 to 1"),
    ({"score": ScoreConfig(window=2.5)}, "decoder.score.window=2.5 is not allowed; allowed: an integer from 1"),
]  # fmt: skip

# What no choice of the decoder reads, and what another choice would read.
UNREAD: list[tuple[dict[str, Any], str]] = [
    ({"name": "greedy", "tau_conf": 0.5}, "decoder.tau_conf=0.5 has no meaning for decoder=greedy; allowed: null; "),
    ({"name": "dream", "block_size": 8}, "decoder.block_size=8 has no meaning for decoder=dream"),
    ({"name": "eb", "delta": 0.1}, "decoder.delta=0.1 has no meaning for decoder=eb; allowed: null; its settings: "),
    ({"name": "entropy", "tau_conf": 0.5}, "decoder.tau_conf=0.5 has no meaning for decoder=entropy"),
    ({"base": "frechet", "gamma": 0.5}, "decoder.gamma=0.5 has no meaning for decoder.base=frechet"),
    ({"base": "dream", "block_size": 8}, "decoder.block_size=8 has no meaning for decoder.base=dream; allowed: null; "),
    ({"name": "wino", "confidence": "margin"}, "decoder.confidence=margin has no meaning for decoder=wino; allowed"),
    ({"name": "klass", "confidence": "margin"}, "decoder.confidence=margin has no meaning for decoder=klass"),
    ({"base": "frechet", "fill_confidence": "margin"}, "decoder.fill_confidence=margin has no meaning for"),
    ({"name": "greedy", "tau_add": 0.5}, "decoder.tau_add=0.5 has no meaning for decoder=greedy"),
    ({"name": "d2f", "complete": "verify"}, "decoder.complete=verify has no meaning for decoder=d2f"),
    ({"name": "d2f", "floor": 0.3}, "decoder.floor=0.3 has no meaning for decoder=d2f"),
    ({"name": "d2f", "fill_confidence": "margin"}, "decoder.fill_confidence=margin has no meaning for decoder=d2f"),
    ({"name": "d2f", "score": ScoreConfig(bottom=0.5)}, "decoder.score.bottom=0.5 has no meaning for decoder=d2f"),
    ({"name": "d2f", "score": ScoreConfig(target="a:b")}, "decoder.score.target=a:b "),
    ({"name": "ar", "tau_conf": 0.5}, "decoder.tau_conf=0.5 has no meaning for decoder=ar; allowed: gen_length, k"),
    ({"name": "ar", "own": {"a": 1}}, "decoder.own.a=1 has no meaning for decoder=ar"),
    ({"name": "d2f", "own": {"a": 1}}, "decoder.own.a=1 has no meaning for decoder=d2f"),
    ({"name": "fast_dllm", "factor": 0.5},
     "decoder.factor=0.5 has no meaning with decoder.fill=threshold; allowed: decoder.fill=factor or factor_released"),
    ({"name": "fast_dllm", "steps": 8}, "allowed: decoder.fill=quota or schedule, which read it"),
    ({"name": "fast_dllm", "fill": "quota", "tau_conf": 0.5}, "decoder.tau_conf=0.5 has no meaning with decoder.fill"),
    ({"name": "fast_dllm", "fill": "factor", "forced": "global"}, "allowed: decoder.fill=threshold, which read it"),
    ({"name": "fast_dllm", "fill": "quota", "empty_steps": "run"}, "allowed: decoder.fill=schedule, which read it"),
    ({"name": "fast_dllm", "fill": "factor", "confidence": "margin"}, "decoder.confidence=margin has no meaning with"),
    ({"base": "fast_dllm", "fill": "factor", "fill_confidence": "margin"}, "decoder.fill_confidence=margin has no"),
    ({"name": "fast_dllm", "fill": "quota", "first_position": "unconditional"},
     "decoder.fill=quota is not supported by first_position=unconditional; allowed: threshold, factor"),
    ({"name": "dream", "tau_conf": 0.5}, "decoder.tau_conf=0.5 has no meaning with decoder.fill=schedule"),
    ({"name": "dream", "fill": "budget", "empty_steps": "run"}, "decoder.fill=schedule or origin, which read it"),
    ({"k": 2, "score": ScoreConfig(alpha=0.3)},
     "decoder.score.alpha=0.3 has no meaning with decoder.score.kind=mean; allowed: decoder.score.kind=mixed"),
    ({"k": 2, "score": ScoreConfig(kind="mixed", bottom=0.5)}, "allowed: decoder.score.kind=mean, which reads it"),
    ({"k": 2, "score": ScoreConfig(kind="next_fill", creation_weight=0.5)}, "allowed: decoder.score.kind=mean, which"),
    ({"k": "auto", "floor": 0.3}, "decoder.floor=0.3 has no meaning with decoder.k=auto"),
    ({"k": "auto", "temperature": 0.5}, "decoder.temperature=0.5 is not supported by decoder.select=confirm: what"),
    ({"k": "auto", "select": "exact"}, "decoder.select=exact has no meaning with decoder.k=auto, which is decoder"),
    ({"k": 2, "select": "best"}, "decoder.select=best is not allowed; allowed: score, gate, confirm, exact, or null"),
    ({"k": 2, "select": "exact", "confirm": 0.5}, "with decoder.select=exact; allowed: decoder.select=confirm, which"),
    ({"k": 2, "confirm": 0.5}, "decoder.confirm=0.5 has no meaning with decoder.select=score; allowed: decoder.sele"),
    ({"k": 2, "gate": 0.3}, "decoder.gate=0.3 has no meaning with decoder.select=score; allowed: decoder.select=gate"),
    ({"k": 2, "select": "gate", "complete": "verify"}, "decoder.complete=verify has no meaning with decoder.select="),
    ({"k": 2, "select": "exact", "floor": 0.3}, "allowed: decoder.select=score or gate, which read it"),
    ({"k": 2, "select": "exact", "confidence": "margin"}, "decoder.confidence=margin has no meaning with decoder.sel"),
    ({"k": 2, "select": "exact", "score": ScoreConfig(kind="mixed")}, "decoder.score.kind=mixed has no meaning with"),
    ({"k": 2, "select": "confirm", "score": ScoreConfig(bottom=0.5)}, "allowed: decoder.select=score, which reads it"),
    ({"k": 2, "select": "confirm", "confirm": "x"}, "decoder.confirm=x is not allowed; allowed: a finite number"),
    ({"k": 2, "select": "confirm", "confirm_best": True}, "confirm_best=true has no meaning without decoder.confirm"),
    ({"k": 2, "select": "confirm", "confirm_best": 1}, "decoder.confirm_best=1 is not allowed; allowed: true or false"),
    ({"k": 2, "select": "exact", "temperature": 0.5}, "decoder.temperature=0.5 is not supported by decoder.select="),
    ({"base": "dream", "k": 2, "select": "exact", "empty_steps": "run"}, "decoder.empty_steps=run is not supported by"),
    ({"name": "d2f", "select": "exact"}, "decoder.select=exact has no meaning for decoder=d2f"),
    ({"name": "wino", "temperature": 0.5}, "decoder.temperature=0.5 is not supported by decoder.fill=wino"),
    ({"name": "saber", "cache": "dual"}, "decoder.cache=dual is not supported by saber; allowed: none"),
    ({"name": "joint_threshold", "attention": "full"}, "allowed: block_causal"),
    ({"name": "lopa", "base": "wino", "k": 2}, "what its own forward before has filled; allowed: 0"),
    ({"name": "lopa", "base": "saber", "k": "auto"}, "since its own forward before; allowed: 0"),
    ({"name": "lopa", "base": "joint_threshold", "k": 2, "select": "exact"}, "decoder.select=exact is not supported"),
    ({"name": "lopa", "base": "joint_threshold", "k": "auto"}, "decoder.k=auto is not supported"),
    ({"name": "fast_dllm", "tau_run": 0.3}, "allowed: decoder.fill=hierarchy, which read it"),
    ({"name": "joint_threshold", "tau_edit": 1.5}, "decoder.tau_edit=1.5 is not allowed"),
    ({"name": "joint_threshold", "tau_back": 0.5}, "decoder.tau_back=0.5 has no meaning"),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "message"), WRONG + UNREAD)
def test_a_setting_is_refused_in_one_line_with_what_is_allowed(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(DecoderError) as caught:
        resolve_settings(DecoderConfig(**changes))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_long_value_is_cut_in_the_message() -> None:
    with pytest.raises(DecoderError) as caught:
        make_decoder(DecoderConfig(attention="x" * 5000))
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "fast_dllm", "fill": "quota", "tau_conf": 0.9, "factor": 1.0, "forced": "per_block"},
        {"name": "fast_dllm", "fill": "factor", "confidence": "prob"},
        {"name": "dream", "fill": "origin", "confidence": "prob"},
        {"name": "dream", "fill": "budget", "confidence": "neg_entropy", "empty_steps": "skip"},
        {"k": 2, "score": ScoreConfig(kind="mixed", bottom=1.0, creation_weight=0.0)},
        {"k": 0, "floor": 0.5, "complete": "verify", "score": ScoreConfig(kind="mixed", bottom=0.5)},
    ],
)
def test_a_default_may_be_written_out_and_a_sweep_may_begin_with_k_0(changes: dict[str, Any]) -> None:
    """A file that names every setting stays right when its rule is changed."""
    make_decoder(DecoderConfig(**changes))


def test_numbers_of_numpy_are_numbers() -> None:
    config = DecoderConfig(k=np.int64(2), gen_length=np.int32(4), tau_conf=np.float32(0.5))
    assert make_decoder(config).config.k == 2


@pytest.mark.parametrize("name", [*BASES, "lopa", *(f"lopa:{base}" for base in BASES)])
def test_resolved_settings_resolve_to_themselves(name: str) -> None:
    """What a run recorded can be run again as it stands."""
    decoder, _, base = name.partition(":")
    rules = list(BASES[base].fills.values()) if base else []
    if any(rule.alone for rule in rules):
        return  # no k to be resolved
    drafts = (
        []
        if base == "klass" or any(rule.edits for rule in rules)
        else [{"k": 3, "select": "confirm"}, {"k": 3, "select": "exact"}, {"k": "auto"}]
    )
    selects = [{"k": 3, "select": "gate"}, *drafts] if decoder == "lopa" else [{"k": "auto"}]
    for changes in ({}, {"attention": "block_causal"}, {"k": 3}, *selects):
        once = make_decoder(DecoderConfig(name=decoder, base=base or None, gen_length=48, **changes)).config
        assert make_decoder(once).config == once


@pytest.mark.parametrize("base", BASES)
def test_nothing_that_is_read_is_left_open(base: str) -> None:
    decoder = make_decoder(DecoderConfig(name=base, gen_length=48))
    values = settings(decoder.config)
    assert all(values[name] is not None for name in {**(decoder.rule.reads or {}), **decoder.window.reads})


def test_resolving_changes_no_setting_of_its_caller() -> None:
    config = DecoderConfig(base="llada", k=2, gen_length=20, block_size=10)
    before = asdict(config)
    make_decoder(config)
    assert asdict(config) == before


@pytest.mark.parametrize("base", [name for name, base in BASES.items() if "full" in base.window.caches])
def test_the_cache_follows_the_attention_unless_it_is_set(base: str) -> None:
    """Exact where finished blocks never change; D2F keeps them under full attention too, frozen."""
    caches = {
        attention: make_decoder(DecoderConfig(name=base, gen_length=8, attention=attention)).config.cache
        for attention in ("full", "block_causal")
    }
    expected = {"dream": ("none",) * 2, "saber": ("none",) * 2, "d2f": ("exact", "exact")}.get(base, ("none", "exact"))
    assert tuple(caches.values()) == expected
