"""The groups of torch.distributed that the processes of a decode form, and what carries their tensors."""

from __future__ import annotations

from datetime import timedelta

import torch
import torch.distributed as dist

from lopa_bench.backends.ranks.place import Place
from lopa_bench.errors import BackendError

LINKS = {"cpu": "gloo", "cuda": "nccl", "npu": "hccl"}  # what carries tensors of a device


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
