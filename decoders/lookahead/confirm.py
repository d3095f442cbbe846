"""`select=confirm`: a draft is followed as long as every token that it assumed is confirmed.

The row before a drafted row says, in the same forward, what it now thinks of the tokens that the drafted row assumed.
Confirmed are those that the base's rule fills from that row's own numbers; with `confirm=t` also its best tokens with a
probability above t; with `confirm_best` of these, in each block, only the most confident one that does not pass by
itself. (Where the rule had to force one, as nothing passed, that is the forced one, and no other is added.)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from decoders.lookahead.draft import Drafted
from decoders.lookahead.forward import Choice, Forward, Taken
from decoders.lookahead.select import Assumed
from decoders.parts.fills import View


class Confirm(Drafted):
    """Follows more of the draft than `exact`: a row may assume less than the base would fill."""

    name = "confirm"
    reads: ClassVar[Mapping[str, Any]] = {"confirm": None, "confirm_best": False}

    def choose(self, forward: Forward) -> Choice:
        rows, row, taken = forward.branches, 0, Taken()
        steps = [*self.added, *([self.behind] if self.behind else [])]
        while True:
            view = forward.view(row)
            chosen, state = self.parts.filled(rows[row], view, self.parts.fill)
            confirmed = None
            if row < len(steps):
                confirmed = _found(view, self._sure(view, chosen), steps[row])
            if confirmed is None or row + 1 == len(rows):
                if confirmed is not None:  # the last row and what completes it
                    chosen = confirmed
                    state = self.parts.with_tokens(rows[row], *steps[row])
                return Choice(row, view, chosen, state, taken=taken, base_fills=(*taken.counts, len(chosen)))
            taken.add(view, confirmed)
            row += 1

    def _sure(self, view: View, chosen: np.ndarray) -> np.ndarray:
        """Which masks of the view [N] are known well enough, of which the rule fills `chosen`."""
        sure = np.zeros(len(view), dtype=bool)
        sure[chosen] = True
        threshold = self.config.confirm
        if threshold is None:
            return sure
        if not self.config.confirm_best:
            return sure | (view.prob > threshold)
        passing = np.zeros(len(view), dtype=bool)
        passing[self.parts.fill.passes(view, chosen)] = True
        for block in dict.fromkeys(view.block.tolist()):
            others = np.flatnonzero((view.block == block) & ~passing)
            if len(others):
                best = others[np.argmax(view.prob[others])]
                sure[best] |= view.prob[best] > threshold
        return sure


def _found(view: View, sure: np.ndarray, assumed: Assumed) -> np.ndarray | None:
    """Indices into the view of the assumed positions, if the view is sure of all of these tokens."""
    positions, tokens = assumed
    at = np.minimum(np.searchsorted(view.position, positions), max(0, len(view) - 1))
    if not len(view) or not (sure[at] & (view.position[at] == positions) & (view.token[at] == tokens)).all():
        return None
    return at
