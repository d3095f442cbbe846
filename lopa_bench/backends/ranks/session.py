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
        self.rows = range(0)  # that this rank computes of the open call
        self._committed = 0  # bytes

    def open(self, request: Request, device: torch.device) -> Segment:
        """Carries out `keep` and lays out this rank's part of the call, which may have no row."""
        self._committed = 0
        share = Share(len(request.ids), self.link.size)
        rows = share.computed(self.link.rank, spare=self.protocol.is_single)
        part = slice(rows.start, rows.stop)
        segment = super().open(replace(request, ids=request.ids[part], lengths=request.lengths[part]), device)
        self.request, self.share, self.rows = request, share, rows
        return segment

    def _commit(self, keep: Keep) -> None:
        """As in the base, on all ranks. Raises BackendError where `check` finds caches that differ."""
        assert self.segment is not None
        mine = keep.row if keep.row in self.rows else None
        if self.protocol.is_single:
            self._check_single(keep)
            mine = self.rows.start if mine is None else mine
        if mine is not None:
            self.segment.commit(mine - self.rows.start, keep.start, keep.end)
        sent = not self.protocol.is_single and self.share.rows > 1
        if sent:
            kept_L2KWE = self._kept(keep)
            self.link.broadcast(kept_L2KWE, self.share.owner(keep.row))
            self._committed = kept_L2KWE.nbytes
            if mine is None:
                self.cache.k_LKPE[:, :, keep.start : keep.end] = kept_L2KWE[:, 0]
                self.cache.v_LKPE[:, :, keep.start : keep.end] = kept_L2KWE[:, 1]
        if self.protocol.check:
            self._check(keep, exact=sent)

    def _kept(self, keep: Keep) -> Tensor:
        """What stands in this rank's cache where something is kept."""
        part = slice(keep.start, keep.end)
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

    def _check(self, keep: Keep, exact: bool) -> None:
        mine_L2KWE = self._kept(keep)
        first_L2KWE = mine_L2KWE.clone()
        before = self.link.received
        self.link.broadcast(first_L2KWE, 0)
        apart = (mine_L2KWE.double() - first_L2KWE.double()).abs().max() / first_L2KWE.double().abs().max().clamp_min(1)
        limit = 0.0 if exact else TOLERANCE.get(mine_L2KWE.dtype, COARSE)
        found = np.concatenate(self.link.gather(apart.cpu().numpy().reshape(1)))
        self.link.received = before  # the check is no part of the decode
        if wrong := [rank for rank, value in enumerate(found) if not value <= limit]:
            raise BackendError(
                f"backend.branch_check: rank {wrong[0]} keeps other keys and values than rank 0 for positions "
                f"[{keep.start}, {keep.end}): they differ by {found[wrong[0]]:.3g} of the largest"
            )

    def mine(self, rows_N: np.ndarray) -> slice:
        """Those of the needed rows, in rising order, that this rank tells the others of."""
        counts = self.share.counts(rows_N)
        first = sum(counts[: self.link.rank])
        return slice(first, first + counts[self.link.rank])

    def exchange(self, values: dict[str, np.ndarray], rows_N: np.ndarray) -> dict[str, np.ndarray]:
        """The values [N] of all needed rows from this rank's own. One row, which all computed, is rank 0's for all, so
        that not even its last bits differ.
        """
        before = self.link.received
        counts = self.share.counts(rows_N)
        if self.share.rows == 1:
            packed = torch.from_numpy(pack(values, counts[0]))
            self.link.broadcast(packed, 0)
            gathered = [packed.numpy()]
        else:
            gathered = self.link.gather(pack(values, max(counts)))
        # A broadcast costs its source nothing to receive; the record says what the others received.
        received = gathered[0].nbytes if self.share.rows == 1 else self.link.received - before
        self.traffic.append(Traffic(received, self._committed))
        return unpack(gathered, counts, list(values))
