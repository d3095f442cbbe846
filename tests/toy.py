"""Toy models: deterministic functions from token ids to logits, run by the real backend in milliseconds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from decoders import DecoderConfig, Generation, Vocabulary, decode, make_decoder
from lopa_bench.backends.local import LocalBackend
from lopa_bench.models.config import ModelConfig
from lopa_bench.models.network.segments import Segment

torch.set_num_threads(1)  # the tables are tiny

MASK = 9
END = 8
VOCAB = Vocabulary(mask_id=MASK, end_ids=(END,), size=10)

# (tokens [R, W], start) -> logits [R, W, V] for the positions of the window, unshifted.
Logits = Callable[[np.ndarray, int], np.ndarray]


class ToyNetwork:
    """Stands in for the transformer; its "hidden states" are the logits already."""

    def __init__(self, logits: Logits, shifted: bool = False, max_length: int = 256):
        self.table = logits
        self.calls = 0
        self.embed = SimpleNamespace(weight=torch.zeros(1))
        self.config = ModelConfig(
            vocab_size=VOCAB.size, hidden_size=1, intermediate_size=1, layers=0, heads=1, kv_heads=1, head_dim=1,
            rope_theta=1.0, rms_eps=1.0, qkv_bias=False, qk_norm=False, tied=True,
            shift="shifted" if shifted else "none", mask_id=MASK, end_ids=(END,), pad_id=0, max_positions=max_length,
        )  # fmt: skip

    def eval(self) -> ToyNetwork:
        return self

    def __call__(self, segments: Sequence[Segment], keep: bool = False) -> Tensor:
        self.calls += 1
        parts = []
        for segment in segments:
            tokens = segment.tokens_RW.numpy()
            shadows = segment.shadow[1] - segment.shadow[0] if segment.shadow else 0
            tokens = tokens[:, : tokens.shape[1] - shadows]
            # A shifted model computes at i what it says of position i + 1.
            logits = self.table(tokens, segment.start + self.config.shifted)
            for at in range(*segment.shadow) if segment.shadow else ():  # what it says of a position that is masked
                without = tokens.copy()
                column = at + self.config.shifted - segment.start
                without[:, column] = MASK
                shadow = self.table(without, segment.start)[:, column]
                logits = np.concatenate([logits, shadow[:, None]], 1)
            parts.append(torch.from_numpy(logits.astype(np.float32)).reshape(-1, VOCAB.size))
            segment.window = []
        return torch.cat(parts)

    def logits(self, hidden: Tensor) -> Tensor:
        return hidden.clone()


def backend(logits: Logits, shifted: bool = False) -> LocalBackend:
    network: Any = ToyNetwork(logits, shifted)
    return LocalBackend(network, 256)


def run(logits: Logits, config: DecoderConfig, prompt: Sequence[int] = (0,), shifted: bool = False) -> Generation:
    """Decodes a prompt with a toy model."""
    outcome = backend(logits, shifted).decode(decode(make_decoder(config), list(prompt), VOCAB))
    assert outcome.generation is not None, outcome.error
    return outcome.generation


def fixed(probs: Sequence[float], tokens: Sequence[int] | None = None, prompt: int = 1) -> Logits:
    """At generated position i the best token has probability probs[i], at every step; the rest share what is left."""

    def logits(ids: np.ndarray, start: int) -> np.ndarray:
        out = np.full((*ids.shape, VOCAB.size), -40.0)
        for column in range(ids.shape[1]):
            i = start + column - prompt
            if 0 <= i < len(probs):
                token = tokens[i] if tokens else i % 7
                others = [t for t in range(VOCAB.size) if t not in (token, MASK)]
                out[:, column, others] = np.log(max((1 - probs[i]) / len(others), 1e-30))
                out[:, column, token] = np.log(probs[i])
        return out

    return logits


def hashed(seed: int) -> Logits:
    """Depends on position and on all tokens of the row: an arbitrary, context-dependent model."""
    rng = np.random.default_rng(seed)
    by_position = rng.normal(size=(97, VOCAB.size)) * 2
    by_context = rng.normal(size=(31, VOCAB.size)) * 2
    weights = rng.integers(1, 1000, size=512)

    def logits(ids: np.ndarray, start: int) -> np.ndarray:
        width = ids.shape[1]
        context = (ids * weights[:width]).sum(1) % 31
        return by_position[(start + np.arange(width)) % 97][None] + by_context[context][:, None]

    return logits
