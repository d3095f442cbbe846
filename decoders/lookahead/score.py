"""`select=score`: LoPA (section 3). Branches of one token each; the one with the highest score wins (eq. 2)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from decoders.config import DecoderError
from decoders.lookahead.auto import rows_beside
from decoders.lookahead.forward import NOTHING, Choice, Forward
from decoders.lookahead.select import Assumed, Parts, Select
from decoders.parts.fills import View, top
from decoders.state import Branch, Extra


class ByScore(Select):
    """The article's lookahead. With k = 0 it is the base decoder."""

    name = "score"
    reads: ClassVar[Mapping[str, Any]] = {"confidence": "neg_entropy", "complete": "end", "floor": None}
    scored = True

    def __init__(self, parts: Parts):
        super().__init__(parts)
        self.score = parts.score
        self.finished: Branch | None = None  # the best-ranked branch without any mask: it needs no call

    def propose(self, anchor: Branch, forward: Forward, winner: int) -> list[Branch]:
        branches = [anchor]
        if self.config.k != 0:
            branches = self._candidates(anchor, forward.view(winner))
        for branch in branches:
            self.parts.window.advance(branch)
        if self.config.complete != "verify":
            self._set_aside_complete(branches)
        return branches

    def end(self, branches: list[Branch]) -> Branch | None:
        done = super().end(branches)
        if done is None and self.finished is not None and self.score.settles(self.finished):
            return self.finished
        return done

    def choose(self, forward: Forward) -> Choice:
        branches = forward.branches
        views = [forward.view(row) for row in range(len(branches))]
        scores = [self.score.rate(branch, view) for branch, view in zip(branches, views)]
        if np.isnan(scores).any():
            raise DecoderError(f"decoder.score.kind={self.config.score.kind} scored a branch nan; allowed: a number")
        # The first of equals: the anchor, then the better rank; but a branch without masks before both.
        winner = max(range(len(branches)), key=lambda row: (scores[row], len(views[row]) == 0, -row))
        if self.finished is not None and self.score.complete(self.finished) >= scores[winner]:
            return Choice(0, views[0], NOTHING, branches[0], tuple(scores), end=self.finished)
        chosen, state = self.parts.filled(branches[winner], views[winner], self.parts.fill)
        return Choice(winner, views[winner], chosen, state, tuple(scores))

    def assumed(self, branches: list[Branch]) -> list[Assumed]:
        extras = [branch.extra for branch in branches[1:] if branch.extra is not None]
        return [(np.array([extra.position]), np.array([extra.token])) for extra in extras]

    def _candidates(self, anchor: Branch, view: View) -> list[Branch]:
        """The anchor and up to k branches that each hold one more token: of the view's masks that the anchor's fill
        has left, the k most confident by `config.confidence`, best first.
        """
        confidence = view.measure(self.config.confidence or "prob")
        lo, hi = self.parts.window.scope(anchor)  # an end token that the fill has found may leave less
        open_N = (anchor.ids[view.position] == self.parts.vocab.mask_id) & (lo <= view.position) & (view.position < hi)
        if self.config.floor is not None:
            open_N &= view.prob > self.config.floor
        left = np.flatnonzero(open_N)
        branches = [anchor]
        for i in left[top(confidence[left], rows_beside(self.config))]:
            branch = self.parts.with_tokens(anchor, view.position[i : i + 1], view.token[i : i + 1])
            branch.extra = Extra(int(view.position[i]), int(view.token[i]), float(view.prob[i]), float(confidence[i]))
            branches.append(branch)
        return unique(branches)

    def _set_aside_complete(self, branches: list[Branch]) -> None:
        """Takes branches without any mask out of the rows. The anchor stays, whatever it is.

        A branch that holds an end token and masks behind it is verified like any other: it has to win by its score.
        """
        complete = [branch for branch in branches[1:] if branch.done]
        self.finished = complete[0] if complete else None
        branches[1:] = [branch for branch in branches[1:] if not branch.done]


def unique(branches: list[Branch]) -> list[Branch]:
    """Without duplicates; the first of equals stays, so the anchor does."""
    seen: dict[bytes, Branch] = {}
    for branch in branches:
        seen.setdefault(branch.ids.tobytes(), branch)
    return list(seen.values())
