"""One device: runs decoders against the network, several samples in one call if asked to."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from decoders.types import CHANGE, Decode, Generation, Keep, Prediction, Readout, Request
from lopa_bench.backends.outcome import Outcome
from lopa_bench.backends.readout import Before, guided, read_out
from lopa_bench.models.network.segments import KVCache, Segment, block_causal_mask
from lopa_bench.models.network.transformer import Transformer


class NonFinite(ArithmeticError):
    """The model gave logits that are not finite; the sample cannot be decoded."""


@dataclass(frozen=True)
class Pending:
    """A decode to be started when its turn comes: `start(cached)`, with `cached` prompt positions in the cache."""

    prompt: Sequence[int]
    start: Callable[[int], Decode]


class Session:
    """The model's side of one decode: its cache, and what the last forward computed."""

    def __init__(self, cache: KVCache, shifted: bool, mask_id: int):
        self.cache = cache
        self.shifted = shifted
        self.mask_id = mask_id
        self.segment: Segment | None = None
        self.last: tuple[int, dict[str, np.ndarray]] | None = None  # start and arrays [R, W] of the last prediction
        self.kept: tuple[int, dict[str, np.ndarray]] | None = None  # the same of the last kept row, arrays [W]
        self.before = Before()
        self.request: Request | None = None

    def open(self, request: Request, device: torch.device) -> Segment:
        """Carries out `keep` and lays out the call. Raises ValueError for a text that is longer than the cache."""
        if request.keep:
            self._keep(request.keep)
        end = request.start + request.ids.shape[1]
        if end > self.cache.max_length:
            raise ValueError(
                f"a text of {end} positions is too long; allowed: {self.cache.max_length} (model.max_length)"
            )
        self.request = request
        self.before.follow(request.follows)
        tokens_RW = torch.from_numpy(_fed(request, self.mask_id)).to(device)
        self.segment = Segment(tokens_RW, request.start, self.cache, request.suffix, _mask(request, device, self.cache))
        return self.segment

    def _keep(self, keep: Keep) -> None:
        assert self.segment is not None, "keep before the first forward"
        assert self.last is not None
        self.segment.commit(keep.row, keep.start, keep.end)
        self.cache.held = max(self.cache.held, keep.end)
        start, arrays = self.last
        self.kept = start, {name: values[keep.row] for name, values in arrays.items()}

    def needed(self) -> tuple[np.ndarray, np.ndarray]:
        """Rows and window columns of the raw logits that the masks of the request call for.

        With a shifted model a mask at column w is predicted at w - 1; column 0 is predicted by the kept forward; what
        lies behind a row, by its last position.
        """
        assert self.request is not None
        ids, lengths = self.request.ids, self.request.lengths
        wanted_RW = (ids == self.mask_id) & (np.arange(ids.shape[1]) < lengths[:, None])
        if not self.shifted:
            rows, columns = np.nonzero(wanted_RW)
            return rows, columns
        wanted_RX = np.pad(wanted_RW, ((0, 0), (0, 1)))
        if self.request.behind:
            wanted_RX[np.arange(len(lengths)), lengths] = True
        rows, columns = np.nonzero(wanted_RX[:, 1:])
        return rows, columns

    def change(self, rows: np.ndarray, columns: np.ndarray, p_NV: Tensor) -> Tensor:
        """The measure "kl" [N] of the distributions read at (rows, columns), which are noted for the next call."""
        assert self.request is not None
        return self.before.change(rows, self.request.start + columns + self.shifted, p_NV)

    def close(self, rows: np.ndarray, columns: np.ndarray, values: dict[str, np.ndarray]) -> Prediction:
        """The prediction from the values [N] read at (rows, columns). Raises NonFinite."""
        assert self.request is not None
        if not np.isfinite(values["prob"]).all():
            raise NonFinite("the model's logits are not finite")
        arrays = {}
        height, width = self.request.ids.shape
        for name, value in values.items():
            array = np.zeros((height, width + self.request.behind), dtype=value.dtype)
            array[rows, columns + 1 if self.shifted else columns] = value
            if name == "token" and self.request.behind and not self.shifted:
                array[:, -1] = -1
            if self.shifted and self.kept is not None:
                array[:, 0] = self._boundary(name)
            arrays[name] = array
        self.last = self.request.start, arrays
        extra = {name: array for name, array in arrays.items() if name not in ("token", "prob")}
        return Prediction(arrays["token"], arrays["prob"], extra)

    def _boundary(self, name: str) -> np.ndarray | int:
        """What the kept forward predicted for the first position of the window. It stands as it was: its kl is 0."""
        if name == CHANGE:
            return 0
        assert self.kept is not None
        assert self.request is not None
        start, arrays = self.kept
        at = self.request.start - start
        return arrays[name][at] if 0 <= at < len(arrays[name]) else 0


def _fed(request: Request, mask_id: int) -> np.ndarray:
    """The rows of the call: those of the request, and behind them the same without their prompt if it asks for it."""
    if not request.unconditional:
        return request.ids
    without_RW = request.ids.copy()
    without_RW[:, : request.unconditional] = mask_id
    return np.concatenate([request.ids, without_RW])


