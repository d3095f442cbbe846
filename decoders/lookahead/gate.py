"""`select=gate`: branches of one token, of which only those compete that the anchor's own row confirms.

The forward that verifies the branches says in the anchor's row what it now thinks of each branch's token, with no token
guessed. A branch whose token is not the best there, with a probability above `gate`, is dropped; of the others the one
wins that gains most positions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from decoders.lookahead.forward import NOTHING, Choice, Forward
from decoders.lookahead.score import ByScore
from decoders.lookahead.select import Select
from decoders.state import Branch


class Gate(ByScore):
    """The smallest change to the article's rule that is not paid for guesses."""

    name = "gate"
    reads: ClassVar[Mapping[str, Any]] = {"confidence": "neg_entropy", "floor": None, "gate": 0.5}
    scored = False

    def end(self, branches: list[Branch]) -> Branch | None:
        return Select.end(self, branches)  # a complete branch wins by its token, which the call has to confirm

    def choose(self, forward: Forward) -> Choice:
        branches = forward.branches
        gains = [self._gain(forward, row) for row in range(len(branches))]
        if self.finished is not None and self._confirmed(forward, self.finished):
            return Choice(0, forward.view(0), NOTHING, branches[0], tuple(gains), end=self.finished)
        winner = int(np.argmax(gains))  # the first of equals: the anchor, then the better rank
        view = forward.view(winner)
        chosen, state = self.parts.filled(branches[winner], view, self.parts.fill)
        return Choice(winner, view, chosen, state, tuple(gains))

    def _confirmed(self, forward: Forward, branch: Branch) -> bool:
        assert branch.extra is not None
        assert self.config.gate is not None
        at = branch.extra.position - forward.request.start
        best, prob = forward.prediction.token[0, at], forward.prediction.prob[0, at]
        return bool(best == branch.extra.token and prob > self.config.gate)

    def _gain(self, forward: Forward, row: int) -> float:
        """Positions that a round with this branch fills, its own token included; 0 if it is dropped. Ties go by the
        mean confidence, scaled to stay below one position (every confidence lies within a span of 32).
        """
        branch, view = forward.branches[row], forward.view(row)
        if row and not self._confirmed(forward, branch):
            return 0.0
        if not len(view):
            return float(row > 0)
        memory = branch.memory
        count = len(self.parts.filled(branch, view, self.score.fill)[0])
        branch.memory = memory
        return (row > 0) + count + 0.5 + float(view.measure(self.config.confidence or "prob").mean()) / 64.0
