"""How the ranks of a decode talk during a forward: two collectives."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from lopa_bench.backends.ranks.joining import Ranks
from lopa_bench.backends.ranks.mesh import Mesh


class Link(Protocol):
    """What a session needs of the other ranks."""

    rank: int
    size: int

    def gather(self, mine: np.ndarray) -> list[np.ndarray]:
        """The arrays of all ranks, which have one shape and dtype, in the order of the ranks."""

    def broadcast(self, tensor: Tensor, source: int) -> None:
        """Overwrites `tensor` with that of the rank `source`."""


class MeshLink:
    """The branch ranks of a mesh; what breaks a collective is told by `ranks`."""

    def __init__(self, mesh: Mesh, ranks: Ranks) -> None:
        self.group, self.is_staged = mesh.branch, mesh.link == "gloo"
        self.rank, self.size = mesh.place.branch, mesh.place.branch_ranks
        self.ranks = ranks

    def gather(self, mine: np.ndarray) -> list[np.ndarray]:
        sent = torch.from_numpy(mine)
        found = [torch.empty_like(sent) for _ in range(self.size)]
        self.ranks.together(lambda: dist.all_gather(found, sent, group=self.group), of_all=True)
        return [tensor.numpy() for tensor in found]

    def broadcast(self, tensor: Tensor, source: int) -> None:
        staged = tensor.cpu() if self.is_staged else tensor
        self.ranks.together(lambda: dist.broadcast(staged, group=self.group, group_src=source), of_all=True)
        if self.rank != source and staged is not tensor:
            tensor.copy_(staged)
