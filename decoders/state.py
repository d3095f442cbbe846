"""The text under way: a grid of blocks, and one branch of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from decoders.types import Vocabulary


@dataclass(frozen=True)
class Layout:
    """Block 0 is the prompt; blocks 1, 2, ... cut the `length` generated positions; the last may be shorter."""

    prompt: int
    length: int
    block: int

    @property
    def end(self) -> int:
        return self.prompt + self.length

    @property
    def blocks(self) -> int:
        """Number of blocks right of the prompt."""
        return -(-self.length // self.block)

    def start_of(self, block: int) -> int:
        return 0 if block == 0 else self.prompt + (block - 1) * self.block

    def end_of(self, block: int) -> int:
        return self.prompt if block == 0 else min(self.prompt + block * self.block, self.end)

    def block_of(self, positions: np.ndarray) -> np.ndarray:
        return np.where(positions < self.prompt, 0, (positions - self.prompt) // self.block + 1)


@dataclass(frozen=True)
class Extra:
    """The one token by which a lookahead branch differs from the anchor of its round."""

    position: int
    token: int
    prob: float
    confidence: float


@dataclass
class Branch:
    """One candidate state.

    ids: prompt and the window so far. masks: masks left, per block. activated: per block, whether it may be forced.
    ready: leading blocks that are finished and verified, so that their keys and values may enter the cache (a
    lookahead token finishes no block before its branch has won). ended: an end token was filled.
    memory: what the fill rule remembers from step to step (a schedule's position).
    """

    ids: np.ndarray
    masks: list[int]
    activated: list[bool]
    ready: int = 1
    ended: bool = False
    extra: Extra | None = None
    memory: tuple[int, ...] = ()

    @classmethod
    def start(cls, prompt: Sequence[int]) -> Branch:
        return cls(np.asarray(prompt, dtype=np.int64), masks=[0], activated=[True])

    def append_block(self, size: int, mask_id: int, activated: bool = False) -> None:
        self.ids = np.concatenate([self.ids, np.full(size, mask_id, dtype=np.int64)])
        self.masks.append(size)
        self.activated.append(activated)

    def copy(self) -> Branch:
        return Branch(
            self.ids.copy(),
            self.masks.copy(),
            self.activated.copy(),
            self.ready,
            self.ended,
            None,
            self.memory,
        )

    def filled(self, positions: np.ndarray, tokens: np.ndarray, layout: Layout, vocab: Vocabulary) -> Branch:
        """This branch with `tokens` at `positions`, which must be masks."""
        new = self.copy()
        assert (self.ids[positions] == vocab.mask_id).all(), "a filled position never changes"
        new.ids[positions] = tokens
        for block in layout.block_of(positions):
            new.masks[block] -= 1
        new.ended = self.ended or bool(np.isin(tokens, vocab.end_ids).any())
        return new

    def verify(self) -> None:
        """Marks the leading finished blocks as ready for the cache."""
        while self.ready < len(self.masks) and self.masks[self.ready] == 0:
            self.ready += 1

    @property
    def masks_left(self) -> int:
        return sum(self.masks)


def first_end(ids: np.ndarray, prompt: int, vocab: Vocabulary) -> int | None:
    """Position of the first end token right of the prompt, in position order."""
    hits = np.flatnonzero(np.isin(ids[prompt:], vocab.end_ids))
    return prompt + int(hits[0]) if len(hits) else None
