"""Checkpoint folders in a published layout: config.json, safetensors files, tokenizer files, perhaps a LoRA folder.

No code of a checkpoint is ever run.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lopa_bench.checksums import weight_files
from lopa_bench.models.config import ModelConfig
from lopa_bench.models.errors import CheckpointError
from lopa_bench.models.layouts import Layout, gather, layout_for
from lopa_bench.models.transformer import Transformer


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object. Raises CheckpointError for a file that is missing or broken."""
    try:
        return json.loads(path.read_text())
    except FileNotFoundError:
        raise CheckpointError(f"{path} is missing") from None
    except json.JSONDecodeError as error:
        raise CheckpointError(f"{path} is not valid JSON: {error}") from None


def read_config(folder: Path) -> tuple[Layout, ModelConfig]:
    """Layout and sizes from config.json, the end ids of generation_config.json added."""
    raw = read_json(folder / "config.json")
    layout = layout_for(str(raw.get("model_type")), str(folder / "config.json"))
    try:
        config = layout.config(raw)
    except KeyError as missing:
        raise CheckpointError(f"{folder / 'config.json'} lacks {missing}") from None
    generation = folder / "generation_config.json"
    if generation.exists():
        eos = read_json(generation).get("eos_token_id")
        more = eos if isinstance(eos, list) else [] if eos is None else [eos]
        config = replace(config, end_ids=tuple(dict.fromkeys([*config.end_ids, *more])))
    return layout, config


def read_tensors(files: list[Path]) -> dict[str, Tensor]:
    """All tensors of some safetensors files, memory-mapped."""
    from safetensors.torch import load_file

    tensors: dict[str, Tensor] = {}
    for path in files:
        try:
            tensors |= load_file(path)
        except Exception as error:  # safetensors raises its own type for every kind of damage
            raise CheckpointError(f"{path} is not a readable safetensors file: {error}") from None
    return tensors


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
        from lopa_bench.models.lora import merge

        tensors = merge(tensors, lora)
    with torch.device("meta"):
        model = Transformer(config)
    shapes = {name: value.shape for name, value in model.state_dict().items()}
    state = gather(layout, config, tensors, shapes, str(folder))
    model.load_state_dict({name: value.to(device, dtype) for name, value in state.items()}, assign=True)
    return model.place_tables(device).requires_grad_(False)
