"""Branch scores: which of the verified branches wins a round (LoPA eq. 2 and variants)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from decoders.config import DecoderConfig
from decoders.parts.fills import Fill, View
from decoders.state import Borders, Branch
from decoders.types import Vocabulary


class Score:
    """Rates the branches of a round; the highest wins.

    `name`: what `score.kind` and the records call it. `reads`: the settings that it reads, with their defaults: those
    of `score`, or settings of one's own (`config.own`). `measures`: what it needs of a prediction beside the
    probability and the ranking confidence `config.confidence`.
    """

    name: ClassVar[str]
    reads: ClassVar[Mapping[str, Any]] = {}
    measures: ClassVar[tuple[str, ...]] = ()

    def __init__(self, config: DecoderConfig, borders: Borders, vocab: Vocabulary, fill: Fill):
        """`fill` is the base's rule, with random numbers of its own: what a score draws moves no fill."""
        self.config = config
        self.borders = borders
        self.vocab = vocab
        self.fill = fill

    def rate(self, branch: Branch, view: View) -> float:
        """The score of a branch whose masks that take part are those of `view`."""
        return float(self.open(branch, view) if len(view) else self.complete(branch))

    def open(self, branch: Branch, view: View) -> float:
        """The score of a branch with masks: at least one stands in the view."""
        raise NotImplementedError  # every rule has its own

    def complete(self, branch: Branch) -> float:
        """The score of a branch without masks."""
        return float("inf")

    @property
    def highest(self) -> float:
        """No branch with masks scores more than this."""
        return float("inf")

    def settles(self, branch: Branch) -> bool:
        """Whether a branch without masks wins whatever the others score. It also wins a draw, so that whether a model
        call is made for it never changes the text.
        """
        return self.complete(branch) >= self.highest


class Mean(Score):
    """Eq. 2: creation_weight x creation + (1 - creation_weight) x future.

    The future is the mean confidence over the branch's masks, or over their lowest fraction `bottom`, or the lowest
    mean over `window` neighbouring masks; 1 if there are none. Creation is the confidence of the branch's extra token,
    1 for the anchor.
    """

    name = "mean"
    reads: ClassVar[Mapping[str, Any]] = {"bottom": 1.0, "window": None, "creation_weight": 0.0}

    def open(self, branch: Branch, view: View) -> float:
        return self._mix(branch, self.future(view.measure(self.config.confidence or "prob")))

    def complete(self, branch: Branch) -> float:
        return self._mix(branch, 1.0)

    @property
    def highest(self) -> float:
        # A negative entropy is at most 0, but for the 1e-10 inside its logarithm.
        top = 1e-6 if self.config.confidence == "neg_entropy" else 1.0
        weight = self.config.score.creation_weight
        return weight + (1.0 - weight) * top

    def future(self, confidence: np.ndarray) -> float:
        settings, values = self.config.score, confidence.astype(np.float64)
        if settings.window is not None and settings.window < len(values):
            sums = np.cumsum(np.concatenate([[0.0], values]))
            return float((sums[settings.window :] - sums[: -settings.window]).min() / settings.window)
        if settings.bottom < 1.0:
            values = np.sort(values)[: max(1, int(len(values) * settings.bottom))]
        return float(values.mean())

    def _mix(self, branch: Branch, future: float) -> float:
        weight = self.config.score.creation_weight
        creation = branch.extra.confidence if branch.extra else 1.0
        return weight * creation + (1.0 - weight) * future


class Mixed(Score):
    """alpha x probability of the extra token (1 for the anchor) + (1 - alpha) x mean of 1 - normalised entropy.

    Neither part is above 1, and a branch without masks scores 1.
    """

    name = "mixed"
    reads: ClassVar[Mapping[str, Any]] = {"alpha": 0.7}
    measures = ("neg_entropy",)
    highest = 1.0

    def open(self, branch: Branch, view: View) -> float:
        alpha = self.config.score.alpha
        certain = 1.0 + float(view.measure("neg_entropy").mean()) / np.log(self.vocab.size)
        return alpha * (branch.extra.prob if branch.extra else 1.0) + (1.0 - alpha) * certain

    def complete(self, branch: Branch) -> float:
        return 1.0


class NextFill(Score):
    """How many positions the base's rule would fill next in this branch; the mean confidence breaks ties.

    Every confidence lies within a span of 32 (ln V for neg_entropy), so the mean is scaled to stay below one position.
    """

    name = "next_fill"

    def open(self, branch: Branch, view: View) -> float:
        memory = branch.memory
        count = len(self.fill.select(view, branch))
        branch.memory = memory
        return count + float(view.measure(self.config.confidence or "prob").mean()) / 64.0


SCORES: dict[str, type[Score]] = {score.name: score for score in (Mean, Mixed, NextFill)}
