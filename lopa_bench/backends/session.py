"""The model's side of one decode: what its cache holds, what a request needs, and what its prediction is."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from decoders.types import CHANGE, Keep, Prediction, Request
from lopa_bench.backends.outcome import Traffic
from lopa_bench.backends.readout import Before
from lopa_bench.models.network.segments import KVCache, Segment, block_causal_mask


class NonFinite(ArithmeticError):
    """The model gave logits that are not finite; the sample cannot be decoded."""


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
        self.traffic: list[Traffic] | None = None  # of each forward, where other processes take part

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
        assert self.last is not None, "keep before the first forward"
        self._commit(keep)
        self.cache.held = max(self.cache.held, keep.end)
        start, arrays = self.last
        self.kept = start, {name: values[keep.row] for name, values in arrays.items()}

    def _commit(self, keep: Keep) -> None:
        assert self.segment is not None
        self.segment.commit(keep.row, keep.start, keep.end)

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
