"""Published checkpoint layouts: their config.json and parameter names, mapped onto `Transformer`.

Dream and DiffuCoder are Qwen2-like (QKV bias, logits shifted by one); LLaDA is LLaMA-like (no bias, no shift).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lopa_bench.models.config import ModelConfig
from lopa_bench.models.errors import CheckpointError


@dataclass(frozen=True)
class Layout:
    """Names of one family. `layer` maps our name inside a layer to the published one or, for fused matrices, to the
    published parts in order; `outer` does the same outside the layers; `{i}` is the layer's number.
    """

    name: str
    model_types: tuple[str, ...]
    config: Callable[[Mapping[str, Any]], ModelConfig]
    prefix: str
    layer: Mapping[str, tuple[str, ...]]
    outer: Mapping[str, str]
    head: str

    def published(self, config: ModelConfig) -> dict[str, tuple[str, ...]]:
        """Our parameter name -> published names whose rows, one below the other, make it."""
        names: dict[str, tuple[str, ...]] = {ours: (theirs,) for ours, theirs in self.outer.items()}
        if not config.tied:
            names["lm_head.weight"] = (self.head,)
        for i in range(config.layers):
            for ours, theirs in self.layer.items():
                if ours.endswith(".bias") and not config.qkv_bias:
                    continue
                names[f"layers.{i}.{ours}"] = tuple(self.prefix.format(i=i) + name for name in theirs)
        return names


def _end_ids(raw: Mapping[str, Any]) -> tuple[int, ...]:
    eos = raw.get("eos_token_id")
    if eos is None:
        return ()
    return tuple(eos) if isinstance(eos, (list, tuple)) else (int(eos),)


def _dream_config(raw: Mapping[str, Any]) -> ModelConfig:
    heads = raw["num_attention_heads"]
    return ModelConfig(
        vocab_size=raw["vocab_size"],
        hidden_size=raw["hidden_size"],
        intermediate_size=raw["intermediate_size"],
        layers=raw["num_hidden_layers"],
        heads=heads,
        kv_heads=raw.get("num_key_value_heads", heads),
        head_dim=raw.get("head_dim") or raw["hidden_size"] // heads,
        rope_theta=float(raw.get("rope_theta", 10000.0)),
        rms_eps=raw.get("rms_norm_eps", 1e-6),
        qkv_bias=True,
        qk_norm=False,
        tied=bool(raw.get("tie_word_embeddings", False)),
        shifted=True,
        mask_id=raw["mask_token_id"],
        end_ids=_end_ids(raw),
        pad_id=raw.get("pad_token_id") or 0,
        bos_id=raw.get("bos_token_id"),
        max_positions=raw.get("max_position_embeddings", 2048),
        block_size=raw.get("block_size"),
    )


def _llada_config(raw: Mapping[str, Any]) -> ModelConfig:
    heads = raw["n_heads"]
    return ModelConfig(
        vocab_size=raw.get("embedding_size") or raw["vocab_size"],
        hidden_size=raw["d_model"],
        intermediate_size=raw["mlp_hidden_size"],
        layers=raw["n_layers"],
        heads=heads,
        kv_heads=raw.get("n_kv_heads") or heads,
        head_dim=raw["d_model"] // heads,
        rope_theta=float(raw.get("rope_theta", 10000.0)),
        rms_eps=raw.get("rms_norm_eps", 1e-5),
        qkv_bias=bool(raw.get("include_qkv_bias", False)),
        qk_norm=False,
        tied=bool(raw.get("weight_tying", False)),
        shifted=False,
        mask_id=raw["mask_token_id"],
        end_ids=_end_ids(raw),
        pad_id=raw.get("pad_token_id") or 0,
        bos_id=raw.get("bos_token_id"),
        max_positions=raw.get("max_sequence_length", 4096),
    )


DREAM = Layout(
    name="dream",
    model_types=("Dream", "dream"),
    config=_dream_config,
    prefix="model.layers.{i}.",
    layer={
        "attention_norm.weight": ("input_layernorm.weight",),
        "attention.qkv_proj.weight": ("self_attn.q_proj.weight", "self_attn.k_proj.weight", "self_attn.v_proj.weight"),
        "attention.qkv_proj.bias": ("self_attn.q_proj.bias", "self_attn.k_proj.bias", "self_attn.v_proj.bias"),
        "attention.o_proj.weight": ("self_attn.o_proj.weight",),
        "mlp_norm.weight": ("post_attention_layernorm.weight",),
        "mlp.gate_up_proj.weight": ("mlp.gate_proj.weight", "mlp.up_proj.weight"),
        "mlp.down_proj.weight": ("mlp.down_proj.weight",),
    },
    outer={"embed.weight": "model.embed_tokens.weight", "norm.weight": "model.norm.weight"},
    head="lm_head.weight",
)

LLADA = Layout(
    name="llada",
    model_types=("llada",),
    config=_llada_config,
    prefix="model.transformer.blocks.{i}.",
    layer={
        "attention_norm.weight": ("attn_norm.weight",),
        "attention.qkv_proj.weight": ("q_proj.weight", "k_proj.weight", "v_proj.weight"),
        "attention.qkv_proj.bias": ("q_proj.bias", "k_proj.bias", "v_proj.bias"),
        "attention.o_proj.weight": ("attn_out.weight",),
        "mlp_norm.weight": ("ff_norm.weight",),
        "mlp.gate_up_proj.weight": ("ff_proj.weight", "up_proj.weight"),
        "mlp.down_proj.weight": ("ff_out.weight",),
    },
    outer={"embed.weight": "model.transformer.wte.weight", "norm.weight": "model.transformer.ln_f.weight"},
    head="model.transformer.ff_out.weight",
)

LAYOUTS: dict[str, Layout] = {layout.name: layout for layout in (DREAM, LLADA)}


def layout_for(model_type: str, where: str) -> Layout:
    """The layout of a config.json's model_type. Raises CheckpointError."""
    for layout in LAYOUTS.values():
        if model_type in layout.model_types:
            return layout
    known = ", ".join(name for layout in LAYOUTS.values() for name in layout.model_types)
    raise CheckpointError(f"{where}: model_type {model_type!r} is not supported; supported: {known}")


def gather(
    layout: Layout, config: ModelConfig, tensors: Mapping[str, Tensor], shapes: Mapping[str, torch.Size], where: str
) -> dict[str, Tensor]:
    """State dict of `Transformer` from published tensors.

    `shapes` are the shapes that the network expects. Raises one CheckpointError that lists all missing, extra and
    misshapen tensors.
    """
    names = layout.published(config)
    wanted = {theirs for parts in names.values() for theirs in parts}
    faults = [f"missing: {name}" for name in sorted(wanted - set(tensors))]
    unused = set(tensors) - wanted - ({layout.head} if config.tied else set())
    faults += [f"extra: {name}" for name in sorted(unused) if not name.endswith("rotary_emb.inv_freq")]
    state = {}
    for ours, parts in names.items():
        if not set(parts) <= set(tensors):
            continue
        value = torch.cat([tensors[part] for part in parts]) if len(parts) > 1 else tensors[parts[0]]
        if value.shape != shapes[ours]:
            faults.append(f"misshapen: {' + '.join(parts)} is {tuple(value.shape)}, wanted {tuple(shapes[ours])}")
        state[ours] = value
    if faults:
        raise CheckpointError(f"{where} does not fit its config.json: " + "; ".join(faults))
    return state
