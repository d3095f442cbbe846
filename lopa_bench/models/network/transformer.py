"""One compact transformer for the dense diffusion language models (Dream, DiffuCoder, LLaDA, SDAR).

RMSNorm, rotary positions, grouped-query attention, SwiGLU. Attention is bidirectional unless a mask says otherwise.

A call carries *segments*. A segment is one sample: R rows (the branches) of W positions on top of one shared
cached prefix of P positions. Rows never see each other. All tokens of all segments go through the dense layers
as one packed axis T; only attention looks at segments, and the shared prefix is read once for all rows.

Shape suffixes: T packed tokens, R rows, W window, P cached positions, D width, H query heads, K key-value heads,
G = H / K, E head size, F feed-forward width, V vocabulary, L layers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lopa_bench.models.config import ModelConfig

# From this many scores a row on, the fused kernel beats explicit matrix products (measured on CPU).
FUSED_FROM = 256 * 256


class KVCache:
    """Static buffers for the keys (after rotation) and values of the committed positions of one sample."""

    def __init__(self, config: ModelConfig, max_length: int, device: torch.device, dtype: torch.dtype):
        shape = (config.layers, config.kv_heads, max_length, config.head_dim)
        self.k_LKPE = torch.zeros(shape, device=device, dtype=dtype)
        self.v_LKPE = torch.zeros(shape, device=device, dtype=dtype)
        self.max_length = max_length
        self.prompt: tuple[int, ...] = ()  # the prompt whose positions it holds, for reuse by a later request

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
    After a forward `window` holds each layer's (k, v), both [R, K, W, E], so that one row can be committed.
    """

    tokens_RW: Tensor
    start: int = 0
    cache: KVCache | None = None
    suffix: tuple[int, int] | None = None
    mask: Tensor | None = None
    window: list[tuple[Tensor, Tensor]] | None = None

    def commit(self, row: int, start: int, end: int) -> None:
        """Copies what `row` computed for positions [start, end) in the last forward into the cache."""
        assert self.window is not None, "nothing to commit before a forward"
        assert self.cache is not None, "nothing to commit to"
        lo, hi = start - self.start, end - self.start
        assert 0 <= lo < hi <= self.tokens_RW.shape[1], f"[{start}, {end}) is not inside the last window"
        for layer, (k_RKWE, v_RKWE) in enumerate(self.window):
            self.cache.write(layer, start, k_RKWE[row, :, lo:hi], v_RKWE[row, :, lo:hi])


class RMSNorm(nn.Module):
    def __init__(self, size: int, eps: float):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, (x.shape[-1],), self.weight, self.eps)


def rotary_table(config: ModelConfig, length: int) -> tuple[Tensor, Tensor]:
    """cos and sin [length, E], computed in float32."""
    freq = 1.0 / config.rope_theta ** (torch.arange(0, config.head_dim, 2).float() / config.head_dim)
    angle = torch.outer(torch.arange(length).float(), freq)
    angle = torch.cat([angle, angle], -1)
    return angle.cos(), angle.sin()


def rotate(x_TNE: Tensor, cos_TE: Tensor, sin_TE: Tensor) -> Tensor:
    """Half-rotation rotary embedding of N heads, in the wider of the two dtypes; returns like x."""
    lo, hi = x_TNE.chunk(2, -1)
    return (x_TNE * cos_TE[:, None] + torch.cat([-hi, lo], -1) * sin_TE[:, None]).to(x_TNE.dtype)


def attend(
    q_RKGWE: Tensor, k_RKWE: Tensor, v_RKWE: Tensor, past: tuple[Tensor, Tensor] | None, mask: Tensor | None
) -> Tensor:
    """Attention of R rows over their own window and a shared past (k, v both [K, P, E]); returns like q.

    The softmax runs over both parts together, in float32. `mask` applies to the own window alone.
    """
    R, K, G, W, E = q_RKGWE.shape
    if R == 1 and W * W >= FUSED_FROM:
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
    p = torch.softmax(torch.cat([past_RKGWP, own_RKGWW], -1), -1, dtype=torch.float32).to(q.dtype)
    p_past, p_own = p.split([P, W], -1)
    out_past = (p_past.transpose(0, 1).reshape(K, R * G * W, P) @ v_KPE).view(K, R, G, W, E).transpose(0, 1)
    out_own = (p_own.reshape(R * K, G * W, W) @ v_RKWE.reshape(R * K, W, E)).view(R, K, G, W, E)
    return out_past + out_own


