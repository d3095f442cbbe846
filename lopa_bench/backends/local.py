"""One device: runs decoders against the network, several samples in one call if asked to."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from decoders.types import Decode, Generation, Prediction, Readout, Request
from lopa_bench.backends.beside import beside_all
from lopa_bench.backends.outcome import Outcome
from lopa_bench.backends.readout import guided, read_out
from lopa_bench.backends.session import NonFinite, Session
from lopa_bench.models.network.segments import KVCache, Segment
from lopa_bench.models.network.static import Network


@dataclass(frozen=True)
class Pending:
    """A decode to be started when its turn comes: `start(cached)`, with `cached` prompt positions in the cache."""

    prompt: Sequence[int]
    start: Callable[[int], Decode]


class LocalBackend:
    """Feeds decoders from one network on one device."""

    name = "local"

    def __init__(self, model: Network, max_length: int | None = None, prefix_reuse: str = "off"):
        """`prefix_reuse`: whether a request starts from the prompt positions that it shares with an earlier one on the
        same cache: "off"; "exact", only if the whole prompt is the same; "approximate", the longest common prefix,
        whose keys and values have seen the rest of the earlier prompt.
        """
        self.model = model.eval()
        self.config = model.config
        self.max_length = max_length or model.config.max_positions
        self.prefix_reuse = prefix_reuse
        self.device, self.dtype = model.embed.weight.device, model.embed.weight.dtype
        self.forwards = 0  # begun so far
        self._free: list[KVCache] = []

    def new_cache(self) -> KVCache:
        """Buffers for one text of up to `max_length` positions."""
        return KVCache(self.config, self.max_length, self.device, self.dtype)

    def drop_caches(self) -> None:
        """Lets go of the buffers that no decode is using."""
        self._free.clear()

    def decode(self, decode: Decode, cache: KVCache | None = None) -> Outcome:
        """Runs one decode alone, with times; on a given cache its first positions may hold an earlier request's."""
        if cache is not None:
            self._free.append(cache)
        return next(iter(self.stream([Pending((), lambda cached: decode)])))[1]

    def stream(self, decodes: Iterable[Pending], batch: int = 1) -> Iterator[tuple[int, Outcome]]:
        """Runs the decodes in order, up to `batch` at a time in one call; yields (number, outcome) as they finish.

        With batch > 1 a call's time cannot be divided among its samples, so outcomes carry no times.
        """
        waiting = enumerate(decodes)
        running: dict[int, Running] = {}
        while True:
            while len(running) < batch and (item := next(waiting, None)) is not None:
                number, job = item
                cache, cached = self._claim(job.prompt)
                entry = Running(job.start(cached), self._session(cache), cached)
                if entry.send(None):
                    assert entry.request is not None
                    entry.cached = min(cached, entry.request.start)  # a decoder may take less of it
                    running[number] = entry
                else:
                    yield number, self._finish(entry, batch)
            if not running:
                return
            self.forwards += 1
            self._forward(list(running.values()))
            for number in [number for number, entry in running.items() if entry.outcome is not None]:
                yield number, self._finish(running.pop(number), batch)

    def _session(self, cache: KVCache) -> Session:
        return Session(cache, self.config.shifted, self.config.mask_id)

    @torch.inference_mode()
    def _forward(self, entries: list[Running]) -> None:
        """One model call for the open requests of all entries."""
        began = time.perf_counter()
        sessions = [entry.session for entry in entries]
        segments = [entry.session.open(entry.request, self.device) for entry in entries if entry.request is not None]
        hidden_TD = self._hidden([segment for segment in segments if segment.tokens_RW.numel()])
        needed = [session.needed() for session in sessions]
        read = [session.read_here(rows) for session, (rows, _) in zip(sessions, needed)]
        here = [(rows[part], columns[part]) for (rows, columns), part in zip(needed, read)]
        offsets = np.cumsum([0] + [segment.tokens_RW.numel() for segment in segments])
        flat = [
            offset + (rows - session.first_row) * segment.tokens_RW.shape[1] + columns
            for offset, segment, session, (rows, columns) in zip(offsets, segments, sessions, here)
        ]
        for readout, members in group_by_readout(entries):
            number = len(entries[members[0]].step_s)  # of the decode: draws are made sample by sample
            among = read[members[0]].start, len(needed[members[0]][0])
            change = partial(change_of, [(sessions[i], *here[i]) for i in members])
            logits_NV = self._logits(hidden_TD, readout, [(segments[i], flat[i]) for i in members])
            asked = [(sessions[i].request, *here[i]) for i in members]
            beside = beside_all(asked, readout, self.config.shifted)
            values = read_out(logits_NV, readout, self.config.mask_id, number, change, among, beside)
            at = 0
            for i in members:
                count = len(flat[i])
                part = {name: value[at : at + count] for name, value in values.items()}
                at += count
                entries[i].receive(*needed[i], sessions[i].of_all(part, needed[i][0]), time.perf_counter() - began)

    def _hidden(self, segments: list[Segment]) -> Tensor:
        """Hidden states [T, D] of the packed tokens of these segments; another process may have all of them."""
        if segments:
            hidden_TD: Tensor = self.model(segments, keep=True)
            return hidden_TD
        return torch.zeros(0, self.config.hidden_size, dtype=self.dtype, device=self.device)

    def _logits(self, hidden_TD: Tensor, readout: Readout, read: list[tuple[Segment, np.ndarray]]) -> Tensor:
        """Logits [N, V] of the packed tokens that are read, guided where each segment holds its rows twice."""
        index = np.concatenate([flat for _, flat in read])
        logits_NV = self.model.logits(hidden_TD[torch.from_numpy(index).to(self.device)])
        if not readout.cfg_scale:
            return logits_NV
        twins = np.concatenate([flat + segment.tokens_RW.numel() // 2 for segment, flat in read])
        without_NV = self.model.logits(hidden_TD[torch.from_numpy(twins).to(self.device)])
        return guided(logits_NV, without_NV, readout.cfg_scale)

    def _claim(self, prompt: Sequence[int]) -> tuple[KVCache, int]:
        """A cache for this prompt, and how many of its first positions hold it already."""
        cache = self._free.pop() if self._free else self.new_cache()
        shared = 0
        if self.prefix_reuse != "off":
            shared = next((i for i, (a, b) in enumerate(zip(cache.prompt, prompt)) if a != b), len(prompt))
            shared = min(shared, len(cache.prompt), len(prompt) - 1, cache.held)  # the last token is always fed
            if self.prefix_reuse == "exact" and list(cache.prompt) != list(prompt):
                shared = 0
        cache.prompt, cache.held = tuple(prompt), shared
        return cache, shared

    def _finish(self, entry: Running, batch: int) -> Outcome:
        outcome = entry.outcome
        assert outcome is not None
        if outcome.status != "non_finite":  # what it left in its cache might be multiplied with a mask's zeros
            self._free.append(entry.session.cache)
        if batch > 1:
            outcome.step_s, outcome.prefill_s, outcome.total_s = [], None, None
        return outcome


class Running:
    """A decode under way."""

    def __init__(self, decode: Decode, session: Session, cached: int):
        self.cached = cached
        self.decode = decode
        self.session = session
        self.request: Request | None = None
        self.outcome: Outcome | None = None
        self.step_s: list[float] = []
        self.began = time.perf_counter()

    def send(self, prediction: Prediction | None) -> bool:
        """Hands a prediction to the decoder; False when it has finished."""
        try:
            self.request = next(self.decode) if prediction is None else self.decode.send(prediction)
        except StopIteration as stop:
            self._end(stop.value, stop.value.finish_reason)
            return False
        return True

    def receive(self, rows: np.ndarray, columns: np.ndarray, values: dict[str, np.ndarray], seconds: float) -> None:
        self.step_s.append(seconds)
        try:
            prediction = self.session.close(rows, columns, values)
        except NonFinite as reason:
            self.decode.close()
            self._end(None, "non_finite", str(reason))
        else:
            self.send(prediction)

    def _end(self, generation: Generation | None, status: str, error: str | None = None) -> None:
        total = time.perf_counter() - self.began
        prefill = self.step_s[0] if self.step_s else None
        traffic = self.session.traffic
        self.outcome = Outcome(generation, status, self.cached, self.step_s, prefill, total, error, traffic)


def change_of(parts: Sequence[tuple[Session, np.ndarray, np.ndarray]], p_NV: Tensor) -> Tensor:
    """The measure "kl" [N] of the distributions of a call, session by session."""
    pieces = p_NV.split([len(rows) for _, rows, _ in parts])
    found = [session.change(rows, columns, piece) for (session, rows, columns), piece in zip(parts, pieces)]
    return torch.cat(found)


def group_by_readout(entries: list[Running]) -> list[tuple[Readout, list[int]]]:
    """Entry numbers by readout; in practice one group. Samples that draw tokens stand alone."""
    groups: dict[tuple[Readout, int], list[int]] = {}
    for i, entry in enumerate(entries):
        assert entry.request is not None
        readout = entry.request.readout
        groups.setdefault((readout, i if readout.temperature else 0), []).append(i)
    return [(readout, members) for (readout, _), members in groups.items()]
