"""Checkpoint folders in a published layout: config.json, safetensors files, tokenizer files, perhaps a LoRA folder.

No code of a checkpoint is ever run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from lopa_bench.models.checkpoint.files import read_tensors, weight_files
from lopa_bench.models.checkpoint.layouts import read_config
from lopa_bench.models.checkpoint.lora import merge
from lopa_bench.models.checkpoint.tensors import gather
from lopa_bench.models.network.transformer import Transformer


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
    # Copied, since tensors that are still mapped would change with their file during a run.
    model.load_state_dict({name: value.to(device, dtype, copy=True) for name, value in state.items()}, assign=True)
    return model.place_tables(device).requires_grad_(False)
