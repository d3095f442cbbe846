"""The local backend of one rank: the same decodes, of whose rows it computes a part."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial

import numpy as np
import torch

from lopa_bench.backends.beside import beside_all
from lopa_bench.backends.local import LocalBackend, Pending, Running, change_of, group_by_readout
from lopa_bench.backends.outcome import Outcome
from lopa_bench.backends.ranks.link import Link
from lopa_bench.backends.ranks.session import Protocol, RankedSession
from lopa_bench.backends.readout import read_out
from lopa_bench.backends.session import Session
from lopa_bench.models.network.segments import KVCache
from lopa_bench.models.network.static import Network


class RankedBackend(LocalBackend):
    """Feeds the same decoders on all ranks. All of them have to decode the same texts in the same order."""

    def __init__(
        self,
        model: Network,
        link: Link,
        protocol: Protocol,
        max_length: int | None = None,
        prefix_reuse: str = "off",
        turn: Callable[[], None] = lambda: None,
    ):
        """`turn` is called before the first forward and before each that follows a finished sample: whoever takes the
        samples may take their time, and the other ranks wait for that as long as it lives.
        """
        super().__init__(model, max_length, prefix_reuse)
        self.link = link
        self.protocol = protocol
        self.turn = turn
        self._has_paused = True

    def stream(self, decodes: Iterable[Pending], batch: int = 1) -> Iterator[tuple[int, Outcome]]:
        for finished in super().stream(decodes, batch):
            yield finished
            self._has_paused = True

    def _session(self, cache: KVCache) -> Session:
        return RankedSession(cache, self.config.shifted, self.config.mask_id, self.link, self.protocol)

    @torch.inference_mode()
    def _forward(self, entries: list[Running]) -> None:
        """One model call for this rank's rows of all entries; what it says of them goes to all ranks."""
        if self._has_paused:
            self.turn()
            self._has_paused = False
        began = time.perf_counter()
        segments = [entry.session.open(entry.request, self.device) for entry in entries if entry.request is not None]
        sessions: list[RankedSession] = [entry.session for entry in entries]  # type: ignore[misc]  # as made above
        fed = [segment for segment in segments if segment.tokens_RW.numel()]
        width = self.config.hidden_size
        hidden_TD = self.model(fed, keep=True) if fed else torch.zeros(0, width, dtype=self.dtype, device=self.device)
        needed = [session.needed() for session in sessions]
        told = [self._told(session, rows) for session, (rows, _) in zip(sessions, needed)]
        offsets = np.cumsum([0] + [segment.tokens_RW.numel() for segment in segments])
        flat = [
            offset + (rows[part] - session.rows.start) * segment.tokens_RW.shape[1] + columns[part]
            for offset, segment, session, (rows, columns), part in zip(offsets, segments, sessions, needed, told)
        ]
        for readout, members in group_by_readout(entries):
            number = len(entries[members[0]].step_s)  # of the decode: draws are made sample by sample
            owned = [(sessions[i], needed[i][0][told[i]], needed[i][1][told[i]]) for i in members]
            first = told[members[0]].start, len(needed[members[0]][0])
            logits_NV = self._logits(hidden_TD, readout, [(segments[i], flat[i]) for i in members])
            asked = [(session.request, rows, columns) for session, rows, columns in owned]
            beside = beside_all(asked, readout, self.config.shifted)
            change = partial(change_of, owned)
            values = read_out(logits_NV, readout, self.config.mask_id, number, change, first, beside)
            at = 0
            for i in members:
                count = len(flat[i])
                part = {name: value[at : at + count] for name, value in values.items()}
                at += count
                everything = sessions[i].exchange(part, needed[i][0])
                entries[i].receive(*needed[i], everything, time.perf_counter() - began)

    @staticmethod
    def _told(session: RankedSession, rows_N: np.ndarray) -> slice:
        """Of the needed positions those that this rank reads out: of one row that all computed, all of them."""
        return slice(0, len(rows_N)) if session.share.rows == 1 else session.mine(rows_N)
