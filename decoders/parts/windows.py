"""Windows: which positions take part in a round, and which blocks may be forced."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from decoders.config import DecoderConfig
from decoders.state import Borders, Branch


class Window:
    """Opens a text, moves a branch on before each round, and says where the fill rule may fill.

    `reads`: the settings that it reads, with their defaults. `caches`: by attention, the cache policies that its texts
    can be decoded with. `grids`: where its blocks may be counted from. `hands_over`: whether the forward that stores a
    finished block fills the position behind it, for which the model's logits must be shifted. `revisits`: whether a
    block that is full is looked at again until the rule settles it. `goes_ahead`: whether masks of blocks that a text
    has not reached can be fed behind it, seen by nobody before them (`decoder.eager`).
    """

    reads: ClassVar[Mapping[str, Any]] = {"block_size": None}
    caches: ClassVar[Mapping[str, tuple[str, ...]]] = {"full": ("none",), "block_causal": ("none", "exact")}
    grids: ClassVar[tuple[str, ...]] = ("prompt", "absolute")
    hands_over: ClassVar[bool] = False
    revisits: ClassVar[bool] = False
    goes_ahead: ClassVar[bool] = False

    def __init__(self, config: DecoderConfig, prompt: int, mask_id: int):
        self.config = config
        self.mask_id = mask_id
        self.borders = Borders(prompt, config.gen_length, self.block_size(config), config.grid or "prompt")

    @staticmethod
    def block_size(config: DecoderConfig) -> int:
        assert config.block_size is not None
        return config.block_size

    def open(self, prompt: Sequence[int]) -> Branch:
        """The state before the first round."""
        branch = Branch.start(prompt)
        for block in range(1, self.borders.blocks + 1):
            size = self.borders.end_of(block) - self.borders.start_of(block)
            branch.append_block(size, self.mask_id, activated=block == 1)
        return branch

    def advance(self, branch: Branch) -> None:
        """Appends and activates blocks of `branch` as its own fill allows, in place."""

    def scope(self, branch: Branch) -> tuple[int, int]:
        """The range of positions whose masks take part."""
        return self.borders.prompt, len(branch.ids)

    def ahead(self, branch: Branch) -> int:
        """How far masks are fed behind the texts of a round whose anchor this is; 0 for none."""
        return 0

    def shown(self, branch: Branch) -> np.ndarray:
        """The text [T] as the model sees it."""
        return branch.ids

    def _filled(self, branch: Branch, block: int) -> float:
        """Filled fraction of a block; the prompt counts as full, and so does its tail in block 1."""
        size = self.borders.end_of(block) - self.borders.begin_of(block)
        return (size - branch.masks[block]) / size if block else 1.0


class Canvas(Window):
    """The whole generation as one block, visible from the start (vanilla Dream)."""

    reads: ClassVar[Mapping[str, Any]] = {}
    grids: ClassVar[tuple[str, ...]] = ("prompt",)

    @staticmethod
    def block_size(config: DecoderConfig) -> int:
        return config.gen_length


class Blocks(Window):
    """Semi-autoregressive blocks: all are visible, the first unfinished one is decoded (LLaDA, Fast-dLLM).

    The refreshed caches hold what lies behind the block, which block-causal attention does not see; a finished block
    that is kept for good has not seen what lies behind it, which full attention would have it see.
    """

    caches: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "full": ("none", "prefix", "dual", "vicinity"),
        "block_causal": ("none", "exact"),
    }

    def current(self, branch: Branch) -> int:
        """The first unfinished block, or the last block if all are finished."""
        for block in range(len(branch.masks)):
            if not branch.is_done(block):
                return block
        return len(branch.masks) - 1

    def advance(self, branch: Branch) -> None:
        block = self.current(branch)
        if not branch.activated[block]:
            branch.activated[block] = True
            branch.memory = ()  # schedules begin anew in each block

    def scope(self, branch: Branch) -> tuple[int, int]:
        block = self.current(branch)
        return self.borders.start_of(block), self.borders.end_of(block)

    def reach(self, branch: Branch) -> tuple[int, int]:
        """The scope on the grid, with the prompt's tail where it has one: what is fed if it is fed alone."""
        block = self.current(branch)
        return self.borders.begin_of(block), self.borders.end_of(block)


