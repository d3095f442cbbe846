"""What every choice among branches has in common."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from decoders.config import DecoderConfig, DecoderError
from decoders.lookahead.forward import Choice, Forward
from decoders.lookahead.tape import Tape
from decoders.parts.caches import Cache
from decoders.parts.fills import Fill, View
from decoders.parts.scores import Score
from decoders.parts.windows import Window
from decoders.state import Branch, first_end
from decoders.types import Vocabulary

Assumed = tuple[np.ndarray, np.ndarray]  # positions and tokens [N] of one branch


@dataclass(frozen=True)
class Parts:
    """What a decode is made of. `fill` and `draft` are the same rule on the same `tape`: `draft` reads it ahead."""

    config: DecoderConfig
    vocab: Vocabulary
    prompt: int
    window: Window
    cache: Cache
    fill: Fill
    draft: Fill
    tape: Tape
    score: Score

    def filled(self, branch: Branch, view: View, fill: Fill) -> tuple[np.ndarray, Branch]:
        """What a rule fills of a view [N], as indices into it, and the branch behind it."""
        answer, revision = fill.decide(view, branch)
        chosen = np.arange(len(view))[answer]  # a rule may also answer with booleans [N]
        if len(set(chosen.tolist())) < len(chosen):
            raise DecoderError(f"decoder.fill={self.config.fill} fills a position twice; allowed: each index once")
        state = self.with_tokens(branch, view.position[chosen], view.token[chosen])
        return chosen, state if revision is None else state.edited(revision, self.window.borders, self.vocab)

    def with_tokens(self, branch: Branch, positions: np.ndarray, tokens: np.ndarray) -> Branch:
        return branch.filled(positions, tokens, self.window.borders, self.vocab)

    def complete(self, branch: Branch) -> bool:
        """Nothing left to do (and no block to come), or nothing before the first end token."""
        return branch.done or self.ended(branch)

    def ended(self, branch: Branch) -> bool:
        """Whether the text is known up to its first end token, and nothing behind it is asked for. A rule that edits
        may still change what stands in a block that is not done.
        """
        if self.config.decode_tail or not branch.ended:
            return False
        end = first_end(branch.ids, self.prompt, self.vocab)
        if self.fill.edits:
            last = int(self.window.borders.block_of(np.array(end)))
            return all(branch.is_done(block) for block in range(last + 1))
        return not (branch.ids[self.prompt : end] == self.vocab.mask_id).any()


class Select:
    """Which branches are tried beside the anchor, and which of them wins.

    `reads`: the settings that it reads, with their defaults; `scored`: whether it reads those of `decoder.score` too;
    `drafts`: whether a row stands several steps of the base ahead.
    """

    name: ClassVar[str]
    reads: ClassVar[Mapping[str, Any]] = {}
    scored: ClassVar[bool] = False
    drafts: ClassVar[bool] = False

    def __init__(self, parts: Parts):
        self.parts = parts
        self.config = parts.config

    def open(self, branch: Branch) -> list[Branch]:
        """The rows of the first round."""
        self.parts.window.advance(branch)
        return [branch]

    def propose(self, anchor: Branch, forward: Forward, winner: int) -> list[Branch]:
        """The rows of the next round, the anchor first, each moved on by the window. `winner` is the row of `forward`
        that led to the anchor.
        """
        raise NotImplementedError  # every choice has its own

    def end(self, branches: list[Branch]) -> Branch | None:
        """The branch with which the decode ends before another call is made."""
        return branches[0] if self.parts.complete(branches[0]) else None

    def choose(self, forward: Forward) -> Choice:
        """Which row of a call goes on, and how it is filled."""
        raise NotImplementedError  # every choice has its own

    def assumed(self, branches: list[Branch]) -> list[Assumed]:
        """What each branch but the anchor holds that the branch of `parent` does not."""
        raise NotImplementedError  # every choice has its own

    def parent(self, row: int) -> int:
        """The row whose prediction confirms what `row` assumed."""
        return 0
