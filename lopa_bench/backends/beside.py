"""What a call needs beside the tokens of its rows: who sees whom, shadows, and what stands next to what is read.

Columns of a row count its window; from the window's width on they are the shadows (`Request.shadow`), in order.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from decoders.types import SHADOW, Readout, Request
from lopa_bench.backends.readout import Beside
from lopa_bench.models.network.segments import block_causal_mask, shadow_mask


def fed(request: Request, mask_id: int) -> np.ndarray:
    """The rows of the call: those of the request with their shadows, and behind them the same without their prompt if
    it asks for that.
    """
    shadows = np.full((len(request.ids), request.shadows), mask_id)
    rows_RW = np.concatenate([request.ids, shadows], 1)
    if not request.unconditional:
        return rows_RW
    without_RW = rows_RW.copy()
    without_RW[:, : request.unconditional] = mask_id
    return np.concatenate([rows_RW, without_RW])


def attention_mask(request: Request, device: torch.device, dtype: torch.dtype) -> Tensor | None:
    """Additive attention mask over the window: shadows, or block-causal, or rows shorter than the window, or none."""
    width = request.ids.shape[1]
    if request.shadow is not None:
        assert (request.lengths == width).all(), "shadows stand on rows of one length"
        blocks = np.zeros(width) if request.blocks is None else request.blocks
        visible = torch.from_numpy(blocks[None] <= blocks[:, None]).to(device)
        return shadow_mask(visible, request.shadow[0] - request.start, request.shadows, dtype)
    if request.blocks is not None:
        if request.blocks[0] == request.blocks[-1]:
            return None
        return block_causal_mask(torch.from_numpy(request.blocks).to(device), dtype)
    if (request.lengths == width).all():
        return None
    beyond_RW = np.tile(np.arange(width) >= request.lengths[:, None], (request.passes, 1))
    mask_R1W = torch.zeros(len(beyond_RW), 1, width, dtype=dtype)
    return mask_R1W.masked_fill(torch.from_numpy(beyond_RW)[:, None], -torch.inf).to(device)


def shadowed(request: Request, mask_id: int) -> np.ndarray:
    """Which shadows [R, S] are those of filled positions."""
    if request.shadow is None:
        return np.zeros((len(request.ids), 0), dtype=bool)
    lo, hi = (position - request.start for position in request.shadow)
    return request.ids[:, lo:hi] != mask_id


def from_shadows(request: Request, rows: np.ndarray, columns: np.ndarray, values: np.ndarray) -> np.ndarray:
    """The values [N] of shadows at their positions [R, W]."""
    assert request.shadow is not None
    array = np.zeros(request.ids.shape, np.float32)
    array[rows, columns - request.ids.shape[1] + request.shadow[0] - request.start] = values
    return array


def beside_all(
    parts: Sequence[tuple[Request | None, np.ndarray, np.ndarray]], readout: Readout, shifted: bool
) -> Beside | None:
    """What stands beside the positions read at (rows, columns) of each request, if the readout asks for it."""
    if SHADOW not in readout.measures and not readout.penalty and not readout.fading:
        return None
    found = [_beside(request, rows, columns, shifted) for request, rows, columns in parts if request is not None]
    given, left, fade = (np.concatenate(part) for part in zip(*((one.given, one.left, one.fade) for one in found)))
    return Beside(given, left, fade)


def _beside(request: Request, rows: np.ndarray, columns: np.ndarray, shifted: bool) -> Beside:
    """A shadow is asked for the token that stands at its position; a position of the text is told its left neighbour,
    if that one is of the same block.
    """
    width = request.ids.shape[1]
    shadow = columns >= width
    first = request.shadow[0] - request.start if request.shadow else 0
    at = np.where(shadow, columns - width + first, columns + shifted)
    given = np.where(shadow, request.ids[rows, np.minimum(at, width - 1)], -1)
    blocks = np.append(np.zeros(width, np.int64) if request.blocks is None else request.blocks, -1)
    same = (at > 0) & (blocks[at] == blocks[at - 1]) & ~shadow
    fade = np.zeros(len(rows)) if request.fade is None else request.fade[rows]
    return Beside(given, np.where(same, request.ids[rows, at - 1], -1), fade)
