"""One compact transformer for the diffusion language models: dense or with mixtures of experts.

RMSNorm, rotary positions, grouped-query attention, SwiGLU; what differs between the families is in ModelConfig.
Attention is bidirectional unless a mask says otherwise. All tokens of all segments of a call go through the layers as
one packed axis T; only attention looks at segments (segments.py).

Shape suffixes: T packed tokens, R rows, W window, D width, S rotated numbers of a head, V vocabulary.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lopa_bench.models.config import ModelConfig
from lopa_bench.models.network.attention import Attention
from lopa_bench.models.network.feed_forward import MLP, MixtureOfExperts
from lopa_bench.models.network.norm import RMSNorm
from lopa_bench.models.network.rotary import rotary_table
from lopa_bench.models.network.segments import Segment


class Layer(nn.Module):
    def __init__(self, config: ModelConfig, number: int):
        super().__init__()
        self.attention_norm = RMSNorm(config.hidden_size, config.rms_eps)
        self.attention = Attention(config)
        self.mlp_norm = RMSNorm(config.hidden_size, config.rms_eps)
        self.mlp: nn.Module
        if config.has_experts(number):
            assert config.experts is not None
            self.mlp = MixtureOfExperts(config.hidden_size, config.experts)
        else:
            self.mlp = MLP(config.hidden_size, config.intermediate_size)

    def forward(
        self, x_TD: Tensor, cos_TS: Tensor, sin_TS: Tensor, segments: list[Segment], layer: int, keep: bool
    ) -> Tensor:
        x_TD = x_TD + self.attention(self.attention_norm(x_TD), cos_TS, sin_TS, segments, layer, keep)
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
        self.layers = nn.ModuleList(Layer(config, i) for i in range(config.layers))
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
        position_T = torch.cat([s.positions().repeat(len(s.tokens_RW)) for s in segments])
        x_TD, cos_TS, sin_TS = self.enter(tokens_T, position_T)
        if keep:
            for segment in segments:
                segment.window = []
        for i, layer in enumerate(self.layers):
            x_TD = layer(x_TD, cos_TS, sin_TS, segments, i, keep)
        return self.norm(x_TD)

    def enter(self, tokens_T: Tensor, position_T: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """What the first layer gets: embedded tokens [T, D], and cos and sin [T, S] of their positions."""
        x_TD = self.embed(tokens_T)
        dtype = torch.float32 if self.config.rope_float32 else x_TD.dtype
        return x_TD, self.cos[position_T].to(dtype), self.sin[position_T].to(dtype)

    def hidden(self, tokens_RW: Tensor, mask: Tensor | None = None) -> Tensor:
        """Hidden states [R, W, D] of R independent sequences without a cache (training, parity checks)."""
        R, W = tokens_RW.shape
        return self([Segment(tokens_RW, mask=mask)]).view(R, W, -1)

    def logits(self, hidden: Tensor) -> Tensor:
        """Raw logits [..., V] in the model's dtype."""
        weight = self.embed.weight if self.lm_head is None else self.lm_head.weight
        logits = F.linear(hidden, weight)
        return logits if self.config.logits_scale == 1 else logits * self.config.logits_scale