def _mask(request: Request, device: torch.device, cache: KVCache) -> Tensor | None:
    """Additive attention mask over the window: block-causal, or rows shorter than the window, or none."""
    dtype = cache.k_LKPE.dtype
    if request.blocks is not None:
        if request.blocks[0] == request.blocks[-1]:
            return None
        return block_causal_mask(torch.from_numpy(request.blocks).to(device), dtype)
    width = request.ids.shape[1]
    if (request.lengths == width).all():
        return None
    beyond_RW = np.tile(np.arange(width) >= request.lengths[:, None], (request.passes, 1))
    mask_R1W = torch.zeros(len(beyond_RW), 1, width, dtype=dtype)
    return mask_R1W.masked_fill(torch.from_numpy(beyond_RW)[:, None], -torch.inf).to(device)


class LocalBackend:
    """Feeds decoders from one network on one device."""

    name = "local"

    def __init__(self, model: Transformer, max_length: int | None = None, prefix_reuse: str = "off"):
        """`prefix_reuse`: whether a request starts from the prompt positions that it shares with an earlier one on the
        same cache: "off"; "exact", only if the whole prompt is the same; "approximate", the longest common prefix,
        whose keys and values have seen the rest of the earlier prompt.
        """
        self.model = model.eval()
        self.config = model.config
        self.max_length = max_length or model.config.max_positions
        self.prefix_reuse = prefix_reuse
        weight = model.embed.weight
        self.device, self.dtype = weight.device, weight.dtype
        self._free: list[KVCache] = []

    def new_cache(self) -> KVCache:
        """Buffers for one text of up to `max_length` positions."""
        return KVCache(self.config, self.max_length, self.device, self.dtype)

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
        running: dict[int, _Running] = {}
        while True:
            while len(running) < batch and (item := next(waiting, None)) is not None:
                number, job = item
                cache, cached = self._claim(job.prompt)
                session = Session(cache, self.config.shifted, self.config.mask_id)
                entry = _Running(job.start(cached), session, cached)
                if entry.send(None):
                    assert entry.request is not None
                    entry.cached = min(cached, entry.request.start)  # a decoder may take less of it
                    running[number] = entry
                else:
                    yield number, self._finish(entry, batch)
            if not running:
                return
            self._forward(list(running.values()))
            for number in [number for number, entry in running.items() if entry.outcome is not None]:
                yield number, self._finish(running.pop(number), batch)

    @torch.inference_mode()
    def _forward(self, entries: list[_Running]) -> None:
        """One model call for the open requests of all entries."""
        began = time.perf_counter()
        segments = [entry.session.open(entry.request, self.device) for entry in entries if entry.request is not None]
        hidden_TD = self.model(segments, keep=True)
        needed = [entry.session.needed() for entry in entries]
        offsets = np.cumsum([0] + [segment.tokens_RW.numel() for segment in segments])
        flat = [
            offset + rows * segment.tokens_RW.shape[1] + columns
            for offset, segment, (rows, columns) in zip(offsets, segments, needed)
        ]
        for readout, members in _group_by_readout(entries):
            index = torch.from_numpy(np.concatenate([flat[i] for i in members])).to(self.device)
            number = len(entries[members[0]].step_s)  # of the decode: draws are made sample by sample
            change = partial(_change, [(entries[i].session, *needed[i]) for i in members])
            logits_NV = self.model.logits(hidden_TD[index])
            if readout.cfg_scale:
                twins = np.concatenate([flat[i] + segments[i].tokens_RW.numel() // 2 for i in members])
                without_NV = self.model.logits(hidden_TD[torch.from_numpy(twins).to(self.device)])
                logits_NV = guided(logits_NV, without_NV, readout.cfg_scale)
            values = read_out(logits_NV, readout, self.config.mask_id, number, change)
            at = 0
            for i in members:
                count = len(flat[i])
                part = {name: value[at : at + count] for name, value in values.items()}
                at += count
                entries[i].receive(*needed[i], part, time.perf_counter() - began)

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

    def _finish(self, entry: _Running, batch: int) -> Outcome:
        self._free.append(entry.session.cache)
        outcome = entry.outcome
        assert outcome is not None
        if batch > 1:
            outcome.step_s, outcome.prefill_s, outcome.total_s = [], None, None
        return outcome


class _Running:
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
        self.outcome = Outcome(generation, status, self.cached, self.step_s, prefill, total, error)


def _change(parts: list[tuple[Session, np.ndarray, np.ndarray]], p_NV: Tensor) -> Tensor:
    """The measure "kl" [N] of the distributions of a call, session by session."""
    pieces = p_NV.split([len(rows) for _, rows, _ in parts])
    found = [session.change(rows, columns, piece) for (session, rows, columns), piece in zip(parts, pieces)]
    return torch.cat(found)


def _group_by_readout(entries: list[_Running]) -> list[tuple[Readout, list[int]]]:
    """Entry numbers by readout; in practice one group. Samples that draw tokens stand alone."""
    groups: dict[tuple[Readout, int], list[int]] = {}
    for i, entry in enumerate(entries):
        assert entry.request is not None
        readout = entry.request.readout
        groups.setdefault((readout, i if readout.temperature else 0), []).append(i)
    return [(readout, members) for (readout, _), members in groups.items()]
