"""What a call of the network carries: segments, the cache they stand on, and how their positions see each other.

A segment is one sample: R rows (the branches) of W positions on top of one shared cached prefix of P positions. Rows
never see each other.

Shape suffixes: R rows, W window, P cached positions, K key-value heads, E head size, L layers.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from lopa_bench.models.config import ModelConfig


class KVCache:
    """Static buffers for the keys (after rotation) and values of the committed positions of one sample."""

    def __init__(self, config: ModelConfig, max_length: int, device: torch.device, dtype: torch.dtype):
        shape = (config.layers, config.kv_heads, max_length, config.head_dim)
        self.k_LKPE = torch.zeros(shape, device=device, dtype=dtype)
        self.v_LKPE = torch.zeros(shape, device=device, dtype=dtype)
        self.max_length = max_length
        self.prompt: tuple[int, ...] = ()  # whose positions it holds, for reuse by a later request ...
        self.held = 0  # ... as far as they were kept before that text ended

    def write(self, layer: int, start: int, k_KWE: Tensor, v_KWE: Tensor) -> None:
        """Puts keys and values [K, W, E] of one layer at positions [start, start + W)."""
        end = start + k_KWE.shape[1]
        self.k_LKPE[layer, :, start:end] = k_KWE
        self.v_LKPE[layer, :, start:end] = v_KWE


@dataclass
class Segment:
    """R rows of W tokens at positions [start, start + W), on the cached positions that they may see.

    They see cache[0, start) and, where `suffix` = (from, to) is given, cache[from, to) as well.
    `mask` is additive, broadcastable to [R, W, W], and rules what the rows' own positions see of each other.
    `shadow` = (from, to): the last to - from columns stand at these positions again.
    After a forward `window` holds each layer's (k, v), both [R, K, W, E], so that one row can be committed.
    """

    tokens_RW: Tensor
    start: int = 0
    cache: KVCache | None = None
    suffix: tuple[int, int] | None = None
    mask: Tensor | None = None
    shadow: tuple[int, int] | None = None
    window: list[tuple[Tensor, Tensor]] | None = None

    def positions(self) -> Tensor:
        """Where the columns of a row stand [W]."""
        W, device = self.tokens_RW.shape[1], self.tokens_RW.device
        if self.shadow is None:
            return torch.arange(self.start, self.start + W, device=device)
        shadow = torch.arange(*self.shadow, device=device)
        return torch.cat([torch.arange(self.start, self.start + W - len(shadow), device=device), shadow])

    def commit(self, row: int, start: int, end: int) -> None:
        """Copies what `row` computed for positions [start, end) in the last forward into the cache."""
        assert self.window is not None, "nothing to commit before a forward"
        assert self.cache is not None, "nothing to commit to"
        lo, hi = start - self.start, end - self.start
        assert 0 <= lo < hi <= self.tokens_RW.shape[1], f"[{start}, {end}) is not inside the last window"
        for layer, (k_RKWE, v_RKWE) in enumerate(self.window):
            self.cache.write(layer, start, k_RKWE[row, :, lo:hi], v_RKWE[row, :, lo:hi])


def block_causal_mask(block_W: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """Additive mask [W, W]: a position sees all positions of its own block and of earlier blocks (D2F, section 3)."""
    hidden = block_W[None, :] > block_W[:, None]
    return torch.zeros(hidden.shape, dtype=dtype, device=block_W.device).masked_fill(hidden, -torch.inf)


def shadow_mask(visible_WW: Tensor, first: int, shadows: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Additive mask [X, X] of W positions and a shadow of each of the `shadows` positions from column `first` on.

    `visible_WW`: what a position sees of the others. Its shadow sees the same but for the position itself, and all
    shadows; no position sees a shadow (WINO, arXiv 2507.18578).
    """
    width = len(visible_WW)
    visible = torch.zeros(width + shadows, width + shadows, dtype=torch.bool, device=visible_WW.device)
    visible[:width, :width] = visible_WW
    visible[width:, :width] = visible_WW[first : first + shadows]
    visible[width:, first : first + shadows].fill_diagonal_(False)
    visible[width:, width:] = True
    return torch.zeros(visible.shape, dtype=dtype, device=visible.device).masked_fill(~visible, -torch.inf)
