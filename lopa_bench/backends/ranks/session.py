"""One decode on several ranks: each computes its rows and learns what the others computed for theirs.

Every rank runs the same decoder on the same predictions, so all of them ask for the same rows and keep the same ones.
Two protocols bring the kept keys and values into every rank's cache (LoPA, section 4; the names are the article's):

- `two_phase`. Pre-Write: each rank's rows lie behind its cache, in the buffers of the call. Commit-Winner-Cache: the
  winner's rank sends what is kept, all layers in one broadcast. Right for every attention and cache.
- `single_phase`. Pre-Write alone: each rank keeps what its own row says. Right where a finished block's keys and values
  depend on nothing behind it (block-causal attention) and all rows hold the same finished blocks.

Shape suffixes: L layers, 2 (keys, values), K key-value heads, W kept positions, E head size; N masked positions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from decoders.types import Keep, Request
from lopa_bench.backends.outcome import Traffic
from lopa_bench.backends.ranks.link import Link
from lopa_bench.backends.ranks.share import Share, pack, unpack
from lopa_bench.backends.session import Session
from lopa_bench.errors import BackendError
from lopa_bench.models.network.segments import KVCache, Segment

TOLERANCE = {torch.float32: 1e-4, torch.float64: 1e-9}  # of equal rows computed apart, beside the largest value
COARSE = 3e-2  # of 16-bit numbers


@dataclass(frozen=True)
class Protocol:
    """How caches are kept alike: two_phase or single_phase; `check` compares all of them behind every commit."""

    name: str = "two_phase"
    check: bool = False

    @property
    def is_single(self) -> bool:
        return self.name == "single_phase"


class RankedSession(Session):
    """The part of one rank in one decode."""

    def __init__(self, cache: KVCache, shifted: bool, mask_id: int, link: Link, protocol: Protocol):
        super().__init__(cache, shifted, mask_id)
        self.link = link
        self.protocol = protocol
        self.traffic: list[Traffic] = []
        self.share = Share(1, link.size)
        self.rows = range(0)  # that this rank computes of the open request
        self._committed = 0  # bytes

    def open(self, request: Request, device: torch.device) -> Segment:
        """Carries out `keep` and lays out this rank's part of the call, which may have no row."""
        self._committed = 0
        share = Share(len(request.ids), self.link.size)
        rows = share.computed(self.link.rank, spare=self.protocol.is_single)
        part = slice(rows.start, rows.stop)
        segment = super().open(replace(request, ids=request.ids[part], lengths=request.lengths[part]), device)
        self.request, self.share, self.rows, self.first_row = request, share, rows, rows.start
        return segment

    def _commit(self, keep: Keep) -> None:
        """As in the base, on all ranks. Raises BackendError where `check` finds caches that differ."""
        assert self.segment is not None
        mine = keep.row if keep.row in self.rows else None
        if self.protocol.is_single:
            self._check_single(keep)
            mine = self.first_row if mine is None else mine
        if mine is not None:
            self.segment.commit(mine - self.first_row, keep.start, keep.end)
        sent = not self.protocol.is_single and self.share.rows > 1 and self.link.size > 1
        if sent:
            kept_L2KWE = self._held(keep.start, keep.end)
            self.link.broadcast(kept_L2KWE, self.share.owner(keep.row))
            self._committed = kept_L2KWE.nbytes
            if mine is None:
                self.cache.k_LKPE[:, :, keep.start : keep.end] = kept_L2KWE[:, 0]
                self.cache.v_LKPE[:, :, keep.start : keep.end] = kept_L2KWE[:, 1]
        if self.protocol.check:
            self._check(keep, sent)

    def _held(self, start: int, end: int) -> Tensor:
        """This rank's cached keys and values [L, 2, K, W, E] of some positions."""
        part = slice(start, end)
        return torch.stack([self.cache.k_LKPE[:, :, part], self.cache.v_LKPE[:, :, part]], 1)

    def _check_single(self, keep: Keep) -> None:
        """Raises BackendError for rows that do not agree up to the end of what is kept. All ranks judge all rows, so
        that they come to the same end.
        """
        assert self.request is not None
        ids, blocks = self.request.ids, self.request.blocks
        end = keep.end - self.request.start
        is_closed = blocks is not None and (end >= len(blocks) or blocks[end - 1] < blocks[end])
        if len(ids) > 1 and not (is_closed and (ids[:, :end] == ids[keep.row, :end]).all()):
            raise BackendError(
                f"backend.branch_protocol=single_phase: the branches differ before position {keep.end}, up to which "
                "the winner's keys and values are kept; allowed: two_phase"
            )

    def _check(self, keep: Keep, is_sent: bool) -> None:
        """Compares with rank 0's cache what was kept, bit for bit if it was sent, and all that was kept before."""
        mine_L2KWE = self._held(0, keep.end)
        first_L2KWE = mine_L2KWE.clone()
        self.link.broadcast(first_L2KWE, 0)
        apart_L2KWE = (mine_L2KWE.double() - first_L2KWE.double()).abs() / first_L2KWE.double().abs().max().clamp_min(1)
        near = TOLERANCE.get(mine_L2KWE.dtype, COARSE)
        for start, end, limit in ((keep.start, keep.end, 0.0 if is_sent else near), (0, keep.start, near)):
            if start == end:
                continue
            apart = apart_L2KWE[:, :, :, start:end].max()
            found = np.concatenate(self.link.gather(apart.cpu().numpy().reshape(1)))
            if wrong := [rank for rank, value in enumerate(found) if not value <= limit]:
                what = "other keys and values than rank 0" if wrong[0] else "keys and values that are not finite"
                raise BackendError(
                    f"backend.branch_check: rank {wrong[0]} keeps {what} for positions [{start}, {end}): they differ "
                    f"by {found[wrong[0]]:.3g} of the largest"
                )

    def read_here(self, rows_N: np.ndarray) -> slice:
        """Those that this rank tells the others of; of one row, which all computed, all."""
        if self.share.rows == 1:
            return super().read_here(rows_N)
        counts = self.share.counts(rows_N)
        first = sum(counts[: self.link.rank])
        return slice(first, first + counts[self.link.rank])

    def of_all(self, values: dict[str, np.ndarray], rows_N: np.ndarray) -> dict[str, np.ndarray]:
        """Each rank's from that rank; those of one row are rank 0's, so that not even their last bits differ."""
        counts = self.share.counts(rows_N)
        packed = pack(values, max(counts))
        if self.share.rows == 1:
            self.link.broadcast(torch.from_numpy(packed), 0)
            gathered, sources = [packed], min(1, self.link.size - 1)
        else:
            gathered, sources = self.link.gather(packed), self.link.size - 1
        self.traffic.append(Traffic(sources * packed.nbytes, self._committed))
        return unpack(gathered, counts, list(values))
