"""LoRA adapters in PEFT's folder layout, merged into the weights at load: W + (alpha / r) B A."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from lopa_bench.models.errors import CheckpointError


def merge(tensors: Mapping[str, Tensor], folder: Path) -> dict[str, Tensor]:
    """The tensors of a checkpoint with the adapter in `folder` added. The products are computed in float32.

    Raises CheckpointError for an adapter of another kind, or one whose tensors do not fit the checkpoint.
    """
    from lopa_bench.models.loader import read_json, read_tensors

    config = read_json(folder / "adapter_config.json")
    if config.get("peft_type", "LORA") != "LORA" or config.get("use_dora") or config.get("modules_to_save"):
        raise CheckpointError(f"{folder}: only plain LoRA adapters are supported (no DoRA, no modules_to_save)")
    adapter = read_tensors(sorted(folder.glob("adapter_model*.safetensors")))
    if not adapter:
        raise CheckpointError(f"{folder}: no adapter_model.safetensors file")
    merged, faults = dict(tensors), []
    downs = {name: value for name, value in adapter.items() if ".lora_A." in name}
    for name, down in downs.items():
        target = name.split(".lora_A.")[0].removeprefix("base_model.model.") + ".weight"
        up = adapter.get(name.replace(".lora_A.", ".lora_B."))
        if target not in merged or up is None:
            faults.append(f"{name} has no {'weight ' + target if up is not None else 'lora_B'}")
            continue
        module = target.removesuffix(".weight")
        rank = _setting(config, "rank_pattern", module, config["r"])
        alpha = _setting(config, "alpha_pattern", module, config["lora_alpha"])
        scale = alpha / (math.sqrt(rank) if config.get("use_rslora") else rank)
        weight = merged[target]
        delta = up.float() @ down.float()
        if delta.shape != weight.shape:
            faults.append(f"{name} gives {tuple(delta.shape)}, {target} is {tuple(weight.shape)}")
            continue
        merged[target] = (weight.float() + scale * delta).to(weight.dtype)
    if faults or 2 * len(downs) != len(adapter):
        faults += [
            f"not understood: {name}" for name in sorted(adapter) if ".lora_A." not in name and ".lora_B." not in name
        ]
        raise CheckpointError(f"{folder} does not fit the checkpoint: " + "; ".join(faults))
    return merged


def _setting(config: Mapping, pattern: str, module: str, default: float) -> float:
    """PEFT's rank_pattern / alpha_pattern: a value for modules whose name ends with a key."""
    for key, value in (config.get(pattern) or {}).items():
        if module == key or module.endswith("." + key):
            return value
    return default
