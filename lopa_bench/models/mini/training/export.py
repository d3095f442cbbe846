"""Writes an embedded model as a Hugging Face folder: Dream's layout, or Qwen2's for the autoregressive twin.

Both have the same tensor names; the fused projections of `Transformer` are split into the published ones.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer
from torch import Tensor

from lopa_bench.models.checkpoint.layouts import DREAM
from lopa_bench.models.config import ModelConfig
from lopa_bench.models.mini.tokenizer import save_tokenizer
from lopa_bench.models.network.transformer import Transformer


def published_weights(model: Transformer) -> dict[str, Tensor]:
    """The weights under their published names."""
    config, state = model.config, model.state_dict()
    query, key_value = config.heads * config.head_dim, config.kv_heads * config.head_dim
    weights: dict[str, Tensor] = {}
    for ours, theirs in DREAM.published(config).items():
        rows = [query, key_value, key_value] if "qkv_proj" in ours else len(state[ours]) // len(theirs)
        weights |= zip(theirs, state[ours].split(rows), strict=True)
    return weights


def published_config(config: ModelConfig, kind: str) -> dict[str, Any]:
    """config.json of a Dream model ("dream") or of a Qwen2 model ("ar")."""
    common = {
        "attention_dropout": 0.0,
        "bos_token_id": None,
        "eos_token_id": config.end_ids[0],
        "pad_token_id": config.pad_id,
        "hidden_act": "silu",
        "hidden_size": config.hidden_size,
        "initializer_range": 0.02,
        "intermediate_size": config.intermediate_size,
        "max_position_embeddings": config.max_positions,
        "num_attention_heads": config.heads,
        "num_hidden_layers": config.layers,
        "num_key_value_heads": config.kv_heads,
        "rms_norm_eps": config.rms_eps,
        "rope_scaling": None,
        "rope_theta": config.rope_theta,
        "tie_word_embeddings": config.tied,
        "torch_dtype": "bfloat16",
        "use_sliding_window": False,
        "vocab_size": config.vocab_size,
    }
    if kind == "dream":
        own = {"mask_token_id": config.mask_id, "block_size": config.block_size, "use_cache": False}
        return {"architectures": ["DreamModel"], "model_type": "Dream", **common, **own}
    return {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", **common, "use_cache": True}


def export(model: Transformer, tokenizer: Tokenizer, kind: str, folder: Path) -> None:
    """Writes weights (bfloat16), configuration and tokenizer."""
    save_tokenizer(tokenizer, folder)
    config = model.config
    _write_json(folder / "config.json", published_config(config, kind))
    generation = {"eos_token_id": config.end_ids[0], "pad_token_id": config.pad_id, "do_sample": False}
    if kind == "dream":
        generation["mask_token_id"] = config.mask_id
    _write_json(folder / "generation_config.json", generation)
    weights = {name: weight.to(torch.bfloat16).contiguous() for name, weight in published_weights(model).items()}
    unfinished = folder / "model.safetensors.part"
    save_file(weights, str(unfinished), metadata={"format": "pt"})
    unfinished.chmod(0o644)
    unfinished.replace(folder / "model.safetensors")  # a reader never meets half a file


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n", "utf-8")
