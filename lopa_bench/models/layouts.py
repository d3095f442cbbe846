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
from lopa_bench.models.published import dream_config, llada_config

NAMED = 4  # tensors of one kind of fault that a message names
WEIGHTS = (torch.float32, torch.bfloat16, torch.float16, torch.float64)


@dataclass(frozen=True)
class Layout:
    """Names of one family. `layer` maps our name inside a layer to the published one or, for fused matrices, to the
    published parts in order; `outer` does the same outside the layers; `{i}` is the layer's number.
    """

    name: str
    model_types: tuple[str, ...]
    config: Callable[[Mapping[str, Any], str], ModelConfig]
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

    def modules(self, config: ModelConfig) -> dict[str, str]:
        """Published name of every module -> what an adapter finds there: "linear", "head" (the output matrix), or
        "other" (an embedding, a norm, or what only holds modules).
        """
        kinds = {}
        for ours, parts in self.published(config).items():
            for part in parts:
                *above, _ = part.split(".")
                kinds.update({".".join(above[:i]): "other" for i in range(1, len(above))})
                kinds[".".join(above)] = "linear" if "_proj." in ours else "head" if "lm_head" in ours else "other"
        return kinds


DREAM = Layout(
    name="dream",
    model_types=("Dream", "dream"),
    config=dream_config,
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
    config=llada_config,
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


def layout_for(model_type: object, where: str) -> Layout:
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

    `shapes` are the shapes that the network expects. Raises one CheckpointError that names missing, extra and
    misshapen tensors, and those that are no plain numbers.
    """
    names = layout.published(config)
    wanted = {theirs for parts in names.values() for theirs in parts}
    faults = _named("missing", sorted(wanted - set(tensors)))
    unused = set(tensors) - wanted - ({layout.head} if config.tied else set())
    # Frequencies of the rotary positions, which old files hold; loaders of today compute them from the base.
    faults += _named("extra", sorted(name for name in unused if not name.endswith("rotary_emb.inv_freq")))
    state, misshapen = {}, []
    for ours, parts in names.items():
        if not set(parts) <= set(tensors):
            continue
        wrong = [
            f"{part} is {tuple(tensors[part].shape)}, wanted {tuple(shape)}"
            for part, shape in zip(parts, _part_shapes(ours, shapes[ours], config), strict=True)
            if tensors[part].shape != shape
        ]
        misshapen += wrong
        if not wrong:
            state[ours] = torch.cat([tensors[part] for part in parts]) if len(parts) > 1 else tensors[parts[0]]
    faults += _named("misshapen", misshapen)
    packed = [name for name in sorted(wanted & set(tensors)) if tensors[name].dtype not in WEIGHTS]
    faults += _named("quantised", [f"{name} is {str(tensors[name].dtype).removeprefix('torch.')}" for name in packed])
    if faults:
        raise CheckpointError(f"{where} does not fit its config.json: " + "; ".join(faults))
    if config.tied:
        _check_tied(layout, tensors, where)
    return state


def _named(fault: str, items: list[str]) -> list[str]:
    more = [f"{len(items) - NAMED} more {fault}"] if len(items) > NAMED else []
    return [f"{fault}: {item}" for item in items[:NAMED]] + more


def _part_shapes(ours: str, whole: torch.Size, config: ModelConfig) -> list[torch.Size]:
    """The shapes of the published parts of one of our parameters, from the first row to the last."""
    if ".qkv_proj." in ours:
        query, key_value = config.heads * config.head_dim, config.kv_heads * config.head_dim
        rows = [query, key_value, key_value]
    elif ".gate_up_proj." in ours:
        rows = [config.intermediate_size] * 2
    else:
        return [whole]
    return [torch.Size([count, *whole[1:]]) for count in rows]


def _check_tied(layout: Layout, tensors: Mapping[str, Tensor], where: str) -> None:
    """A tied model has one matrix for both ends. A file that holds a second, other one says two things."""
    embedding = layout.outer["embed.weight"]
    head = tensors.get(layout.head)
    if head is not None and not torch.equal(head, tensors[embedding]):
        raise CheckpointError(
            f"{where}: config.json ties the output to {embedding}, and the weights hold another {layout.head}; "
            "allowed: the same numbers, or no tie in config.json"
        )
