"""Ranks of one decode as threads of this process: the real backend of each rank, on a link of plain memory."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from decoders.types import Decode
from lopa_bench.backends.local import LocalBackend, Pending
from lopa_bench.backends.outcome import Outcome
from lopa_bench.backends.ranks.backend import RankedBackend
from lopa_bench.backends.ranks.session import Protocol


class Table:
    """Where threads lay down what they send."""

    def __init__(self, size: int) -> None:
        self.barrier = threading.Barrier(size, timeout=30)
        self.places: list[Any] = [None] * size


class ThreadLink:
    """The link of one thread. `shapes`: what it was given to gather."""

    def __init__(self, table: Table, rank: int) -> None:
        self.table, self.rank, self.size = table, rank, len(table.places)
        self.shapes: list[tuple[int, ...]] = []

    def _all(self, mine: Any) -> list[Any]:
        self.table.places[self.rank] = mine
        self.table.barrier.wait()
        found = list(self.table.places)
        self.table.barrier.wait()
        return found

    def gather(self, mine: np.ndarray) -> list[np.ndarray]:
        self.shapes.append(mine.shape)
        found = self._all(mine.copy())
        assert len({part.shape for part in found}) == 1, "a collective of arrays of different shapes"
        return found

    def broadcast(self, tensor: Tensor, source: int) -> None:
        found = self._all(tensor.clone())
        assert len({part.shape for part in found}) == 1
        if self.rank != source:
            tensor.copy_(found[source])


def on_ranks(
    local: LocalBackend,
    ranks: int,
    decodes: Sequence[Callable[..., Decode]],
    protocol: str = "two_phase",
    batch: int = 1,
    check: bool = True,
    prompts: Sequence[Sequence[int]] | None = None,
    reuse: str = "off",
    meddle: Callable[[int, RankedBackend], None] = lambda rank, backend: None,
) -> list[list[Outcome]]:
    """The outcomes of these decodes on each rank, in order. An error of any rank is raised."""
    table, found, errors = Table(ranks), [[] for _ in range(ranks)], []

    def work(rank: int) -> None:
        torch.set_num_threads(1)
        backend = RankedBackend(
            local.model, ThreadLink(table, rank), Protocol(protocol, check), local.max_length, reuse
        )
        meddle(rank, backend)
        given = prompts or [()] * len(decodes)
        waiting = [Pending(prompt, one) for prompt, one in zip(given, decodes)]
        try:
            found[rank] = [outcome for _, outcome in sorted(backend.stream(waiting, batch), key=lambda item: item[0])]
        except threading.BrokenBarrierError:
            pass
        except BaseException as error:
            errors.append(error)
            table.barrier.abort()

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return found
