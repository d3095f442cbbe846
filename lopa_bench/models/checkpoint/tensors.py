"""A checkpoint's tensors, checked against what its config.json promises, as the parameters of `Transformer`."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from lopa_bench.errors import CheckpointError
from lopa_bench.models.checkpoint.layouts import Layout
from lopa_bench.models.config import ModelConfig

NAMED = 4  # tensors of one kind of fault that a message names
WEIGHTS = (torch.float32, torch.bfloat16, torch.float16, torch.float64)


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
    check_numbers({name: tensors[name] for name in sorted(wanted)}, where)
    if config.tied:
        _check_tied(layout, tensors, where)
    return state


def check_numbers(tensors: Mapping[str, Tensor], where: str) -> None:
    """Raises CheckpointError for weights that are NaN or infinite, which make every prediction NaN without a word."""
    broken = [name for name, tensor in tensors.items() if not torch.isfinite(tensor).all()]
    if broken:
        raise CheckpointError(f"{where} is damaged: " + "; ".join(_named("NaN or infinite numbers", broken)))


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
