"""The absolute grid on real networks: blocks of one are causal decoding, and packed samples decode as alone."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from decoders import DecoderConfig, Generation, Vocabulary, decode, make_decoder
from lopa_bench.backends.local import LocalBackend, Pending
from lopa_bench.models.config import ModelConfig, Shift
from lopa_bench.models.network.transformer import Transformer
from tests.golden_cases import backend as network

torch.set_num_threads(1)  # the networks are tiny

MASK, END = 62, 63
VOCAB = Vocabulary(MASK, (END,), 64)
PROMPTS = [[3, 17, 21], [40, 2, 9, 9, 61, 5, 33], [1], [7, 12, 30, 8], [5, 6, 7, 8, 9, 10]]
LENGTH = 14


@cache
def qwen3() -> Qwen3ForCausalLM:
    """A random one whose texts are not one token over and over."""
    torch.manual_seed(1)
    settings = Qwen3Config(
        vocab_size=VOCAB.size, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=8, max_position_embeddings=128, tie_word_embeddings=False,
    )  # fmt: skip
    model = Qwen3ForCausalLM(settings).eval().requires_grad_(False)
    for weight in model.parameters():
        if weight.dim() == 2:
            weight.mul_(6)
    return model


@cache
def ours(shift: Shift) -> LocalBackend:
    """The same weights in our network."""
    theirs = qwen3()
    tensors, settings = theirs.state_dict(), theirs.config
    config = ModelConfig(
        vocab_size=VOCAB.size, hidden_size=32, intermediate_size=48, layers=2, heads=4, kv_heads=2, head_dim=8,
        rope_theta=settings.rope_parameters["rope_theta"], rms_eps=settings.rms_norm_eps, qkv_bias=False, qk_norm=True,
        tied=False, shift=shift, mask_id=MASK, end_ids=(END,), pad_id=0, max_positions=128, grid="absolute",
    )  # fmt: skip
    names = {
        "attention_norm": ("input_layernorm",),
        "attention.qkv_proj": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
        "attention.q_norm": ("self_attn.q_norm",),
        "attention.k_norm": ("self_attn.k_norm",),
        "attention.o_proj": ("self_attn.o_proj",),
        "mlp_norm": ("post_attention_layernorm",),
        "mlp.gate_up_proj": ("mlp.gate_proj", "mlp.up_proj"),
        "mlp.down_proj": ("mlp.down_proj",),
    }
    state = {
        "embed.weight": tensors["model.embed_tokens.weight"],
        "norm.weight": tensors["model.norm.weight"],
        "lm_head.weight": tensors["lm_head.weight"],
    }
    for layer in range(2):
        for name, parts in names.items():
            rows = [tensors[f"model.layers.{layer}.{part}.weight"] for part in parts]
            state[f"layers.{layer}.{name}.weight"] = torch.cat(rows)
    network = Transformer(config)
    network.load_state_dict(state)
    return LocalBackend(network.requires_grad_(False))


def causal(prompt: list[int], shift: Shift) -> tuple[int, ...]:
    """Causal decoding by `transformers`: of the next token, or of what a mask in its place stands for."""
    ids = list(prompt)
    for _ in range(LENGTH):
        logits_V = qwen3()(torch.tensor([ids if shift != "none" else [*ids, MASK]])).logits[0, -1]
        logits_V[MASK] = -torch.inf
        ids.append(int(logits_V.argmax()))
    return tuple(ids[len(prompt) :])


def decoded(config: DecoderConfig, shift: Shift, batch: int) -> list[Generation]:
    decoder = make_decoder(config)
    jobs = [Pending(prompt, lambda cached, p=prompt: decode(decoder, p, VOCAB, cached)) for prompt in PROMPTS]
    outcomes = dict(ours(shift).stream(jobs, batch))
    generations = [outcomes[i].generation for i in range(len(jobs))]
    assert all(generations)
    return generations


FULL = ("greedy", "llada", "fast_dllm", "d2f", "d3llm", "dream")
BLOCKWISE = ("sdar", "llada2", "fast_dllm_v2", "multibd")


@pytest.mark.parametrize("shift", ["none", "shifted"])
@pytest.mark.parametrize("name", [name for name in (*FULL, *BLOCKWISE) if name != "dream"])
def test_blocks_of_one_are_causal_decoding(name: str, shift: Shift) -> None:
    if name == "fast_dllm_v2" and shift == "none":
        pytest.skip("it needs shifted logits")
    expected = [causal(prompt, shift) for prompt in PROMPTS]
    assert len({token for ids in expected for token in ids}) > 5  # texts of some variety
    shared: dict[str, Any] = {"block_size": 1, "attention": "block_causal", "grid": "absolute", "decode_tail": True}
    for k in (0, 2):
        chosen = {"name": name} if k == 0 else {"name": "lopa", "base": name, "k": k}
        found = decoded(DecoderConfig(gen_length=LENGTH, **chosen, **shared), shift, batch=1)
        assert [one.ids for one in found] == [ids[: len(one.ids)] for ids, one in zip(expected, found)]
        assert all(len(one.ids) == LENGTH or END in one.ids for one in found)


BLOCKS: dict[str, Any] = {"gen_length": 22, "block_size": 8, "grid": "absolute", "attention": "block_causal"}


@pytest.mark.parametrize(
    "config",
    [
        DecoderConfig(name="sdar", denoising_steps=4, **BLOCKS),
        DecoderConfig(name="sdar", fill="static", store="merged", **BLOCKS),
        DecoderConfig(base="sdar", k=3, **BLOCKS),
        DecoderConfig(base="sdar", k=4, store="merged", tau_conf=0.3, **BLOCKS),
        DecoderConfig(base="llada2", k=2, tau_conf=0.3, **BLOCKS),
        DecoderConfig(name="fast_dllm_v2", sub_block_size=4, **BLOCKS),
        DecoderConfig(name="fast_dllm_v2", sub_block_size=4, cache="sub_block", **BLOCKS),
        DecoderConfig(base="fast_dllm_v2", k=3, sub_block_size=4, cache="sub_block", **BLOCKS),
        DecoderConfig(base="d2f", k=3, **BLOCKS),
        DecoderConfig(base="multibd", k=3, buffer_size=2, tau_conf=0.3, **BLOCKS),
        DecoderConfig(name="greedy", **BLOCKS),
    ],
    ids=lambda config: f"{config.name}-{config.base}-{config.k}",
)
def test_packed_samples_decode_as_alone(config: DecoderConfig) -> None:
    alone = decoded(config, "in_block", batch=1)
    for batch in (2, 5):
        packed = decoded(config, "in_block", batch)
        for one, expected in zip(packed, alone):
            assert one.ids == expected.ids
            assert [step.positions for step in one.steps] == [step.positions for step in expected.steps]


@pytest.mark.parametrize("model", ["dream_a", "llada_a", "sdar_a", "sdar_moe_a", "fdv2_b", "llada2_a", "llada_moe_a"])
def test_every_family_decodes_with_every_decoder_that_it_allows_also_packed_together(model: str) -> None:
    """With lookahead and without, all decoders in the same calls: the ids are those of each alone."""
    local = network(model)
    config = local.config
    vocab = Vocabulary(config.mask_id, config.end_ids, config.vocab_size)
    absolute = config.grid == "absolute"
    names = [name for name in (*FULL, *BLOCKWISE) if (config.shifted or name != "fast_dllm_v2")]
    jobs = []
    for number, name in enumerate(name for name in names if not (absolute and name == "dream")):
        shared: dict[str, Any] = {"gen_length": 11, "grid": config.grid}
        shared |= {"block_size": 4} if name != "dream" else {}
        shared |= {"attention": "block_causal"} if absolute or name in BLOCKWISE else {}
        for k, select in ((0, None), (2, None), (2, "exact")):
            decoder = make_decoder(DecoderConfig(base=name, k=k, select=select, **shared))
            prompt = PROMPTS[number % len(PROMPTS)]
            jobs.append(Pending(prompt, lambda cached, d=decoder, p=prompt: decode(d, p, vocab, cached)))
    alone, packed = (dict(local.stream(jobs, batch)) for batch in (1, 8))
    for i in range(len(jobs)):
        one, other = alone[i].generation, packed[i].generation
        assert one is not None
        assert other is not None
        assert one.ids == other.ids
        assert [step.positions for step in one.steps] == [step.positions for step in other.steps]
        if i % 3 == 2:  # exact lookahead
            assert one.ids == alone[i - 2].generation.ids
