"""Grouped-query attention over segments: the shared cached prefix is read once for all rows.

Shape suffixes: T packed tokens, R rows, W window, P cached positions, D width, H query heads, K key-value heads,
G = H / K, E head size, S rotated numbers of a head.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lopa_bench.models.config import ModelConfig
from lopa_bench.models.network.norm import RMSNorm
from lopa_bench.models.network.rotary import rotate
from lopa_bench.models.network.segments import Segment

# From this many scores a row on, the fused kernel beats explicit matrix products (measured on CPU).
FUSED_FROM = 256 * 256


def attend(
    q_RKGWE: Tensor,
    k_RKWE: Tensor,
    v_RKWE: Tensor,
    past: tuple[Tensor, Tensor] | None,
    mask: Tensor | None,
    past_mask_P: Tensor | None = None,
    kernel: str = "auto",
) -> Tensor:
    """Attention of R rows over their own window and a shared past (k, v both [K, P, E]); returns like q.

    The softmax runs over both parts together, in float32. `mask` applies to the own window alone, `past_mask_P` to the
    past, which is then never handed to the fused kernel. `kernel`: "products", "fused", or "auto" by the size.
    """
    R, K, G, W, E = q_RKGWE.shape
    is_fused = kernel == "fused" or (kernel == "auto" and R == 1 and W * W >= FUSED_FROM)
    if is_fused and past_mask_P is None:
        return _attend_fused(q_RKGWE, k_RKWE, v_RKWE, past, mask)
    q = q_RKGWE * (1.0 / math.sqrt(E))
    own_RKGWW = (q.reshape(R * K, G * W, E) @ k_RKWE.reshape(R * K, W, E).transpose(1, 2)).view(R, K, G, W, W)
    if mask is not None:
        own_RKGWW = own_RKGWW + (mask if mask.dim() == 2 else mask[:, None, None])
    if past is None:
        p_own = torch.softmax(own_RKGWW, -1, dtype=torch.float32).to(q.dtype)
        return (p_own.reshape(R * K, G * W, W) @ v_RKWE.reshape(R * K, W, E)).view(R, K, G, W, E)
    k_KPE, v_KPE = past
    P = k_KPE.shape[1]
    q_KXE = q.transpose(0, 1).reshape(K, R * G * W, E)  # all rows read the shared past in one product
    past_RKGWP = (q_KXE @ k_KPE.transpose(1, 2)).view(K, R, G, W, P).transpose(0, 1)
    if past_mask_P is not None:
        past_RKGWP = past_RKGWP + past_mask_P
    p = torch.softmax(torch.cat([past_RKGWP, own_RKGWW], -1), -1, dtype=torch.float32).to(q.dtype)
    p_past, p_own = p.split([P, W], -1)
    out_past = (p_past.transpose(0, 1).reshape(K, R * G * W, P) @ v_KPE).view(K, R, G, W, E).transpose(0, 1)
    out_own = (p_own.reshape(R * K, G * W, W) @ v_RKWE.reshape(R * K, W, E)).view(R, K, G, W, E)
    return out_past + out_own


def _attend_fused(
    q_RKGWE: Tensor, k_RKWE: Tensor, v_RKWE: Tensor, past: tuple[Tensor, Tensor] | None, mask: Tensor | None
) -> Tensor:
    """The same through torch's fused kernel, which pays for one row with a long window (prefill, whole-canvas
    decoding): each row gets the past for itself.
    """
    R, K, G, W, E = q_RKGWE.shape
    if past is not None:
        k_RKWE = torch.cat([past[0].expand(R, -1, -1, -1), k_RKWE], 2)
        v_RKWE = torch.cat([past[1].expand(R, -1, -1, -1), v_RKWE], 2)
        if mask is not None:
            mask = F.pad(mask.expand(W, W) if mask.dim() == 2 else mask.expand(R, W, W), (past[0].shape[1], 0))
    if mask is not None and mask.dim() == 3:
        mask = mask[:, None]
    q_RHWE = q_RKGWE.reshape(R, K * G, W, E)
    out = F.scaled_dot_product_attention(
        q_RHWE, k_RKWE.repeat_interleave(G, 1), v_RKWE.repeat_interleave(G, 1), attn_mask=mask
    )
    return out.view(R, K, G, W, E)


class Attention(nn.Module):
    def __init__(self, config: ModelConfig):
        super().__init__()
        self.config = config
        self.kernel = "auto"
        H, K, E, D = config.heads, config.kv_heads, config.head_dim, config.hidden_size
        self.qkv_proj = nn.Linear(D, (H + 2 * K) * E, bias=config.qkv_bias)
        self.o_proj = nn.Linear(H * E, D, bias=False)
        self.q_norm = RMSNorm(E, config.rms_eps) if config.qk_norm else None
        self.k_norm = RMSNorm(E, config.rms_eps) if config.qk_norm else None

    def forward(
        self, x_TD: Tensor, cos_TS: Tensor, sin_TS: Tensor, segments: list[Segment], layer: int, keep: bool
    ) -> Tensor:
        qk_TNE, v_TKE = self._rotated(x_TD, cos_TS, sin_TS)
        outs, at = [], 0
        for segment in segments:
            R, W = segment.tokens_RW.shape
            part = slice(at, at + R * W)
            at += R * W
            q_RKGWE, k_RKWE, v_RKWE = self._in_rows(qk_TNE[part], v_TKE[part], R)
            if keep:
                assert segment.window is not None
                segment.window.append((k_RKWE, v_RKWE))
            out = attend(q_RKGWE, k_RKWE, v_RKWE, _past(segment, layer), segment.mask, kernel=self.kernel)
            outs.append(out.permute(0, 3, 1, 2, 4).reshape(R * W, -1))
        return self.o_proj(outs[0] if len(outs) == 1 else torch.cat(outs))

    def heads(self, x_TD: Tensor, cos_TS: Tensor, sin_TS: Tensor, rows: int) -> tuple[Tensor, Tensor, Tensor]:
        """Queries [R, K, G, W, E], keys and values [R, K, W, E] of R rows of equal length."""
        return self._in_rows(*self._rotated(x_TD, cos_TS, sin_TS), rows)

    def _rotated(self, x_TD: Tensor, cos_TS: Tensor, sin_TS: Tensor) -> tuple[Tensor, Tensor]:
        """Queries and keys [T, H + K, E], normed and rotated; values [T, K, E]."""
        H, K, E = self.config.heads, self.config.kv_heads, self.config.head_dim
        qkv_TNE = self.qkv_proj(x_TD).view(-1, H + 2 * K, E)
        if self.q_norm is not None and self.k_norm is not None:
            qk_TNE = torch.cat([self.q_norm(qkv_TNE[:, :H]), self.k_norm(qkv_TNE[:, H : H + K])], 1)
        else:
            qk_TNE = qkv_TNE[:, : H + K]
        return rotate(qk_TNE, cos_TS, sin_TS), qkv_TNE[:, H + K :]

    def _in_rows(self, qk_TNE: Tensor, v_TKE: Tensor, R: int) -> tuple[Tensor, Tensor, Tensor]:
        H, K, E = self.config.heads, self.config.kv_heads, self.config.head_dim
        W = len(qk_TNE) // R
        q_RKGWE = qk_TNE[:, :H].view(R, W, K, H // K, E).permute(0, 2, 3, 1, 4)
        return q_RKGWE, qk_TNE[:, H:].view(R, W, K, E).transpose(1, 2), v_TKE.view(R, W, K, E).transpose(1, 2)


def _past(segment: Segment, layer: int) -> tuple[Tensor, Tensor] | None:
    """Keys and values [K, P, E] of the cached positions that a segment sees."""
    cache = segment.cache
    if cache is None or (segment.start == 0 and segment.suffix is None):
        return None
    k, v = cache.k_LKPE[layer], cache.v_LKPE[layer]
    if segment.suffix is None:
        return k[:, : segment.start], v[:, : segment.start]
    lo, hi = segment.suffix
    return torch.cat([k[:, : segment.start], k[:, lo:hi]], 1), torch.cat([v[:, : segment.start], v[:, lo:hi]], 1)
