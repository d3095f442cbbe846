"""What every cache policy has in common: it feeds branches and plans what of a forward is kept."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from decoders.config import DecoderConfig
from decoders.parts.windows import Window
from decoders.state import Branch
from decoders.types import Keep, Readout, Request


class Cache:
    """No cache: every round feeds every branch whole. `needs_blocks`: the window must be one of `Blocks`. `reads`: the
    settings that it reads, with their defaults. `counts`: whether what it keeps goes by the number of forwards.
    """

    needs_blocks: ClassVar[bool] = False
    reads: ClassVar[Mapping[str, Any]] = {}
    counts: ClassVar[bool] = False

    def __init__(self, config: DecoderConfig, window: Window, readout: Readout, cached: int = 0):
        self.config = config
        self.window = window
        self.readout = readout
        self.cached = cached  # committed positions [0, cached)
        self.keep: Keep | None = None
        self.follows = 0  # the winner of the round before

    def request(self, branches: list[Branch]) -> Request:
        """The model call for these branches; the anchor is the first."""
        return self._feed(branches, 0)

    def settle(self, request: Request, branches: list[Branch], winner: int) -> None:
        """Plans what of the winner's forward is kept; carried out with the next request."""

    def saw(self, request: Request, winner: int, state: Branch) -> None:
        """Plans to keep what of the winner's forward is final already, where its rule has changed nothing of it."""

    def shares(self, before: Branch, after: Branch) -> bool:
        """Whether the base, one step behind `before`, feeds `after` on the very cache on which `before` is fed, so that
        both can be rows of one call. A policy that keeps anything has to say so for itself.
        """
        return True

    def store(self, branch: Branch) -> Request | None:
        """The forward that only stores what of `branch` is finished, if one is due."""
        return None

    def _feed(
        self,
        branches: list[Branch],
        start: int,
        end: int | None = None,
        suffix: tuple[int, int] | None = None,
    ) -> Request:
        parts = [self.window.shown(branch)[start:end] for branch in branches]
        reach = self.window.ahead(branches[0]) - start if end is None else 0
        lengths = np.array([max(len(part), reach) for part in parts])
        ids = np.full((len(parts), lengths.max()), self.window.mask_id, dtype=np.int64)
        for row, part in enumerate(parts):
            ids[row, : len(part)] = part
        blocks = None
        if self.config.attention == "block_causal":
            blocks = self.window.borders.attention_of(np.arange(start, start + ids.shape[1]))
        keep, self.keep = self.keep, None
        follows, self.follows = self.follows, 0
        without = self.window.borders.prompt if self.readout.cfg_scale else 0
        return Request(ids, lengths, start, self.readout, blocks, suffix, keep, follows=follows, unconditional=without)

    def _plan(self, row: int, start: int, end: int) -> None:
        self.keep = Keep(row, start, end)
        self.cached = end
