"""Drafts: rows that stand where the base would stand some steps later if its predictions stood still.

Row 0 is the anchor. Row m is row m - 1 filled by the base's own rule with what the last forward predicted, forced picks
and schedules included, and moved on by the window. So a row assumes several positions, and nothing has to be set: which
tokens are worth assuming is what the base's rule says.
"""

from __future__ import annotations

from decoders.lookahead.auto import rows_beside
from decoders.lookahead.forward import Forward
from decoders.lookahead.select import Assumed, Parts, Select
from decoders.state import Branch


class Drafted(Select):
    """Proposes a chain of up to k rows behind the anchor."""

    drafts = True

    def __init__(self, parts: Parts):
        super().__init__(parts)
        self.added: list[Assumed] = []  # by row 1, 2, ... to the row before
        self.behind: Assumed | None = None  # what makes the last row a complete text, which needs no row of its own

    def propose(self, anchor: Branch, forward: Forward, winner: int) -> list[Branch]:
        window, rows = self.parts.window, [anchor]
        self.added, self.behind = [], None
        self.parts.tape.rewind()
        window.advance(anchor)
        while len(rows) <= rows_beside(self.config) and not self.parts.complete(anchor):
            before = rows[-1]
            view = forward.seen_by(winner, before)
            memory = before.memory
            chosen, after = self.parts.filled(before, view, self.parts.draft)
            before.memory = memory  # what the rule noted goes with the row behind
            if not len(chosen):
                break  # nothing is known of the masks that take part next
            assumed = view.position[chosen], view.token[chosen]
            after.verify()
            window.advance(after)
            if self.parts.complete(after):
                self.behind = assumed
                break
            if not self.parts.cache.shares(before, after):
                break
            rows.append(after)
            self.added.append(assumed)
        return rows

    def assumed(self, branches: list[Branch]) -> list[Assumed]:
        return self.added

    def parent(self, row: int) -> int:
        return row - 1
