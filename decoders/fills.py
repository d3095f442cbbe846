"""Fill rules: which of the masks that take part are filled in a round."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from decoders.config import DecoderConfig
from decoders.state import Branch


@dataclass(frozen=True)
class View:
    """The masks of one branch that take part, and what the model says of them; N masks in position order.

    position, block, token [N] integers; prob, confidence [N] float32 (`confidence` ranks forced picks);
    activated [N] whether the mask's block may be forced.
    """

    position: np.ndarray
    block: np.ndarray
    token: np.ndarray
    prob: np.ndarray
    confidence: np.ndarray
    activated: np.ndarray

    def __len__(self) -> int:
        return len(self.position)


def top(confidence: np.ndarray, n: int) -> np.ndarray:
    """Indices of the n highest values, best first; equal values in position order."""
    return np.argsort(-confidence, kind="stable")[:n]


class Fill:
    """Chooses from a view. `memory` is the branch's own note of where a schedule stands."""

    def __init__(self, config: DecoderConfig):
        self.config = config

    def select(self, view: View, branch: Branch) -> np.ndarray:
        """Indices into the view to fill, at least one. May update `branch.memory`."""
        raise NotImplementedError


class TopN(Fill):
    """The n most confident masks (n = 1: greedy decoding, one position a forward)."""

    def select(self, view: View, branch: Branch) -> np.ndarray:
        assert self.config.tokens_per_step is not None
        return top(view.confidence, self.config.tokens_per_step)


class Threshold(Fill):
    """Every mask with prob > tau_conf; where nothing passes, the most confident one is forced (LoPA eq. 1).

    `forced=per_block`: one in each activated block in which nothing passed (released); `global`: one in all, and only
    if nothing passed anywhere (article). Fast-dLLM's rule is this one inside its current block.
    """

    def select(self, view: View, branch: Branch) -> np.ndarray:
        passed = view.prob > self.config.tau_conf
        if self.config.forced == "global":
            return np.flatnonzero(passed) if passed.any() else top(view.confidence, 1)
        for block in dict.fromkeys(view.block[view.activated].tolist()):
            inside = np.flatnonzero(view.block == block)
            if not passed[inside].any():
                passed[inside[np.argmax(view.confidence[inside])]] = True
        return np.flatnonzero(passed)


class Factor(Fill):
    """Fast-dLLM's factor rule: confidences sorted downwards, the largest n with (n + 1)(1 - c_n) < f, at least 1."""

    def select(self, view: View, branch: Branch) -> np.ndarray:
        assert self.config.factor is not None
        order = top(view.prob, len(view))
        risk = (np.arange(1, len(view) + 1) + 1) * (1.0 - view.prob[order].astype(np.float64))
        below = np.flatnonzero(risk < self.config.factor)
        return order[: below[-1] + 1 if len(below) else 1]
