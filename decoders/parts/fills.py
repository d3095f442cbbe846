"""Fill rules: which of the masks that take part are filled in a round."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from decoders.config import DecoderConfig
from decoders.state import Borders, Branch, Revision


@dataclass(frozen=True)
class View:
    """The masks of one branch that take part, and what the model says of them; N masks in position order.

    position, block, token [N] integers; prob, confidence [N] float32 (`confidence` ranks forced picks);
    activated [N] whether the mask's block may be forced; measures: what else was asked of the model, [N] each.
    standing: the same of the filled positions that take part, for a rule that edits (what stands there the branch has).
    """

    position: np.ndarray
    block: np.ndarray
    token: np.ndarray
    prob: np.ndarray
    confidence: np.ndarray
    activated: np.ndarray
    measures: Mapping[str, np.ndarray] = field(default_factory=dict)
    standing: View | None = None

    def __len__(self) -> int:
        return len(self.position)

    def measure(self, name: str) -> np.ndarray:
        """prob, margin, neg_entropy, kl or shadow [N], as far as it was asked for."""
        return self.prob if name == "prob" else self.measures[name]


def top(confidence: np.ndarray, n: int) -> np.ndarray:
    """Indices of the n highest values, best first; equal values in position order."""
    return np.argsort(-confidence, kind="stable")[:n]


def with_forced(
    passed_N: np.ndarray, rank_N: np.ndarray, block_N: np.ndarray, activated_N: np.ndarray, how: str | None
) -> np.ndarray:
    """Which of N masks, in position order, are filled: those that passed, and the highest by rank (of equals the
    leftmost) as `forced` says it:

    - "per_block": of each activated block in which none passed (D2F);
    - "global": of all, if none passed anywhere (LoPA eq. 1);
    - "first": of the first block with masks, if none passed in it (d3LLM for Dream);
    - "first_and_global": both of these (d3LLM for LLaDA).
    """
    filled_N = passed_N.copy()
    if how in ("global", "first_and_global") and not passed_N.any():
        filled_N[np.argmax(rank_N)] = True
    if how == "global":
        return filled_N
    for block in dict.fromkeys((block_N[activated_N] if how == "per_block" else block_N[:1]).tolist()):
        inside = np.flatnonzero(block_N == block)
        if not passed_N[inside].any():
            filled_N[inside[np.argmax(rank_N[inside])]] = True
    return filled_N


Uniform = Callable[[int], np.ndarray]


class Fill:
    """Chooses from a view. `branch.memory` is the branch's own note of where a schedule stands.

    `reads`: the settings that this rule reads, with their defaults, so that no other is taken in silence; None says
    that it may read any default of its decoder. `measures`: what it needs of a prediction beside the probability and
    the ranking confidence. `follows_first`: whether it can go on where `FirstPosition` began.

    `edits`: whether it changes filled positions; such a rule answers with `decide`. `predicts_filled`: whether it needs
    predictions of the filled positions that take part, not of masks alone; `shadowed`: whether it needs their shadows
    (`Request.shadow`). `alone`: why no branch can stand beside it, if none can. `timed`: whether its steps have a time,
    by which `eos_penalty` fades.
    """

    reads: ClassVar[Mapping[str, Any] | None] = None
    measures: ClassVar[tuple[str, ...]] = ()
    follows_first: ClassVar[bool] = False
    edits: ClassVar[bool] = False
    predicts_filled: ClassVar[bool] = False
    shadowed: ClassVar[bool] = False
    alone: ClassVar[str] = ""
    timed: ClassVar[bool] = False

    def __init__(self, config: DecoderConfig, borders: Borders, uniform: Uniform):
        self.config = config
        self.borders = borders
        self.uniform = uniform  # n numbers in [0, 1)

    @property
    def steps(self) -> int:
        """Planned steps of one block."""
        assert self.config.steps is not None
        return self.config.steps // self.borders.planned

    def select(self, view: View, branch: Branch) -> np.ndarray:
        """Indices into the view to fill: at least one, unless `empty_steps=run`. May update `branch.memory`."""
        raise NotImplementedError  # every rule has its own

    def decide(self, view: View, branch: Branch) -> tuple[np.ndarray, Revision | None]:
        """What `select` fills, and what becomes of the positions of `view.standing`."""
        return (self.select(view, branch) if len(view) else np.array([], dtype=np.int64)), None

    @property
    def budget(self) -> int:
        """Forwards that it may need beside one for each position."""
        return 0

    def passes(self, view: View, chosen: np.ndarray) -> np.ndarray:
        """Of the indices that it chose those that it would have chosen whatever else there is: not the forced ones."""
        return chosen

    def idles(self, branch: Branch) -> bool:
        """Whether a forward is still spent on `branch` although the masks that took part are all filled."""
        return False

    def fade(self, branch: Branch) -> float:
        """What `eos_penalty` adds to an end token's logit in the forward of which `branch` is filled: nothing."""
        return 0.0


