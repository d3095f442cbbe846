"""What a step records of its lookahead: what was assumed, and what eq. 2 rewarded each branch for.

With M masks in the anchor's view, whose mean confidence is S_0, the branch that fills mask j (confidence c_j in the
anchor's row) has the score

    S_j - S_0 = (S_0 - c_j) / (M - 1)  +  g_j  +  rest

The first term is the *removal bonus*: the mean rises when a mask below it leaves, the more the less certain it was,
whatever the token is. The second is the *paired gain*: the mean change of confidence over the M - 1 masks that both
hold. The rest is zero unless the branch has masks that the anchor has not (a block was appended or begun).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from decoders.lookahead.forward import Choice, Forward
from decoders.lookahead.select import Assumed, Select

Values = tuple[float | None, ...]


def looked_ahead(select: Select, forward: Forward, choice: Choice) -> dict[str, Any]:
    """The columns of a step that tell of its lookahead."""
    columns: dict[str, Any] = {}
    if choice.taken is not None:
        columns |= {
            "taken_positions": tuple(choice.taken.positions),
            "taken_tokens": tuple(choice.taken.tokens),
            "taken_probs": tuple(choice.taken.probs),
            "base_fills": choice.base_fills,
        }
    if len(forward.branches) == 1:
        return columns
    assumed = select.assumed(forward.branches)
    fresh: list[float | None] = []
    for row, (positions, tokens) in enumerate(assumed, 1):
        fresh += forward.fresh_probs(select.parent(row), positions, tokens)
    columns |= {
        "lookahead_positions": tuple(p for positions, _ in assumed for p in positions.tolist()),
        "lookahead_tokens": tuple(t for _, tokens in assumed for t in tokens.tolist()),
        "lookahead_counts": tuple(len(positions) for positions, _ in assumed),
        "fresh_probs": tuple(fresh),
    }
    if choice.scores:
        columns["bonus"], columns["gain"] = rewards(forward, assumed, select.config.confidence or "prob")
    return columns


def rewards(forward: Forward, assumed: list[Assumed], measure: str) -> tuple[Values, Values]:
    """Removal bonus and paired gain of each branch of one token; None where the anchor has no second mask, or a branch
    has its token elsewhere than among the anchor's masks.
    """
    anchor = forward.view(0)
    j = np.array([positions[0] for positions, _ in assumed])
    if len(anchor) < 2 or not np.isin(j, anchor.position).all():
        return (None,) * len(j), (None,) * len(j)
    start, rest = forward.request.start, len(anchor) - 1
    # The same masks in all rows: [R, M] values, of which each branch has one less than the anchor.
    values = forward.prediction.measure(measure)[: len(j) + 1, anchor.position - start].astype(np.float64)
    filled = anchor.position[None] == j[:, None]
    bonus = (values[0].mean() - np.where(filled, values[0], 0.0).sum(1)) / rest
    gain = np.where(filled, 0.0, values[1:] - values[0]).sum(1) / rest
    return tuple(bonus.tolist()), tuple(gain.tolist())