class Successive(Blocks):
    """Blocks one after the other: one that is not reached yet does not exist (SDAR, LLaDA2).

    A block is appended when all before it are full and none holds an end token; a branch that its lookahead token
    takes over the border goes on in the next block. With `store=forward` a finished block costs a forward that
    does nothing but store its keys and values; with `merged` the next block's first forward does that as well.
    """

    reads: ClassVar[Mapping[str, Any]] = {"block_size": None, "store": "merged"}
    caches: ClassVar[Mapping[str, tuple[str, ...]]] = {"block_causal": ("none", "exact")}
    goes_ahead = True

    def open(self, prompt: Sequence[int]) -> Branch:
        return Branch.start(prompt)

    def ahead(self, branch: Branch) -> int:
        """As many blocks more as `eager` drafts of one position each can reach (FreeDave), none behind an end token."""
        config, newest = self.config, len(branch.masks) - 1
        if not config.eager or config.k == 0 or branch.ended:
            return 0
        more = -(-(int(config.k) + 1) // self.borders.block)
        return self.borders.end_of(min(newest + more, self.borders.blocks))

    def advance(self, branch: Branch) -> None:
        newest = len(branch.masks) - 1
        if branch.is_done(newest) and not branch.ended and newest < self.borders.blocks:
            size = self.borders.end_of(newest + 1) - self.borders.start_of(newest + 1)
            branch.append_block(size, self.mask_id, unsettled=self.revisits)
        super().advance(branch)


class Revisited(Successive):
    """Blocks one after the other, each looked at again when it is full (LLaDA2.1)."""

    revisits = True
    goes_ahead = False


class Reopened(Blocks):
    """Blocks from left to right, of which the finished ones may get masks again (Saber): all up to the newest take
    part, and the next one follows when none of them has a mask.
    """

    caches: ClassVar[Mapping[str, tuple[str, ...]]] = {"full": ("none",), "block_causal": ("none",)}

    def current(self, branch: Branch) -> int:
        newest = max(block for block, active in enumerate(branch.activated) if active)
        full = not any(branch.masks[: newest + 1])
        return min(newest + full, len(branch.masks) - 1)

    def advance(self, branch: Branch) -> None:
        branch.activated[self.current(branch)] = True

    def scope(self, branch: Branch) -> tuple[int, int]:
        return self.borders.prompt, self.borders.end_of(self.current(branch))


class SubBlocks(Successive):
    """Fast-dLLM v2: within a block, sub-blocks of `sub_block_size` from left to right, counted from the block's start.

    The forward that stores a finished block also says what stands behind it: the next block's first token.
    """

    reads: ClassVar[Mapping[str, Any]] = {"block_size": None, "sub_block_size": None}
    caches: ClassVar[Mapping[str, tuple[str, ...]]] = {"block_causal": ("exact", "sub_block")}
    hands_over = True
    goes_ahead = False

    def scope(self, branch: Branch) -> tuple[int, int]:
        start, end = self.reach(branch)
        return max(start, self.borders.prompt), end

    def reach(self, branch: Branch) -> tuple[int, int]:
        """The first sub-block with masks, with what of the prompt stands in it."""
        size = self.config.sub_block_size
        assert size is not None
        block = self.current(branch)
        begin, end = self.borders.begin_of(block), self.borders.end_of(block)
        first = self.borders.prompt
        while begin + size < end and not (branch.ids[max(begin, first) : begin + size] == self.mask_id).any():
            begin += size
        return begin, min(begin + size, end)


class Pipeline(Window):
    """D2F's pipeline: blocks are appended while earlier ones are unfinished, and all of them take part.

    A block is appended when the newest is filled to tau_add and no end token was filled; a block is activated (may
    be forced) when its left neighbour is filled to tau_act; activation is never undone (D2F section 3.3).
    Its finished blocks may be kept under full attention too, frozen as they were (LoPA section 3.3).
    """

    reads: ClassVar[Mapping[str, Any]] = {"block_size": None, "tau_add": 0.1, "tau_act": 0.95}
    caches: ClassVar[Mapping[str, tuple[str, ...]]] = {"full": ("none", "exact"), "block_causal": ("none", "exact")}

    def open(self, prompt: Sequence[int]) -> Branch:
        return Branch.start(prompt)

    def advance(self, branch: Branch) -> None:
        tau_add, tau_act = self.config.tau_add, self.config.tau_act
        assert tau_add is not None
        assert tau_act is not None
        newest = len(branch.masks) - 1
        room = newest < self.borders.blocks and self._has_room(branch)
        if room and not branch.ended and self._filled(branch, newest) >= tau_add:
            size = self.borders.end_of(newest + 1) - self.borders.start_of(newest + 1)
            branch.append_block(size, self.mask_id)
        for block in range(1, len(branch.masks)):
            if not branch.activated[block] and self._filled(branch, block - 1) >= tau_act:
                branch.activated[block] = True

    def _has_room(self, branch: Branch) -> bool:
        """Whether one block more may be under way."""
        return True


class Buffer(Pipeline):
    """MultiBD's pipeline: at most `buffer_size` blocks are under way (Diffulex).

    A block leaves the buffer when its keys and values are stored, one forward behind its last token. If nothing in a
    full buffer is left to fill, a block is appended all the same, so that no forward is spent on storing alone. A
    prompt that ends inside a block has begun it: that one is under way from the start.
    """

    reads: ClassVar[Mapping[str, Any]] = {"block_size": None, "buffer_size": 4, "tau_add": 0.1, "tau_act": 0.9}
    caches: ClassVar[Mapping[str, tuple[str, ...]]] = {"block_causal": ("none", "exact")}

    def open(self, prompt: Sequence[int]) -> Branch:
        branch = Branch.start(prompt)
        if self.borders.origin < self.borders.prompt:
            branch.append_block(self.borders.end_of(1) - self.borders.prompt, self.mask_id)
        return branch

    def _has_room(self, branch: Branch) -> bool:
        assert self.config.buffer_size is not None
        return len(branch.masks) - branch.stored < self.config.buffer_size or branch.masks_left == 0


class Widening(Window):
    """d3LLM's: the whole text is visible from the start, and more and more of its blocks take part (`activated`).

    The next one joins when the newest is filled to tau_add, one block a round. With `early_stop` what lies behind the
    first end token takes no part any more, and the model sees that token all over it. Finished blocks that are kept
    have not seen what lies behind them, which full attention would have them see: it goes with `delayed` alone.
    """

    reads: ClassVar[Mapping[str, Any]] = {"block_size": None, "tau_add": 0.1, "early_stop": False}
    caches: ClassVar[Mapping[str, tuple[str, ...]]] = {"full": ("none", "delayed"), "block_causal": ("none", "exact")}

    def advance(self, branch: Branch) -> None:
        newest = self._newest(branch)
        assert self.config.tau_add is not None
        if newest < self.borders.blocks and self._filled(branch, newest) >= self.config.tau_add:
            branch.activated[newest + 1] = True

    def scope(self, branch: Branch) -> tuple[int, int]:
        end, stop = self.borders.end_of(self._newest(branch)), self._stop(branch)
        return self.borders.prompt, end if stop is None else min(end, stop)

    def shown(self, branch: Branch) -> np.ndarray:
        stop = self._stop(branch)
        if stop is None:
            return branch.ids
        return np.concatenate([branch.ids[:stop], np.full(len(branch.ids) - stop, branch.ids[stop])])

    def _newest(self, branch: Branch) -> int:
        return max(block for block, takes_part in enumerate(branch.activated) if takes_part)

    def _stop(self, branch: Branch) -> int | None:
        """The end token behind which nothing is of interest."""
        return branch.end if self.config.early_stop else None
