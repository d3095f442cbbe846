"""Where a process stands among the processes of one decode: branch ranks x tensor ranks.

A decode has B x T processes. Their number is `branch * T + tensor`: those that share a branch stand side by side, since
they talk at every layer. Decodes beside each other (data ranks) have nothing to say to each other: they are workers of
one run, each with ranks of its own, and what ends one leaves the others alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lopa_bench.errors import BackendError


@dataclass(frozen=True)
class Place:
    """The process number `rank` of one decode; `local`: its number on its machine, if a launcher said it."""

    rank: int
    branch_ranks: int = 1
    tensor_ranks: int = 1
    local: int | None = None

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
    start the others itself, as it also does where there are several times as many processes: they are workers. Raises
    BackendError for a number of processes that does not fit.
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
    if int(world) > size:
        return None
    local = environment.get("LOCAL_RANK", "")
    return Place(int(rank), branch_ranks, tensor_ranks, int(local) if local.isdecimal() else None)
