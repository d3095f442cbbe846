"""d3LLM's cache: a finished block waits before it is kept, and what is kept is computed anew now and then."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from decoders.config import DecoderConfig
from decoders.parts.cache import Cache
from decoders.parts.windows import Window
from decoders.state import Branch
from decoders.types import Readout, Request


class Delayed(Cache):
    """Keeps finished blocks under full attention, `cache_delay` forwards behind the first that found them full.

    While a block waits, forwards run on the whole text, and what they make of the positions that are kept already takes
    the place of what was kept; so does every `refresh_interval`-th forward (None: none does). All others feed what lies
    behind the kept positions, and the one in which a block's time is up keeps it. Counted from 1, forward `cache_delay`
    keeps the prompt. Approximate: kept values have not seen what was filled since.
    """

    reads: ClassVar[Mapping[str, Any]] = {"cache_delay": 1, "refresh_interval": None}
    counts = True

    def __init__(self, config: DecoderConfig, window: Window, readout: Readout, cached: int = 0):
        super().__init__(config, window, readout)
        self.forwards = 0
        self.full_since = {0: 0}  # by block, the forward that first found it full
        self.planned: tuple[int, int] | None = None  # what this forward will have kept

    def request(self, branches: list[Branch]) -> Request:
        self.forwards += 1
        due, waiting = self._finished(branches[0].ready)
        self.planned = None
        if due > self.cached:
            self.planned = (self.cached, due)
        elif self.cached and (waiting or self._is_refresh()):
            self.planned = (0, self.cached)
            return self._feed(branches, 0)
        return self._feed(branches, self.cached)

    def settle(self, request: Request, branches: list[Branch], winner: int) -> None:
        if self.planned is not None:
            self._plan(winner, *self.planned)

    def _is_refresh(self) -> bool:
        interval = self.config.refresh_interval
        return interval is not None and self.forwards % interval == 0

    def _finished(self, ready: int) -> tuple[int, bool]:
        """Up to where the text may be kept by now, and whether a finished block still waits. An earlier block is never
        found full later, so that those which may be kept come first.
        """
        assert self.config.cache_delay is not None
        due, waiting = self.cached, False
        for block in range(ready):
            end = self.window.borders.settled(block)
            if end <= self.cached:
                continue
            if self.forwards - self.full_since.setdefault(block, self.forwards) >= self.config.cache_delay:
                due = end
            else:
                waiting = True
        return due, waiting
