"""Lookahead: which branches are tried beside the anchor, and how a verified branch is scored (LoPA section 3)."""

from __future__ import annotations

import numpy as np

from decoders.config import DecoderConfig
from decoders.fills import Fill, View, top
from decoders.state import Branch, Extra, Layout
from decoders.types import Vocabulary

# k=auto: a branch pays only if its token is right, and a token below one half is more likely wrong than right; beyond
# six candidates there is little left to gain. Measured in docs/decoders.md.
AUTO_BRANCHES, AUTO_FLOOR = 6, 0.5
COMPLETE = 1.0  # the future score of a branch without masks: no mean of a confidence is higher


def propose(
    anchor: Branch, view: View, confidence: np.ndarray, config: DecoderConfig, layout: Layout, vocab: Vocabulary
) -> list[Branch]:
    """The anchor and up to k branches that each hold one more token: the k most confident of the view's masks that
    the anchor's fill has left, best first. `confidence` [N] is the ranking confidence of the view's masks.
    """
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


def score(
    branch: Branch,
    view: View,
    confidence: np.ndarray,
    neg_entropy: np.ndarray | None,
    fill: Fill,
    config: DecoderConfig,
    vocab: Vocabulary,
) -> float:
    """The branch score of `config.score`; `confidence` [N] over the branch's masks, in position order."""
    settings = config.score
    if settings.kind == "next_fill":
        return _next_fill(branch, view, confidence, fill)
    if settings.kind == "mixed":
        assert neg_entropy is not None
        certain = 1.0 + neg_entropy.mean() / np.log(vocab.size) if len(view) else COMPLETE
        return float(settings.alpha * (branch.extra.prob if branch.extra else 1.0) + (1.0 - settings.alpha) * certain)
    return creation_mix(branch, future(confidence, config), config)


def future(confidence: np.ndarray, config: DecoderConfig) -> float:
    """Eq. 2: mean confidence over the remaining masks, or over their lowest part, or the lowest sliding mean."""
    n, settings = len(confidence), config.score
    if n == 0:
        return COMPLETE
    values = confidence.astype(np.float64)
    if settings.window is not None and settings.window < n:
        sums = np.cumsum(np.concatenate([[0.0], values]))
        return float((sums[settings.window :] - sums[: -settings.window]).min() / settings.window)
    if settings.bottom < 1.0:
        values = np.sort(values)[: max(1, int(n * settings.bottom))]
    return float(values.mean())


def creation_mix(branch: Branch, future_score: float, config: DecoderConfig) -> float:
    """creation_weight x confidence of the extra token (1 for the anchor) + (1 - creation_weight) x future."""
    weight = config.score.creation_weight
    creation = branch.extra.confidence if branch.extra else 1.0
    return weight * creation + (1.0 - weight) * future_score


def _next_fill(branch: Branch, view: View, confidence: np.ndarray, fill: Fill) -> float:
    """How many positions the fill rule would fill next in this branch; mean confidence breaks ties.

    Every confidence lies within a span of 32 (ln V for neg_entropy), so the mean is scaled to stay below one position.
    """
    if len(view) == 0:
        return np.inf
    memory = branch.memory
    count = len(fill.select(view, branch))
    branch.memory = memory
    return count + float(confidence.mean()) / 64.0
