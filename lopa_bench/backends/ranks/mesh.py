"""Where a process stands among the processes of one decode: branch ranks x tensor ranks.

A decode has B x T processes. Their number is `branch * T + tensor`: those that share a branch stand side by side, since
they talk at every layer. Decodes beside each other (data ranks) have nothing to say to each other, so each of them has
a mesh of its own, and what ends one leaves the others alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from lopa_bench.errors import BackendError

LINKS = {"cpu": "gloo", "cuda": "nccl", "npu": "hccl"}  # what carries tensors of a device


@dataclass(frozen=True)
class Place:
    """The process number `rank` of one decode; `data` numbers the decodes beside each other."""

    rank: int
    branch_ranks: int = 1
    tensor_ranks: int = 1
    data: int = 0
    data_ranks: int = 1

    @property
    def size(self) -> int:
        return self.branch_ranks * self.tensor_ranks

    @property
    def branch(self) -> int:
        return self.rank // self.tensor_ranks

    @property
    def tensor(self) -> int:
        return self.rank % self.tensor_ranks

    @property
    def leads(self) -> bool:
        """Whether this process has the run: its rows, its console."""
        return self.rank == 0


def placed(branch_ranks: int, tensor_ranks: int, environment: Mapping[str, str]) -> Place | None:
    """The place that a launcher (torchrun and its like) gave this process by RANK and WORLD_SIZE; None if it has to
    start the others itself. Raises BackendError for a number of processes that does not fit.
    """
    world = environment.get("WORLD_SIZE", "1")
    rank = environment.get("RANK", "0")
    if not world.isdecimal() or not rank.isdecimal() or int(rank) >= max(1, int(world)):
        raise BackendError(f"RANK={rank} WORLD_SIZE={world} in the environment; allowed: 0 <= RANK < WORLD_SIZE")
    size = branch_ranks * tensor_ranks
    if int(world) == 1 or size == 1:
        return None
    if int(world) % size:
        raise BackendError(
            f"WORLD_SIZE={world} processes were started for backend.branch_ranks={branch_ranks} x "
            f"backend.tensor_ranks={tensor_ranks}; allowed: {size} or a multiple of it"
        )
    data, own = divmod(int(rank), size)
    return Place(own, branch_ranks, tensor_ranks, data, int(world) // size)


class Mesh:
    """The groups of torch.distributed that a process belongs to. To be made by all processes of a decode at once.

    `branch`: those with the same part of the weights, one a branch rank; `tensor`: those that share its branch rank.
    """

    def __init__(self, place: Place, store: dist.Store, device: torch.device, link: str, timeout_s: float) -> None:
        self.place, self.device, self.link = place, device, link
        self.timeout = timedelta(seconds=timeout_s)
        dist.init_process_group(
            _backends(device, link), store=store, rank=place.rank, world_size=place.size, timeout=self.timeout
        )
        rows = torch.arange(place.size).view(place.branch_ranks, place.tensor_ranks)
        self.branch = self._mine([rows[:, t].tolist() for t in range(place.tensor_ranks)])
        self.tensor = self._mine([rows[b].tolist() for b in range(place.branch_ranks)])

    def _mine(self, groups: list[list[int]]) -> dist.ProcessGroup:
        """Makes all of these groups, as every process must in the same order; gives the one that this one is in."""
        if len(groups) == 1:
            assert dist.group.WORLD is not None
            return dist.group.WORLD
        made = [dist.new_group(ranks, timeout=self.timeout) for ranks in groups]
        return next(group for group, ranks in zip(made, groups, strict=True) if self.place.rank in ranks)

    def tensor_mesh(self) -> Any:
        """The tensor ranks as a DeviceMesh, for torch.distributed.tensor."""
        from torch.distributed.device_mesh import DeviceMesh

        kind = "cpu" if self.link == "gloo" else self.device.type
        return DeviceMesh.from_group(self.tensor, kind, mesh_dim_names=("tensor",))

    def close(self) -> None:
        """Leaves the groups, without a word to the others."""
        if dist.is_initialized():
            dist.destroy_process_group()


def _backends(device: torch.device, link: str) -> str:
    """The small numbers of a forward go from host to host by gloo, tensors of an accelerator by its own link."""
    return "gloo" if link == "gloo" else f"cpu:gloo,{device.type}:{link}"


def link_of(device: torch.device, wanted: str = "auto") -> str:
    """gloo, nccl or hccl: what carries tensors of this device. Raises BackendError for one that is not here.

    hccl comes with torch_npu, which is loaded only now; nobody has run this on an NPU yet.
    """
    link = LINKS.get(device.type, "gloo") if wanted == "auto" else wanted
    fitting = {"gloo", LINKS.get(device.type, "gloo")}
    if link not in fitting:
        raise BackendError(
            f"backend.link={link} is not allowed on {device.type}; allowed: auto, {', '.join(sorted(fitting))}"
        )
    if link == "hccl":
        try:
            import torch_npu  # noqa: F401  # registers the link
        except ImportError:
            raise BackendError("backend.link=hccl needs the package torch_npu; allowed: backend.link=gloo") from None
    if not dist.is_available() or (link == "nccl" and not dist.is_nccl_available()):
        raise BackendError(f"backend.link={link}: this torch has none; allowed: another build of torch")
    return link
