"""One model call as a decoder sees it, and what was made of it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from decoders.config import DecoderConfig
from decoders.parts.fills import View
from decoders.parts.windows import Window
from decoders.state import Branch
from decoders.types import Prediction, Request, Vocabulary

NOTHING = np.array([], dtype=np.int64)
NO_MASKS = View(NOTHING, NOTHING, NOTHING, NOTHING, NOTHING, NOTHING)


class Forward:
    """The rows of a call, branch by branch, and the views of their masks."""

    def __init__(
        self,
        branches: list[Branch],
        request: Request,
        prediction: Prediction,
        config: DecoderConfig,
        window: Window,
        vocab: Vocabulary,
        edits: bool = False,
    ):
        """`edits`: whether views tell of filled positions too."""
        self.edits = edits
        self.branches = branches
        self.request = request
        self.prediction = prediction
        self.config = config
        self.window = window
        self.vocab = vocab

    def view(self, row: int) -> View:
        """The masks of the branch in `row` that take part, and what that row says of them."""
        return self.seen_by(row, self.branches[row])

    def seen_by(self, row: int, branch: Branch) -> View:
        """The masks of `branch` that take part and that `row` had as masks too, with what that row says of them."""
        request = self.request
        lo, hi = self.window.scope(branch)
        known = request.start + int(request.lengths[row]) + request.behind
        lo, hi = max(lo, request.start), min(hi, known)
        is_mask = branch.ids[lo:hi] == self.vocab.mask_id
        standing = None
        if self.edits:
            filled = lo + np.flatnonzero(~is_mask)
            standing = self._at(row, branch, filled[filled >= self.window.borders.prompt])
        return self._at(row, branch, lo + np.flatnonzero(is_mask), standing)

    def _at(self, row: int, branch: Branch, position: np.ndarray, standing: View | None = None) -> View:
        prediction = self.prediction
        at = position - self.request.start
        block = self.window.borders.block_of(position)
        return View(
            position,
            block,
            prediction.token[row, at],
            prediction.prob[row, at],
            prediction.measure(self.config.fill_confidence or "prob")[row, at],
            np.array(branch.activated)[block],
            {name: values[row, at] for name, values in prediction.extra.items()},
            standing,
        )

    def fresh_probs(self, row: int, positions: np.ndarray, tokens: np.ndarray) -> list[float | None]:
        """The probability that `row` gives each token, None where another one is its best."""
        at = positions - self.request.start
        prob, best = self.prediction.prob[row, at], self.prediction.token[row, at]
        return [float(p) if b == t else None for p, b, t in zip(prob, best, tokens)]


@dataclass
class Choice:
    """What a round made of its forward.

    The branch in row `winner` was filled at `chosen`, indices into its `view`; `state` is the branch behind that.
    `end`: a branch with which the decode ends instead, without a mask and without a row. `taken`: what the confirmed
    steps of a draft filled before the winner's own fill. `base_fills`: how many positions each step filled, those of
    `taken` and the winner's.
    """

    winner: int
    view: View
    chosen: np.ndarray
    state: Branch
    scores: tuple[float, ...] = ()
    end: Branch | None = None
    taken: Taken | None = None
    base_fills: tuple[int, ...] | None = None


class Taken:
    """Positions, tokens and the probabilities by which they were confirmed, in the order of the steps."""

    def __init__(self) -> None:
        self.positions: list[int] = []
        self.tokens: list[int] = []
        self.probs: list[float] = []
        self.counts: list[int] = []

    def add(self, view: View, chosen: np.ndarray) -> None:
        """One step: what stands at the indices `chosen` of the view of the row that confirmed it."""
        self.positions += view.position[chosen].tolist()
        self.tokens += view.token[chosen].tolist()
        self.probs += view.prob[chosen].tolist()
        self.counts.append(len(chosen))
