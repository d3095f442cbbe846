"""Where the tensors of a checkpoint belong in `Transformer`, and whether they can be what its config.json promises."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from lopa_bench.errors import CheckpointError
from lopa_bench.models.checkpoint.files import FLOATS, Header
from lopa_bench.models.checkpoint.layouts import Layout
from lopa_bench.models.config import ModelConfig

NAMED = 4  # tensors of one kind of fault that a message names
QUANTISED = {
    "I8": "int8", "U8": "uint8", "I16": "int16", "U16": "uint16", "I32": "int32", "U32": "uint32", "I64": "int64",
    "U64": "uint64", "BOOL": "bool", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2",
}  # fmt: skip


@dataclass(frozen=True)
class Place:
    """Rows [first, last) of one of our parameters, all but its last axis counted as rows."""

    ours: str
    first: int
    last: int


def places(
    layout: Layout, config: ModelConfig, headers: Mapping[str, Header], shapes: Mapping[str, torch.Size], where: str
) -> dict[str, Place]:
    """Published name -> where its numbers belong. `shapes` are the shapes that the network expects.

    Several published tensors make one parameter: queries, keys and values, gate and up, the experts of a layer.
    Raises one CheckpointError that names missing, extra and misshapen tensors, and those that are no plain numbers.
    """
    names = layout.published(config)
    wanted = {theirs for parts in names.values() for theirs in parts}
    faults = _named("missing", sorted(wanted - set(headers)))
    unused = set(headers) - wanted - ({layout.head} if config.tied else set())
    # Frequencies of the rotary positions, which old files hold; loaders of today compute them from the base.
    faults += _named("extra", sorted(name for name in unused if not name.endswith("rotary_emb.inv_freq")))
    found, misshapen = {}, []
    for ours, parts in names.items():
        first = 0
        for part, shape in zip(parts, _part_shapes(ours, shapes[ours], len(parts), config), strict=True):
            found[part] = Place(ours, first, first + shape[0])
            first += shape[0]
            if part in headers and headers[part].shape != tuple(shape):
                misshapen.append(f"{part} is {headers[part].shape}, wanted {tuple(shape)}")
    faults += _named("misshapen", misshapen)
    packed = [name for name in sorted(wanted & set(headers)) if headers[name].dtype not in FLOATS]
    faults += _named("quantised", [f"{name} is {_spelled(headers[name].dtype)}" for name in packed])
    if faults:
        raise CheckpointError(f"{where} does not fit its config.json: " + "; ".join(faults))
    return found


def rows_of(parameter: Tensor) -> Tensor:
    """A parameter as a matrix of rows; a vector is a row an element."""
    return parameter if parameter.dim() < 2 else parameter.flatten(0, -2)


def is_finite(numbers: Tensor) -> bool:
    """Whether none is NaN or infinite, without a copy of them."""
    return all(bool(torch.isfinite(end)) for end in torch.aminmax(numbers)) if numbers.numel() else True


def check_numbers(tensors: Mapping[str, Tensor], where: str) -> None:
    """Raises CheckpointError for weights that are NaN or infinite, which make every prediction NaN without a word."""
    broken = [name for name, tensor in tensors.items() if tensor.is_floating_point() and not is_finite(tensor)]
    if broken:
        raise CheckpointError(f"{where} is damaged: " + "; ".join(_named("NaN or infinite numbers", broken)))


def _named(fault: str, items: Sequence[str]) -> list[str]:
    more = [f"{len(items) - NAMED} more {fault}"] if len(items) > NAMED else []
    return [f"{fault}: {item}" for item in items[:NAMED]] + more


def _spelled(dtype: str) -> str:
    return QUANTISED.get(dtype, dtype)


def _part_shapes(ours: str, whole: torch.Size, count: int, config: ModelConfig) -> list[torch.Size]:
    """The shapes of the `count` published parts of one of our parameters, from the first row to the last."""
    if count == 1:
        return [whole]
    if ".qkv_proj." in ours:
        query, key_value = config.heads * config.head_dim, config.kv_heads * config.head_dim
        rows = [query, key_value, key_value]
    else:  # gate and up, or those of every expert
        rows = [whole[:-1].numel() // count if len(whole) > 1 else whole[0] // count] * count
    return [torch.Size([size, *whole[max(1, len(whole) - 1) :]]) for size in rows]
