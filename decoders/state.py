"""The text under way: a grid of blocks, and one branch of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from decoders.types import Vocabulary


@dataclass(frozen=True)
class Borders:
    """Block 0 is the prompt; blocks 1, 2, ... cut the `length` generated positions; the last may be shorter.

    `grid`: where blocks are counted from. "prompt": its end. "absolute": position 0, with the prompt inside the blocks;
    then block 1 is what the prompt leaves of the block of the grid in which it ends (SDAR, Fast-dLLM v2, LLaDA2).
    """

    prompt: int
    length: int
    block: int
    grid: str = "prompt"

    @property
    def end(self) -> int:
        return self.prompt + self.length

    @property
    def blocks(self) -> int:
        """Number of blocks right of the prompt."""
        return -(-(self.end - self.origin) // self.block)

    @property
    def planned(self) -> int:
        """Blocks that `length` positions make if the prompt ends with a block; schedules are cut by them."""
        return -(-self.length // self.block)

    @property
    def origin(self) -> int:
        """Where the block of the grid begins that block 1 stands in: the prompt's tail lies between it and block 1."""
        return self.prompt - (self.prompt % self.block if self.grid == "absolute" else 0)

    def start_of(self, block: int) -> int:
        return 0 if block == 0 else max(self.prompt, self.origin + (block - 1) * self.block)

    def end_of(self, block: int) -> int:
        return self.prompt if block == 0 else min(self.origin + block * self.block, self.end)

    def begin_of(self, block: int) -> int:
        """The start of a block on the grid: of block 1 the prompt's tail is a part."""
        return 0 if block == 0 else self.origin + (block - 1) * self.block

    def settled(self, block: int) -> int:
        """How far the text is final once `block` and all before it are: the prompt's tail waits for block 1."""
        return self.origin if block == 0 else self.end_of(block)

    def whole(self, positions: int) -> int:
        """How many of the first `positions` of the prompt are final whatever follows them."""
        return positions // self.block * self.block if self.grid == "absolute" else positions

    def block_of(self, positions: np.ndarray) -> np.ndarray:
        return np.where(positions < self.prompt, 0, (positions - self.origin) // self.block + 1)

    def attention_of(self, positions: np.ndarray) -> np.ndarray:
        """Block numbers for block-causal attention: the grid's own, of the prompt's positions too."""
        return positions // self.block if self.grid == "absolute" else self.block_of(positions)


@dataclass(frozen=True)
class Extra:
    """The one token by which a lookahead branch differs from the anchor of its round."""

    position: int
    token: int
    prob: float
    confidence: float


REMASK = -1  # as a token of a revision: the position becomes a mask again


@dataclass(frozen=True)
class Revision:
    """What a rule makes of filled positions: `tokens` [E] at `positions` [E], or REMASK. `settled`: blocks now done."""

    positions: np.ndarray
    tokens: np.ndarray
    settled: tuple[int, ...] = ()


@dataclass
class Branch:
    """One candidate state.

    ids: prompt and the window so far. masks: masks left, per block. activated: per block, whether it may be forced.
    ready: leading blocks that are finished and verified, so that their keys and values may enter the cache (a
    lookahead token finishes no block before its branch has won). stored: those of them that were ready when they were
    last fed, so that a cache of finished blocks holds them by now. end: position of the first end token that was
    filled.
    memory: what the fill rule remembers from step to step (a schedule's position).
    unsettled: per block, whether its rule has to look at it again although it may be full.
    """

    ids: np.ndarray
    masks: list[int]
    activated: list[bool]
    ready: int = 1
    stored: int = 1
    end: int | None = None
    extra: Extra | None = None
    memory: tuple[Any, ...] = ()
    unsettled: list[bool] = field(default_factory=lambda: [False])

    @classmethod
    def start(cls, prompt: Sequence[int]) -> Branch:
        return cls(np.asarray(prompt, dtype=np.int64), masks=[0], activated=[True])

    def append_block(self, size: int, mask_id: int, activated: bool = False, unsettled: bool = False) -> None:
        self.ids = np.concatenate([self.ids, np.full(size, mask_id, dtype=np.int64)])
        self.masks.append(size)
        self.activated.append(activated)
        self.unsettled.append(unsettled)

    def copy(self) -> Branch:
        return Branch(
            self.ids.copy(),
            self.masks.copy(),
            self.activated.copy(),
            self.ready,
            self.stored,
            self.end,
            None,
            self.memory,
            self.unsettled.copy(),
        )

    def filled(self, positions: np.ndarray, tokens: np.ndarray, borders: Borders, vocab: Vocabulary) -> Branch:
        """This branch with `tokens` at `positions`, which must be masks."""
        new = self.copy()
        assert (self.ids[positions] == vocab.mask_id).all(), "a filled position never changes"
        new.ids[positions] = tokens
        for block in borders.block_of(positions):
            new.masks[block] -= 1
        ends = positions[np.isin(tokens, vocab.end_ids)].tolist()
        new.end = min([*ends, *([] if self.end is None else [self.end])], default=None)
        return new

    def edited(self, revision: Revision, borders: Borders, vocab: Vocabulary) -> Branch:
        """This branch with a rule's changes to positions that are filled already, in place."""
        positions = revision.positions
        assert (self.ids[positions] != vocab.mask_id).all(), "a mask is filled, not edited"
        self.ids[positions] = np.where(revision.tokens == REMASK, vocab.mask_id, revision.tokens)
        for block in borders.block_of(positions[revision.tokens == REMASK]):
            self.masks[block] += 1
        for block in revision.settled:
            self.unsettled[block] = False
        self.end = first_end(self.ids, borders.prompt, vocab)
        return self

    def stands_as(self, other: Branch) -> bool:
        """Whether both are the same text at the same point of its decoding, so that what follows is the same."""
        mine = (self.masks, self.activated, self.ready, self.stored, self.end, self.memory)
        theirs = (other.masks, other.activated, other.ready, other.stored, other.end, other.memory)
        return mine == theirs and self.unsettled == other.unsettled and np.array_equal(self.ids, other.ids)

    def verify(self) -> None:
        """Marks the leading finished blocks as ready for the cache, once behind each forward."""
        self.stored = self.ready
        while self.ready < len(self.masks) and self.is_done(self.ready):
            self.ready += 1

    def is_done(self, block: int) -> bool:
        """Whether nothing of a block is left to do."""
        return self.masks[block] == 0 and not self.unsettled[block]

    @property
    def done(self) -> bool:
        """Whether nothing of the blocks that there are is left to do."""
        return self.masks_left == 0 and not any(self.unsettled)

    @property
    def ended(self) -> bool:
        """Whether an end token was filled."""
        return self.end is not None

    @property
    def masks_left(self) -> int:
        return sum(self.masks)


def first_end(ids: np.ndarray, prompt: int, vocab: Vocabulary) -> int | None:
    """Position of the first end token right of the prompt, in position order."""
    hits = np.flatnonzero(np.isin(ids[prompt:], vocab.end_ids))
    return prompt + int(hits[0]) if len(hits) else None
