"""The fill rule of a decode, behind Fast-dLLM's unconditional first position if the settings say so."""

from __future__ import annotations

import numpy as np

from decoders.config import DecoderConfig
from decoders.parts.fills import Fill, Uniform, View
from decoders.state import Borders, Branch


class FirstPosition(Fill):
    """Fast-dLLM's cached sampler for Dream: the first forward of a block fills its first position, unconditionally,
    because later forwards start at the block and have no logit to shift into it. Another rule fills the rest.

    memory: () before the first forward, then the other rule's, which counts this forward as its step 0.
    """

    def __init__(self, config: DecoderConfig, borders: Borders, uniform: Uniform, rest: Fill):
        super().__init__(config, borders, uniform)
        self.rest = rest

    def select(self, view: View, branch: Branch) -> np.ndarray:
        if branch.memory:
            return self.rest.select(view, branch)
        branch.memory = (1,)
        return np.array([0])


def make_fill(rule: type[Fill], config: DecoderConfig, borders: Borders, uniform: Uniform) -> Fill:
    """The rule for one decode, behind `FirstPosition` if the settings say so."""
    fill = rule(config, borders, uniform)
    if config.first_position == "unconditional":
        return FirstPosition(config, borders, uniform, fill)
    return fill
