"""Random checkpoints in published layouts, of whatever sizes a config.json asks for."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from lopa_bench.models.checkpoint.layouts import read_config
from lopa_bench.models.network.transformer import Transformer


def write_checkpoint(folder: Path, config: dict[str, Any], seed: int = 0) -> Path:
    """config.json and model.safetensors with every tensor of the family under its published name."""
    (folder / "config.json").write_text(json.dumps(config))
    layout, found = read_config(folder)
    with torch.device("meta"):
        shapes = {name: value.shape for name, value in Transformer(found).state_dict().items()}
    generator = torch.Generator().manual_seed(seed)
    tensors: dict[str, Tensor] = {}
    query, key_value = found.heads * found.head_dim, found.kv_heads * found.head_dim
    for ours, parts in layout.published(found).items():
        whole = shapes[ours]
        rows = [query, key_value, key_value]
        if len(parts) != 3 or "qkv_proj" not in ours:
            rows = [math.prod(whole[: max(1, len(whole) - 1)]) // len(parts)] * len(parts)
        for part, count in zip(parts, rows, strict=True):
            numbers = torch.randn(count, *whole[1:][-1:], generator=generator)
            tensors[part] = 1 + 0.1 * numbers if "norm" in ours else 0.3 * numbers
    save_file(tensors, folder / "model.safetensors")
    return folder
