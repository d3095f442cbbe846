"""What the tensor ranks of a branch say to each other: sums of a layer, and which hidden states are read."""

from __future__ import annotations

import torch.distributed as dist
from torch import Tensor

from lopa_bench.backends.ranks.joining import Ranks
from lopa_bench.backends.ranks.mesh import Mesh


class MeshGroup:
    """The tensor ranks of a mesh; what breaks a collective is told by `ranks`."""

    def __init__(self, mesh: Mesh, ranks: Ranks) -> None:
        self.group, self.is_staged = mesh.tensor, mesh.link == "gloo"
        self.rank, self.size = mesh.place.tensor, mesh.place.tensor_ranks
        self.ranks = ranks

    def sum(self, tensor: Tensor) -> Tensor:
        """The sum over all ranks. Raises RankError."""
        staged = self._staged(tensor)
        self.ranks.together(lambda: dist.all_reduce(staged, group=self.group), of_all=False)
        return staged.to(tensor.device)

    def first(self, tensor: Tensor) -> Tensor:
        """Rank 0's tensor. Raises RankError."""
        staged = self._staged(tensor)
        self.ranks.together(lambda: dist.broadcast(staged, group=self.group, group_src=0), of_all=False)
        return staged.to(tensor.device)

    def _staged(self, tensor: Tensor) -> Tensor:
        """Gloo carries what lies on the host."""
        return (tensor.cpu() if self.is_staged else tensor).contiguous()
