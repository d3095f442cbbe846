"""The model's side of one decode: what its cache holds, what a request needs, and what its prediction is."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from decoders.types import CHANGE, SHADOW, Keep, Prediction, Request
from lopa_bench.backends.beside import attention_mask, fed, from_shadows, shadowed
from lopa_bench.backends.outcome import Traffic
from lopa_bench.backends.readout import Before
from lopa_bench.models.network.segments import KVCache, Segment


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
        self.first_row = 0  # of those of the open request that this process computes
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
        tokens_RW = torch.from_numpy(fed(request, self.mask_id)).to(device)
        mask = attention_mask(request, device, self.cache.k_LKPE.dtype)
        shadow = None
        if request.shadow is not None:
            shadow = request.shadow[0] - self.shifted, request.shadow[1] - self.shifted
        self.segment = Segment(tokens_RW, request.start, self.cache, request.suffix, mask, shadow)
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
        """Rows, in rising order, and columns of the raw logits that the masks of the request call for, and what it asks
        for beside them.

        Columns from the window's width on are shadows. With a shifted model a mask at column w is predicted at w - 1;
        column 0 is predicted by the kept forward; what lies behind a row, by its last position.
        """
        assert self.request is not None
        ids, lengths = self.request.ids, self.request.lengths
        wanted_RW = ids == self.mask_id
        if self.request.predict is not None:
            lo, hi = self.request.predict
            wanted_RW[:, lo - self.request.start : hi - self.request.start] = True
        wanted_RW &= np.arange(ids.shape[1]) < lengths[:, None]
        if self.shifted:
            wanted_RX = np.pad(wanted_RW, ((0, 0), (0, 1)))
            if self.request.behind:
                wanted_RX[np.arange(len(lengths)), lengths] = True
            wanted_RW = wanted_RX[:, 1:]
        rows, columns = np.nonzero(np.concatenate([wanted_RW, shadowed(self.request, self.mask_id)], 1))
        return rows, columns

    def read_here(self, rows_N: np.ndarray) -> slice:
        """Those of the needed positions that this process reads out, by their rows in rising order: all of them."""
        return slice(0, len(rows_N))

    def of_all(self, values: dict[str, np.ndarray], rows_N: np.ndarray) -> dict[str, np.ndarray]:
        """The values [N] of all needed positions from those that were read here."""
        return values

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
        if self.request.shadow is not None:
            text = columns < width
            arrays[SHADOW] = from_shadows(self.request, rows[~text], columns[~text], values[SHADOW][~text])
            values = {name: value[text] for name, value in values.items() if name != SHADOW}
            rows, columns = rows[text], columns[text]
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
