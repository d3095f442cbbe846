"""Greedy confidence decoding: the one most confident mask of the current block a forward.

The reference point of every parallel decoder: over the window, TPF is 1 by construction. Blocks go from left to right
(LLaDA's semi-autoregressive order); block_size = gen_length decodes the whole canvas at once.
"""

from decoders.parts.caches import OF_BLOCKS
from decoders.parts.fills import TopN
from decoders.parts.windows import Blocks
from decoders.spec import Base

GREEDY = Base(
    name="greedy",
    window=Blocks,
    fills={"top_n": TopN},
    caches=OF_BLOCKS,
    defaults={
        "fill": "top_n",
        "tokens_per_step": 1,
        "confidence": "prob",
        "block_size": None,
        "cache": None,
        "attention": "full",
    },
)
