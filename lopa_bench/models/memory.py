"""What a network and its calls take of a device's memory, computed before anything is loaded. No torch.

Sizes of what is kept are exact. What a call takes while it runs is an estimate: the largest tensors that live at once.
"""

from __future__ import annotations

from dataclasses import dataclass

from lopa_bench.models.config import ModelConfig

FLOAT32 = 4
FUSED_FROM = 256 * 256  # scores of one row from which attention does not write them down


@dataclass(frozen=True)
class Call:
    """One sample's part of a model call: `rows` of `width` positions on `start` cached ones, and at how many of them
    the logits of the vocabulary are read, with how many further float32 copies at once (two for the softmax alone).
    """

    rows: int
    width: int
    start: int
    logits: int
    copies: int = 2


@dataclass(frozen=True)
class Need:
    """Bytes: weights, the caches of all samples under way, and the widest call of them."""

    weights: int
    caches: int
    call: int

    @property
    def total(self) -> int:
        return self.weights + self.caches + self.call


def cache_bytes(config: ModelConfig, positions: int, size: int) -> int:
    """Keys and values of one text in numbers of `size` bytes."""
    return 2 * config.layers * config.kv_heads * config.head_dim * positions * size


def call_bytes(config: ModelConfig, call: Call, size: int, batch: int) -> int:
    """A call of `batch` equal samples: the keys and values of every layer, which are kept until the next call, and the
    largest of what lives for a moment: a feed-forward layer, the attention of one sample, the logits.
    """
    tokens = batch * call.rows * call.width
    inner = config.intermediate_size
    if config.experts is not None:
        inner = max(inner, config.experts.per_token * config.experts.size + config.experts.shared_size)
    layer = tokens * (3 * inner + 2 * config.hidden_size) * size
    scores = call.rows * config.heads * call.width * (call.start + call.width)
    fused = call.rows == 1 and call.width * call.width >= FUSED_FROM
    attention = 0 if fused else scores * (2 * size + FLOAT32)
    entry = size + (FLOAT32 if size < FLOAT32 else 0) + call.copies * FLOAT32
    logits = batch * call.logits * config.vocab_size * entry
    kept = cache_bytes(config, tokens, size) + tokens * config.hidden_size * size
    return kept + max(layer, attention, logits)
