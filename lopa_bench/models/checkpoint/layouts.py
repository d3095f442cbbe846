"""Published checkpoint layouts: their config.json and parameter names, mapped onto `Transformer`.

Dream and DiffuCoder are Qwen2-like (QKV bias, logits shifted by one); LLaDA is LLaMA-like (no bias, no shift).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lopa_bench.errors import CheckpointError
from lopa_bench.models.checkpoint.keys import Keys, read_json
from lopa_bench.models.checkpoint.published import dream_config, llada_config
from lopa_bench.models.config import ModelConfig


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


def read_config(folder: Path) -> tuple[Layout, ModelConfig]:
    """Layout and sizes from config.json, the end ids of generation_config.json added. Raises CheckpointError.

    The other settings of generation_config.json are those of the publisher's own generate().
    """
    where = str(folder / "config.json")
    raw = read_json(folder / "config.json")
    layout = layout_for(raw.get("model_type"), where)
    config = layout.config(raw, where)
    if not (folder / "generation_config.json").exists():
        return layout, config
    generation = Keys(read_json(folder / "generation_config.json"), str(folder / "generation_config.json"))
    if generation.get("mask_token_id") not in (None, config.mask_id):
        generation.refuse("mask_token_id", f"null or the {config.mask_id} of config.json")
    ends = (*config.end_ids, *generation.tokens("eos_token_id", config.vocab_size))
    if config.mask_id in ends:
        generation.refuse("eos_token_id", f"another id than mask_token_id={config.mask_id}")
    return layout, replace(config, end_ids=tuple(dict.fromkeys(ends)))
