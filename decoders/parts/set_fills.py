"""Fill rules that bound how many masks are filled at once, by what they may get wrong together.

Each ranks the masks and fills the first n ranks, at least one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from decoders.parts.fills import Fill, View, top, with_forced
from decoders.state import Branch


def entropies(view: View) -> np.ndarray:
    """Entropy of each mask [N] in nats, float64."""
    return np.maximum(0.0, -view.measure("neg_entropy").astype(np.float64))


class EntropyBounded(Fill):
    """EB-Sampler (arXiv 2505.24857): masks ranked by confidence; rank n is filled if the entropies of the ranks before
    it sum to at most `gamma`. What tokens drawn apart can get wrong together is bounded by that sum.

    `behind_end=wait`: once an end token stands, masks behind the first one wait until those before it are filled.
    """

    reads: ClassVar[Mapping[str, Any]] = {"gamma": 0.001, "behind_end": "fill", "confidence": "prob"}
    measures = ("neg_entropy",)

    def select(self, view: View, branch: Branch) -> np.ndarray:
        assert self.config.gamma is not None
        ranked = top(view.confidence, len(view))
        if self.config.behind_end == "wait" and branch.end is not None:
            before = ranked[view.position[ranked] < branch.end]
            ranked = before if len(before) else ranked
        entropy = entropies(view)[ranked]
        return ranked[np.cumsum(entropy) - entropy <= self.config.gamma]


class Frechet(Fill):
    """Fast-dLLM++ (arXiv 2606.02955): probabilities sorted downwards, as many ranks n as have L_n - U_n > `delta`.

    L_n = c_1 + ... + c_n - (n - 1) is the least probability that n tokens with these margins are right together
    (Frechet's bound), U_n = 1 - c_n what is left to another token at rank n. With equal c it is the factor rule with
    factor 1 - delta.
    """

    reads: ClassVar[Mapping[str, Any]] = {"delta": 0.25}
    follows_first = True

    def select(self, view: View, branch: Branch) -> np.ndarray:
        assert self.config.delta is not None
        ranked = top(view.prob, len(view))
        prob = view.prob[ranked].astype(np.float64)
        together = np.cumsum(prob) - np.arange(len(prob))
        passed = together - (1.0 - prob) > self.config.delta  # falls from rank to rank
        return ranked[: max(1, int(passed.sum()))]


class Hierarchy(Fill):
    """dInfer's hierarchy: every mask with prob > tau_conf, the best one of each run of neighbouring masks if its prob >
    `tau_run`, and the best one of all. So what is filled lies apart, and each fill halves a run.
    """

    reads: ClassVar[Mapping[str, Any]] = {"tau_conf": 0.9, "tau_run": 0.5}
    follows_first = True

    def select(self, view: View, branch: Branch) -> np.ndarray:
        chosen = view.prob > self.config.tau_conf
        begins = (np.diff(view.position) > 1) | (np.diff(view.block) > 0)
        for run in np.split(np.arange(len(view)), np.flatnonzero(begins) + 1):
            best = run[np.argmax(view.prob[run])]
            chosen[best] |= view.prob[best] > self.config.tau_run
        chosen[np.argmax(view.prob)] = True
        return np.flatnonzero(chosen)

    def passes(self, view: View, chosen: np.ndarray) -> np.ndarray:
        return chosen[view.prob[chosen] > self.config.tau_conf]


class EntropyThreshold(Fill):
    """dParallel (arXiv 2509.26488): every mask with an entropy of at most `tau_entropy`, and the lowest."""

    reads: ClassVar[Mapping[str, Any]] = {"tau_entropy": 0.5}
    measures = ("neg_entropy",)
    follows_first = True

    def select(self, view: View, branch: Branch) -> np.ndarray:
        entropy, how = entropies(view), self.config.forced or "first"  # of one block the lowest, however it is said
        passed = entropy <= self.config.tau_entropy
        return np.flatnonzero(with_forced(passed, -entropy, view.block, view.activated, how))

    def passes(self, view: View, chosen: np.ndarray) -> np.ndarray:
        return chosen[entropies(view)[chosen] <= self.config.tau_entropy]


class EntropyAcross(EntropyThreshold):
    """d3LLM (arXiv 2601.07568): the same in several blocks, of which the first must not stand still (`forced`)."""

    reads: ClassVar[Mapping[str, Any]] = {"tau_entropy": 0.5, "forced": "first"}
