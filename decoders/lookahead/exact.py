"""`select=exact`: the ids of the base, several of its steps in one forward.

If the base's rule, on the fresh numbers of one row, gives exactly the state of a later row, then that row's numbers
are those of the base's next step, since they were computed from the same text. So the walk from row to row goes as far
as the draft was right, and the last row is filled by its own numbers: whatever was drafted, each step is the base's.

`eager` (FreeDave's eager acceptance): masks of the blocks to come are fed too (`Window.ahead`), so that drafts know of
them and may go on where a block ends.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from decoders.lookahead.draft import Drafted
from decoders.lookahead.forward import Choice, Forward, Taken
from decoders.state import Branch


class Exact(Drafted):
    """Lossless lookahead over any base."""

    name = "exact"
    reads: ClassVar[Mapping[str, Any]] = {"eager": False}

    def choose(self, forward: Forward) -> Choice:
        rows, row, taken = forward.branches, 0, Taken()
        while True:
            view = forward.view(row)
            chosen, state = self.parts.filled(rows[row], view, self.parts.fill)
            later = self._row_of(state, rows, row + 1)
            if later is None:
                return Choice(row, view, chosen, state, taken=taken, base_fills=(*taken.counts, len(chosen)))
            taken.add(view, chosen)
            row = later

    def _row_of(self, state: Branch, rows: list[Branch], start: int) -> int | None:
        """The row that stands where the base stands after this step, the first of rows[start:]."""
        if start == len(rows):
            return None
        after = state.copy()
        after.verify()
        self.parts.window.advance(after)
        return next((row for row in range(start, len(rows)) if after.stands_as(rows[row])), None)
