"""Lookahead: which branches are tried beside the anchor (LoPA section 3)."""

from __future__ import annotations

import numpy as np

from decoders.config import DecoderConfig
from decoders.parts.fills import View, top
from decoders.state import Branch, Extra, Layout
from decoders.types import Vocabulary

# k=auto: a branch pays only if its token is right, and a token below one half is more likely wrong than right; beyond
# six candidates there is little left to gain. Measured in docs/decoders.md.
AUTO_BRANCHES, AUTO_FLOOR = 6, 0.5


def propose(anchor: Branch, view: View, config: DecoderConfig, layout: Layout, vocab: Vocabulary) -> list[Branch]:
    """The anchor and up to k branches that each hold one more token: of the view's masks that the anchor's fill has
    left, the k most confident by `config.confidence`, best first.
    """
    confidence = view.measure(config.confidence or "prob")
    open_N = anchor.ids[view.position] == vocab.mask_id
    k, floor = (AUTO_BRANCHES, AUTO_FLOOR) if config.k == "auto" else (int(config.k), config.floor)
    if floor is not None:
        open_N &= view.prob > floor
    left = np.flatnonzero(open_N)
    branches = [anchor]
    for i in left[top(confidence[left], k)]:
        branch = anchor.filled(view.position[i : i + 1], view.token[i : i + 1], layout, vocab)
        branch.extra = Extra(int(view.position[i]), int(view.token[i]), float(view.prob[i]), float(confidence[i]))
        branches.append(branch)
    return unique(branches)


def unique(branches: list[Branch]) -> list[Branch]:
    """Without duplicates; the first of equals stays, so the anchor does."""
    seen: dict[bytes, Branch] = {}
    for branch in branches:
        seen.setdefault(branch.ids.tobytes(), branch)
    return list(seen.values())
