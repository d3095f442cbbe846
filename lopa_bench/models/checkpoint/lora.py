"""LoRA adapters in PEFT's folder layout, merged into the weights at load: W + scale B A.

An adapter's tensors must be those of exactly the modules that its settings take.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from lopa_bench.errors import CheckpointError
from lopa_bench.models.checkpoint.adapters import key_of, read_adapter
from lopa_bench.models.checkpoint.files import adapter_file, read_tensors
from lopa_bench.models.checkpoint.keys import shown

NAMED = 4


def merge(
    tensors: Mapping[str, Tensor], folder: Path, modules: Mapping[str, str], dtype: torch.dtype
) -> dict[str, Tensor]:
    """The tensors of a checkpoint with the adapter in `folder` added, the changed ones in `dtype`.

    `modules`: name -> kind of the checkpoint's modules. Sums and products are computed in float32, and rounded once.
    Raises CheckpointError for an adapter of another kind, or one whose tensors do not fit.
    """
    adapter = read_adapter(folder)
    file = adapter_file(folder)
    parts = read_tensors([file])
    merged, faults = dict(tensors), []
    pairs = {module: [key_of(module, "A"), key_of(module, "B")] for module in adapter.targeted(modules, parts)}
    wanted = {name for pair in pairs.values() for name in pair}
    faults += [f"missing: {name}" for name in sorted(wanted - set(parts))]
    faults += [f"not understood: {name}" for name in sorted(set(parts) - wanted)]
    for module, pair in pairs.items():
        weight = tensors.get(f"{module}.weight")
        if weight is None:
            faults.append(f"{module}.weight is missing in the checkpoint")
        elif set(pair) <= set(parts):
            down, up = (parts[name] for name in pair)
            if fault := _misfit(module, weight, down, up, adapter.rank_of(module)):
                faults.append(fault)
                continue
            delta = up.float() @ down.float()
            merged[f"{module}.weight"] = (weight.float() + adapter.scale_of(module) * delta).to(dtype)
    if faults or not pairs:
        more = f"; {len(faults) - NAMED} more" if len(faults) > NAMED else ""
        reason = "; ".join(faults[:NAMED]) + more or f"target_modules={shown(adapter.targets)} takes no module of it"
        raise CheckpointError(f"{file} does not fit the checkpoint: {reason}")
    return merged


def _misfit(module: str, weight: Tensor, down: Tensor, up: Tensor, rank: int) -> str | None:
    found = f"{module}: lora_A {tuple(down.shape)} {down.dtype}, lora_B {tuple(up.shape)} {up.dtype}"
    if not (down.is_floating_point() and up.is_floating_point() and weight.is_floating_point()):
        return f"{found} on {weight.dtype} are no plain numbers"
    if weight.dim() == 2 and (down.shape, up.shape) == ((rank, weight.shape[1]), (weight.shape[0], rank)):
        return None
    return f"{found} do not make rank {rank} for {tuple(weight.shape)}"
