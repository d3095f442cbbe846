"""What the tensor ranks of a branch say to each other: sums of a layer, and which hidden states are read."""

from __future__ import annotations

import torch.distributed as dist
from torch import Tensor

from lopa_bench.backends.ranks.joining import Ranks
from lopa_bench.backends.ranks.mesh import Mesh


class MeshGroup:
    """The tensor ranks of a mesh; what breaks a collective is told by `ranks`. `received`: bytes so far, those of a sum
    as a ring of ranks sends them.
    """

    def __init__(self, mesh: Mesh, ranks: Ranks) -> None:
        self.group, self.is_staged = mesh.tensor, mesh.link == "gloo"
        self.rank, self.size = mesh.place.tensor, mesh.place.tensor_ranks
        self.ranks = ranks
        self.received = 0.0

    def sum(self, tensor: Tensor) -> Tensor:
        """The sum over all ranks. Raises RankError."""
        staged = self._staged(tensor)
        try:
            dist.all_reduce(staged, group=self.group)
        except RuntimeError as error:
            raise self.ranks.explain(error) from None
        self.received += 2 * (self.size - 1) / self.size * tensor.nbytes
        return staged.to(tensor.device)

    def first(self, tensor: Tensor) -> Tensor:
        """Rank 0's tensor. Raises RankError."""
        staged = self._staged(tensor)
        try:
            dist.broadcast(staged, group=self.group, group_src=0)
        except RuntimeError as error:
            raise self.ranks.explain(error) from None
        self.received += tensor.nbytes if self.rank else 0
        return staged.to(tensor.device)

    def _staged(self, tensor: Tensor) -> Tensor:
        """Gloo carries what lies on the host."""
        return (tensor.cpu() if self.is_staged else tensor).contiguous()
