"""Rotary positions by half-rotation, of a whole head or of its first numbers.

Shape suffixes: T tokens, N heads, E head size, S rotated numbers of a head (S <= E).
"""

from __future__ import annotations

import torch
from torch import Tensor

from lopa_bench.models.config import ModelConfig


def rotary_table(config: ModelConfig, length: int) -> tuple[Tensor, Tensor]:
    """cos and sin [length, S], computed in float32."""
    size = config.rotary_size or config.head_dim
    freq = 1.0 / config.rope_theta ** (torch.arange(0, size, 2).float() / size)
    angle = torch.outer(torch.arange(length).float(), freq)
    angle = torch.cat([angle, angle], -1)
    return angle.cos(), angle.sin()


def rotate(x_TNE: Tensor, cos_TS: Tensor, sin_TS: Tensor) -> Tensor:
    """Rotates the first S numbers of every head, in the wider of the two dtypes; returns like x."""
    size = cos_TS.shape[-1]
    if size < x_TNE.shape[-1]:
        return torch.cat([rotate(x_TNE[..., :size], cos_TS, sin_TS), x_TNE[..., size:]], -1)
    lo, hi = x_TNE.chunk(2, -1)
    return (x_TNE * cos_TS[:, None] + torch.cat([-hi, lo], -1) * sin_TS[:, None]).to(x_TNE.dtype)