def _attend_fused(
    q_RKGWE: Tensor, k_RKWE: Tensor, v_RKWE: Tensor, past: tuple[Tensor, Tensor] | None, mask: Tensor | None
) -> Tensor:
    """The same through torch's fused kernel: one row with a long window (prefill, whole-canvas decoding)."""
    R, K, G, W, E = q_RKGWE.shape
    if past is not None:
        k_RKWE = torch.cat([past[0][None], k_RKWE], 2)
        v_RKWE = torch.cat([past[1][None], v_RKWE], 2)
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
        H, K, E, D = config.heads, config.kv_heads, config.head_dim, config.hidden_size
        self.qkv_proj = nn.Linear(D, (H + 2 * K) * E, bias=config.qkv_bias)
        self.o_proj = nn.Linear(H * E, D, bias=False)
        self.q_norm = RMSNorm(E, config.rms_eps) if config.qk_norm else None
        self.k_norm = RMSNorm(E, config.rms_eps) if config.qk_norm else None

    def forward(
        self, x_TD: Tensor, cos_TE: Tensor, sin_TE: Tensor, segments: list[Segment], layer: int, keep: bool
    ) -> Tensor:
        c = self.config
        H, K, E = c.heads, c.kv_heads, c.head_dim
        qkv_TNE = self.qkv_proj(x_TD).view(-1, H + 2 * K, E)
        if self.q_norm is not None and self.k_norm is not None:
            qk_TNE = torch.cat([self.q_norm(qkv_TNE[:, :H]), self.k_norm(qkv_TNE[:, H : H + K])], 1)
        else:
            qk_TNE = qkv_TNE[:, : H + K]
        qk_TNE = rotate(qk_TNE, cos_TE, sin_TE)
        outs, at = [], 0
        for segment in segments:
            R, W = segment.tokens_RW.shape
            part = slice(at, at + R * W)
            at += R * W
            q_RKGWE = qk_TNE[part, :H].view(R, W, K, H // K, E).permute(0, 2, 3, 1, 4)
            k_RKWE = qk_TNE[part, H:].view(R, W, K, E).transpose(1, 2)
            v_RKWE = qkv_TNE[part, H + K :].view(R, W, K, E).transpose(1, 2)
            if keep:
                assert segment.window is not None
                segment.window.append((k_RKWE, v_RKWE))
            out = attend(q_RKGWE, k_RKWE, v_RKWE, _past(segment, layer), segment.mask)
            outs.append(out.permute(0, 3, 1, 2, 4).reshape(R * W, H * E))
        return self.o_proj(outs[0] if len(outs) == 1 else torch.cat(outs))


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


class MLP(nn.Module):
    def __init__(self, config: ModelConfig):
        super().__init__()
        self.gate_up_proj = nn.Linear(config.hidden_size, 2 * config.intermediate_size, bias=False)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, x_TD: Tensor) -> Tensor:
        gate_TF, up_TF = self.gate_up_proj(x_TD).chunk(2, -1)
        return self.down_proj(F.silu(gate_TF) * up_TF)


class Layer(nn.Module):
    def __init__(self, config: ModelConfig):
        super().__init__()
        self.attention_norm = RMSNorm(config.hidden_size, config.rms_eps)
        self.attention = Attention(config)
        self.mlp_norm = RMSNorm(config.hidden_size, config.rms_eps)
        self.mlp = MLP(config)

    def forward(
        self, x_TD: Tensor, cos_TE: Tensor, sin_TE: Tensor, segments: list[Segment], layer: int, keep: bool
    ) -> Tensor:
        x_TD = x_TD + self.attention(self.attention_norm(x_TD), cos_TE, sin_TE, segments, layer, keep)
        return x_TD + self.mlp(self.mlp_norm(x_TD))


class Transformer(nn.Module):
    """Token ids to hidden states; `logits` turns the hidden states that one needs into raw (unshifted) logits."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.config = config
        # Given its weight, an embedding is not initialised: on the meta device that alone would load a compiler.
        self.embed = nn.Embedding(
            config.vocab_size, config.hidden_size, _weight=torch.empty(config.vocab_size, config.hidden_size)
        )
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.layers))
        self.norm = RMSNorm(config.hidden_size, config.rms_eps)
        self.lm_head = None if config.tied else nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.cos: Tensor
        self.sin: Tensor
        if torch.get_default_device().type != "meta":
            self.place_tables(torch.get_default_device())

    def place_tables(self, device: torch.device) -> Transformer:
        """Computes the rotary tables on `device`; they are no parameters and no checkpoint holds them."""
        cos, sin = rotary_table(self.config, self.config.max_positions)
        self.register_buffer("cos", cos.to(device), persistent=False)
        self.register_buffer("sin", sin.to(device), persistent=False)
        return self

    def forward(self, segments: list[Segment], keep: bool = False) -> Tensor:
        """Hidden states [T, D] of all tokens of all segments, segment by segment, row by row.

        `keep=True` leaves every layer's keys and values in `segment.window` for a later `segment.commit`.
        """
        tokens_T = torch.cat([s.tokens_RW.reshape(-1) for s in segments])
        position_T = torch.cat([self._positions(s) for s in segments])
        x_TD = self.embed(tokens_T)
        dtype = torch.float32 if self.config.rope_float32 else x_TD.dtype
        cos_TE, sin_TE = self.cos[position_T].to(dtype), self.sin[position_T].to(dtype)
        if keep:
            for segment in segments:
                segment.window = []
        for i, layer in enumerate(self.layers):
            x_TD = layer(x_TD, cos_TE, sin_TE, segments, i, keep)
        return self.norm(x_TD)

    def _positions(self, segment: Segment) -> Tensor:
        R, W = segment.tokens_RW.shape
        return torch.arange(segment.start, segment.start + W, device=segment.tokens_RW.device).repeat(R)

    def hidden(self, tokens_RW: Tensor, mask: Tensor | None = None) -> Tensor:
        """Hidden states [R, W, D] of R independent sequences without a cache (training, parity checks)."""
        R, W = tokens_RW.shape
        return self([Segment(tokens_RW, mask=mask)]).view(R, W, -1)

    def logits(self, hidden: Tensor) -> Tensor:
        """Raw logits [..., V] in the model's dtype."""
        weight = self.embed.weight if self.lm_head is None else self.lm_head.weight
        return F.linear(hidden, weight)


def block_causal_mask(block_W: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """Additive mask [W, W]: a position sees all positions of its own block and of earlier blocks (D2F, section 3)."""
    hidden = block_W[None, :] > block_W[:, None]
    return torch.zeros(hidden.shape, dtype=dtype, device=block_W.device).masked_fill(hidden, -torch.inf)
