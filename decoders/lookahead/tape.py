"""Random numbers that can be read ahead, so that a draft draws what the base will draw."""

from __future__ import annotations

import numpy as np

from decoders.parts.fills import Uniform


class Tape:
    """`draw` takes the next numbers, `ahead` those behind them without taking any, from `rewind` on."""

    def __init__(self, uniform: Uniform):
        self.uniform = uniform
        self.known = np.empty(0)  # drawn and not yet taken
        self.at = 0

    def draw(self, n: int) -> np.ndarray:
        numbers = self._known(n)[:n]
        self.known = self.known[n:]
        return numbers

    def ahead(self, n: int) -> np.ndarray:
        self.at += n
        return self._known(self.at)[self.at - n : self.at]

    def rewind(self) -> None:
        self.at = 0

    def _known(self, n: int) -> np.ndarray:
        if len(self.known) < n:
            self.known = np.concatenate([self.known, self.uniform(n - len(self.known))])
        return self.known
