"""Checkpoint folders in a published layout: config.json, safetensors files, tokenizer files, perhaps a LoRA folder.

No code of a checkpoint is ever run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from lopa_bench.models.config import ModelConfig
from lopa_bench.models.files import read_tensors, weight_files
from lopa_bench.models.keys import Keys, read_json
from lopa_bench.models.layouts import Layout, gather, layout_for
from lopa_bench.models.lora import merge
from lopa_bench.models.transformer import Transformer


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


def load_model(
    folder: Path, dtype: torch.dtype, device: torch.device, lora: Path | None = None, max_length: int | None = None
) -> Transformer:
    """The network of a checkpoint folder, on `device`, in `dtype`, LoRA merged, for texts of up to `max_length`
    positions (None: what the checkpoint allows). Raises CheckpointError.
    """
    layout, config = read_config(folder)
    if max_length is not None:
        config = replace(config, max_positions=min(max_length, config.max_positions))
    tensors: Mapping[str, Tensor] = read_tensors(weight_files(folder))
    if lora is not None:
        tensors = merge(tensors, lora, layout.modules(config), dtype)
    with torch.device("meta"):
        model = Transformer(config)
    shapes = {name: value.shape for name, value in model.state_dict().items()}
    state = gather(layout, config, tensors, shapes, str(folder))
    model.load_state_dict({name: value.to(device, dtype) for name, value in state.items()}, assign=True)
    return model.place_tables(device).requires_grad_(False)
