"""Which rank computes which rows of a call, and what it tells the others of them.

Shape suffixes: C columns (id, probability, measures), N masked positions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Share:
    """R rows, spread evenly over some ranks: neighbours together, the first ranks with one more if it does not come out
    even. Row 0, the anchor, is rank 0's.
    """

    rows: int
    ranks: int

    def owned(self, rank: int) -> range:
        """The rows that this rank tells the others of."""
        each, more = divmod(self.rows, self.ranks)
        first = rank * each + min(rank, more)
        return range(first, first + each + (rank < more))

    def owner(self, row: int) -> int:
        return next(rank for rank in range(self.ranks) if row in self.owned(rank))

    def computed(self, rank: int, spare: bool) -> range:
        """The rows that this rank computes. One row is computed by all, since its keys and values are needed by all; of
        several, with `spare`, a rank without any computes one of the others'.
        """
        owned = self.owned(rank)
        if not owned and (spare or self.rows == 1):
            row = rank % self.rows
            return range(row, row + 1)
        return owned

    def counts(self, rows_N: np.ndarray) -> list[int]:
        """How many of these rows, in rising order, each rank owns."""
        ends = [self.owned(rank).stop for rank in range(self.ranks)]
        return np.diff(np.searchsorted(rows_N, [0, *ends])).tolist()


def pack(values: Mapping[str, np.ndarray], width: int) -> np.ndarray:
    """Columns [N] as one int32 array [C, width]; the bits of a float32 stay as they are. Ids come as int64."""
    packed_CN = np.zeros((len(values), width), np.int32)
    for line, (name, column) in zip(packed_CN, values.items()):
        line[: len(column)] = column.astype(np.int32) if name == "token" else column.view(np.int32)
    return packed_CN


def unpack(packed: Sequence[np.ndarray], counts: Sequence[int], names: Sequence[str]) -> dict[str, np.ndarray]:
    """The columns [N] of all ranks, rank by rank, of which `counts` are meant."""
    joined_CN = np.concatenate([part[:, :count] for part, count in zip(packed, counts)], 1)
    return {
        name: line.astype(np.int64) if name == "token" else line.view(np.float32)
        for name, line in zip(names, joined_CN)
    }
