"""Cache policies: what a round feeds to the model, and what it leaves in the cache."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from decoders.config import DecoderConfig
from decoders.parts.cache import Cache
from decoders.parts.delayed import Delayed
from decoders.parts.windows import Blocks, Window
from decoders.state import Branch
from decoders.types import Keep, Readout, Request


class ExactBlocks(Cache):
    """D2F's cache: a finished block is fed once more with its final tokens, and that forward's values are kept.

    Exact under block-causal attention. Under full attention the kept values have seen the masks to their right and
    stay frozen (LoPA, section 3.3).
    """

    def __init__(self, config: DecoderConfig, window: Window, readout: Readout, cached: int = 0):
        super().__init__(config, window, readout, window.borders.whole(cached))

    def request(self, branches: list[Branch]) -> Request:
        return self._feed(branches, self.cached)

    def settle(self, request: Request, branches: list[Branch], winner: int) -> None:
        ready = self._ready(branches[winner])
        if ready > self.cached:
            self._plan(winner, self.cached, ready)

    def saw(self, request: Request, winner: int, state: Branch) -> None:
        """The forward behind which a block is settled has seen its final tokens, unless they were edited once more."""
        ready, start = self._ready(state), request.start
        fed = request.ids[winner, : ready - start]
        if ready > self.cached and np.array_equal(fed, state.ids[start:ready]):
            self._plan(winner, self.keep.start if self.keep else self.cached, ready)

    def shares(self, before: Branch, after: Branch) -> bool:
        """Block-causal, a finished block's values are the same whenever they are kept. Under full attention they are
        those of the first forward behind the block's last token, so that the texts after it see another cache. Where a
        forward of its own stores a block, the text behind it comes after that, with what is handed over.
        """
        stored_apart = self.window.hands_over or (self.config.store == "forward" and not self.config.eager)
        if stored_apart and self._ready(after) > self.cached:
            return False
        return self.config.attention == "block_causal" or self._ready(before) <= self.cached

    def _ready(self, branch: Branch) -> int:
        """How far a branch is finished and verified."""
        return self.window.borders.settled(branch.ready - 1)

    def store(self, branch: Branch) -> Request | None:
        """A forward of its own for each finished block (SDAR, Fast-dLLM v2).

        The prompt is stored by the first block's forwards, unless its own says that block's first token.
        """
        borders, hands_over = self.window.borders, self.window.hands_over
        ready = self._ready(branch)
        due = branch.ready > 1 or (hands_over and ready == borders.prompt)
        if not due or ready <= self.cached or not (hands_over or self.config.store == "forward"):
            return None
        return replace(self._feed([branch], self.cached, ready), behind=True)


class SubBlockRefresh(ExactBlocks):
    """Fast-dLLM v2's block cache: finished blocks as above, and of the current block what a forward over it all left.

    That forward is made when a block begins and while the sub-block's first position is a mask (its prediction is the
    logit before it); the others feed the sub-block alone, on the rest of the block as it was. When branches stand in
    different sub-blocks, the round feeds blocks.
    """

    needs_blocks = True

    def __init__(self, config: DecoderConfig, window: Window, readout: Readout, cached: int = 0):
        super().__init__(config, window, readout, cached)
        assert isinstance(window, Blocks)
        self.blocks = window
        self.block: int | None = None  # the block of which the cache holds a copy

    def request(self, branches: list[Branch]) -> Request:
        scopes = {self.blocks.reach(branch) for branch in branches}
        start, end = self.blocks.reach(branches[0])
        first_masked = any(self._is_mask(branch, start) for branch in branches)
        if len(scopes) > 1 or first_masked or self.block != self.blocks.current(branches[0]):
            return super().request(branches)
        behind = (end, self.window.borders.end_of(self.block))
        return self._feed(branches, start, end, suffix=behind if behind[0] < behind[1] else None)

    def shares(self, before: Branch, after: Branch) -> bool:
        """Inside a sub-block behind its last forward over the block."""
        same = self.block == self.blocks.current(before) == self.blocks.current(after)
        start, end = self.blocks.reach(before)
        return same and self.blocks.reach(after) == (start, end) and not self._is_mask(before, start)

    def settle(self, request: Request, branches: list[Branch], winner: int) -> None:
        if request.behind:
            super().settle(request, branches, winner)
        elif request.start == self.cached and request.start + request.ids.shape[1] >= len(branches[winner].ids):
            self.block = self.blocks.current(branches[winner])
            self.keep = Keep(winner, self.cached, len(branches[winner].ids))
            self.cached = self._ready(branches[winner])

    def _is_mask(self, branch: Branch, position: int) -> bool:
        """A mask id in the prompt is text like any other."""
        return position >= self.window.borders.prompt and branch.ids[position] == self.window.mask_id


class BlockRefresh(Cache):
    """Fast-dLLM's caches: the first forward of a block runs on the whole text and is kept, the others reuse it.

    `prefix` keeps what lies left of the block and feeds the block and all behind it; `dual` keeps everything and feeds
    the block alone. When branches stand in different blocks, the round is a refresh.
    """

    needs_blocks = True

    def __init__(self, config: DecoderConfig, window: Window, readout: Readout, cached: int = 0):
        super().__init__(config, window, readout, 0)
        assert isinstance(window, Blocks)
        self.blocks = window
        self.block: int | None = None  # the block for which the cache holds

    def request(self, branches: list[Branch]) -> Request:
        current = {self.blocks.current(branch) for branch in branches}
        if current != {self.block}:
            return self._feed(branches, 0)
        start, end = self._near(branches[0])
        if self.config.cache == "prefix":
            return self._feed(branches, start)
        behind = (end, self.window.borders.end)
        return self._feed(branches, start, end, suffix=behind if behind[0] < behind[1] else None)

    def _near(self, branch: Branch) -> tuple[int, int]:
        """What is fed of a text whose cache holds: the block alone."""
        return self.blocks.reach(branch)

    def shares(self, before: Branch, after: Branch) -> bool:
        """Inside a block behind its first forward: that one refreshes the cache."""
        return self.blocks.current(before) == self.blocks.current(after) == self.block

    def settle(self, request: Request, branches: list[Branch], winner: int) -> None:
        if request.start > 0 or request.suffix is not None:
            return
        self.block = self.blocks.current(branches[winner])
        start, _ = self.blocks.reach(branches[winner])
        end = start if self.config.cache == "prefix" else self.window.borders.end
        if end > 0:
            self._plan(winner, 0, end)


class VicinityRefresh(BlockRefresh):
    """dInfer's refresh near the block (`VicinityCacheIteration`, github.com/inclusionAI/dInfer, Apache-2.0).

    As `dual`, but every forward computes `prefix_look` positions left of the block and `after_look` right of it anew,
    from what stands there by now; what it makes of them serves that forward alone. The first `warmup_steps` forwards of
    a text run on all of it and keep nothing. Approximate, as `dual` is, which it is with zeros for all three.
    """

    reads: ClassVar[Mapping[str, Any]] = {"prefix_look": 16, "after_look": 16, "warmup_steps": 4}

    def __init__(self, config: DecoderConfig, window: Window, readout: Readout, cached: int = 0):
        super().__init__(config, window, readout, cached)
        assert config.warmup_steps is not None
        self.warmup = config.warmup_steps  # forwards still to come

    def settle(self, request: Request, branches: list[Branch], winner: int) -> None:
        if self.warmup:  # as long as the cache holds for no block, all of the text is fed
            self.warmup -= 1
        else:
            super().settle(request, branches, winner)

    def _near(self, branch: Branch) -> tuple[int, int]:
        start, end = self.blocks.reach(branch)
        assert self.config.prefix_look is not None
        assert self.config.after_look is not None
        return max(0, start - self.config.prefix_look), min(end + self.config.after_look, self.window.borders.end)


CACHES: dict[str, type[Cache]] = {
    "none": Cache,
    "exact": ExactBlocks,
    "prefix": BlockRefresh,
    "dual": BlockRefresh,
    "vicinity": VicinityRefresh,
    "sub_block": SubBlockRefresh,
    "delayed": Delayed,
}
OF_BLOCKS = ("none", "exact", "prefix", "dual", "vicinity")  # of decoders whose blocks are there from the start
