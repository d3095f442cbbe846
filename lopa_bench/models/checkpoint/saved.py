"""Whole modules that an adapter brings along (modules_to_save): their tensors take the place of the checkpoint's.

A module may hold others: all tensors in it must be there. PEFT unties a table and an output matrix of which it replaces
one, or both by other numbers; here one matrix stays for both, so that these adapters are refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from lopa_bench.models.checkpoint.adapters import Adapter, saved_keys
from lopa_bench.models.checkpoint.files import Header

PLAIN = (torch.float32, torch.bfloat16, torch.float16, torch.float64)


@dataclass
class Saved:
    """`tensors`: name in the checkpoint -> what takes its place; `keys`: names in the adapter's file that belong here;
    `modules`: those that are replaced; `faults`: what does not fit.
    """

    modules: list[str]
    tensors: dict[str, Tensor] = field(default_factory=dict)
    keys: set[str] = field(default_factory=set)
    faults: list[str] = field(default_factory=list)

    def holds(self, module: str) -> bool:
        """Whether a module is replaced, or lies in one that is."""
        return any(module == name or module.startswith(f"{name}.") for name in self.modules)


def find(
    adapter: Adapter,
    parts: Mapping[str, Tensor],
    modules: Mapping[str, str],
    headers: Mapping[str, Header],
    tied: tuple[str, str] | None,
) -> Saved:
    """What of an adapter's tensors `parts` replaces tensors of a checkpoint; the other arguments are those of `Merge`.
    Raises CheckpointError for names of modules_to_save that cannot be replaced.
    """
    if not adapter.saved:
        return Saved([])
    if tied is not None:  # the output matrix is a module too, and may not be in the file
        headers = {**headers, tied[1]: headers[tied[0]]}
        modules = {**modules, _owner(tied[1]): "head"}
    found = Saved(adapter.replaced(modules))
    if tied is not None and adapter.keeps_tie:
        found.modules += [_owner(name) for name in tied if not found.holds(_owner(name))]
    for name, header in headers.items():
        module = next((module for module in found.modules if name.startswith(f"{module}.")), None)
        if module is not None and _owner(name) in modules:  # else a tensor that no loader of today reads
            _take(found, parts, name, header, saved_keys(module, name.removeprefix(f"{module}.")))
    if tied is not None and not found.faults:
        _tie(found, *tied)
    return found


def _owner(tensor: str) -> str:
    return tensor.rpartition(".")[0]


def _take(found: Saved, parts: Mapping[str, Tensor], name: str, header: Header, keys: list[str]) -> None:
    held = [key for key in keys if key in parts]
    found.keys |= set(held)
    if not held:
        found.faults.append(f"missing: {keys[0]}")
        return
    value = parts[held[0]]
    if len(held) > 1:
        found.faults.append(f"twice: {held[0]} and {held[1]}")
    elif tuple(value.shape) != header.shape:
        found.faults.append(f"misshapen: {held[0]} is {tuple(value.shape)}, the checkpoint's is {header.shape}")
    elif value.dtype not in PLAIN:
        found.faults.append(f"{held[0]} is {str(value.dtype).removeprefix('torch.')}, no plain numbers")
    else:
        found.tensors[name] = value


def _tie(found: Saved, table: str, head: str) -> None:
    one, other = found.tensors.get(table), found.tensors.pop(head, None)
    if one is None and other is None:
        return
    if one is None or other is None:
        which = table if other is None else head
        found.faults.append(
            f"modules_to_save replaces {which} alone, and config.json ties {head} to {table}; allowed: both, with the "
            "same numbers"
        )
    elif one.dtype != other.dtype or not torch.equal(one, other):
        found.faults.append(
            f"modules_to_save replaces {table} and {head} by other numbers, and config.json ties them; allowed: the "
            "same numbers"
        )