class TopN(Fill):
    """The n most confident masks (n = 1: greedy decoding, one position a forward)."""

    reads: ClassVar[Mapping[str, Any]] = {"tokens_per_step": 1, "confidence": "prob"}

    def select(self, view: View, branch: Branch) -> np.ndarray:
        assert self.config.tokens_per_step is not None
        return top(view.confidence, self.config.tokens_per_step)


class Threshold(Fill):
    """Every mask with prob > tau_conf; where nothing passes, the most confident one is forced (LoPA eq. 1).

    `forced=per_block`: one in each activated block in which nothing passed (released); `global`: one in all, and only
    if nothing passed anywhere (article); d3LLM's: `with_forced`. Fast-dLLM's rule is this one inside its
    current block.
    """

    reads: ClassVar[Mapping[str, Any]] = {"tau_conf": 0.9, "forced": "per_block", "confidence": "prob"}
    follows_first = True

    def select(self, view: View, branch: Branch) -> np.ndarray:
        passed = view.prob > self.config.tau_conf
        return np.flatnonzero(with_forced(passed, view.confidence, view.block, view.activated, self.config.forced))

    def passes(self, view: View, chosen: np.ndarray) -> np.ndarray:
        return chosen[view.prob[chosen] > self.config.tau_conf]


class Factor(Fill):
    """Fast-dLLM's factor rule: confidences sorted downwards, the largest n with (n + 1)(1 - c_n) < f, at least 1."""

    reads: ClassVar[Mapping[str, Any]] = {"factor": 1.0}
    follows_first = True

    def select(self, view: View, branch: Branch) -> np.ndarray:
        assert self.config.factor is not None
        order = top(view.prob, len(view))
        risk = (np.arange(1, len(view) + 1) + 1) * (1.0 - view.prob[order].astype(np.float64))
        below = np.flatnonzero(risk < self.config.factor)
        return order[: below[-1] + 1 if len(below) else 1]


class FactorReleased(Factor):
    """The factor rule as dInfer's copy of Fast-dLLM runs it: when the last rank alone fails, it is accepted too."""

    def select(self, view: View, branch: Branch) -> np.ndarray:
        chosen = super().select(view, branch)
        return top(view.prob, len(view)) if len(chosen) == len(view) - 1 else chosen


class Quota(Fill):
    """LLaDA's fixed quota: M masks over S steps, M // S a step, one more in the first M mod S steps.

    Steps whose quota is zero are no forwards. memory: (step, masks at the start of the block).
    """

    reads: ClassVar[Mapping[str, Any]] = {"steps": None, "confidence": "prob", "confidence_eos_eot_inf": False}

    def select(self, view: View, branch: Branch) -> np.ndarray:
        step, masks = branch.memory or (0, len(view))
        quota = masks // self.steps + (step < masks % self.steps)
        branch.memory = (step + 1, masks)
        return top(view.confidence, max(1, quota))


class Static(Fill):
    """SDAR's fixed quota: a block of B positions over S denoising steps, B // S a step, one more in the first B mod S.

    It is counted in steps, not in masks: a block with a part of the prompt, or with lookahead, is full before its steps
    are over. memory: (step,).
    """

    reads: ClassVar[Mapping[str, Any]] = {"denoising_steps": None, "confidence": "prob"}

    def select(self, view: View, branch: Branch) -> np.ndarray:
        return top(view.confidence, self._quota(branch))

    def _quota(self, branch: Branch) -> int:
        (step,) = branch.memory or (0,)
        branch.memory = (step + 1,)
        steps, block = self.config.denoising_steps, self.borders.block
        assert steps is not None
        return block // steps + (step < block % steps)


class Dynamic(Static):
    """SDAR's threshold: every mask with prob > tau_conf if they are at least the quota, else the quota's best."""

    reads: ClassVar[Mapping[str, Any]] = {"denoising_steps": None, "tau_conf": 0.85, "confidence": "prob"}

    def select(self, view: View, branch: Branch) -> np.ndarray:
        quota = self._quota(branch)
        passed = np.flatnonzero(self.config.tau_conf < view.prob)
        return passed if len(passed) >= quota else top(view.confidence, quota)

    def passes(self, view: View, chosen: np.ndarray) -> np.ndarray:
        return chosen[view.prob[chosen] > self.config.tau_conf]


class Sequential(Static):
    """SDAR's order of the text: the quota's leftmost masks."""

    reads: ClassVar[Mapping[str, Any]] = {"denoising_steps": None}

    def select(self, view: View, branch: Branch) -> np.ndarray:
        return np.arange(min(self._quota(branch), len(view)))
