"""Blocks from left to right, in each as many masks as a bound allows, at least one.

`eb`: the entropies of the ranks before a mask sum to at most gamma (EB-Sampler, arXiv 2505.24857; as d2Cache runs it,
github.com/Kamichanw/d2Cache, Apache-2.0). `frechet`: Frechet's bound on the joint probability (Fast-dLLM++, arXiv
2606.02955, github.com/Ringo-Star/FastdLLM_plusplus, Apache-2.0). `entropy`: every mask of low entropy (dParallel, arXiv
2509.26488, github.com/czg1225/dParallel, MIT).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from decoders.parts.fills import Fill
from decoders.parts.set_fills import EntropyBounded, EntropyThreshold, Frechet
from decoders.parts.windows import Blocks
from decoders.spec import Base


def _blocks(name: str, rule: type[Fill], **defaults: Any) -> Base:
    shared: Mapping[str, Any] = {"block_size": None, "cache": None, "attention": "full"}
    caches = ("none", "exact", "prefix", "dual", "vicinity")
    return Base(name, Blocks, {name: rule}, caches, {"fill": name, **shared, **defaults})


EB = _blocks("eb", EntropyBounded)
FRECHET = _blocks("frechet", Frechet, first_position="rule")
ENTROPY = _blocks("entropy", EntropyThreshold, first_position="rule")
