"""Greedy confidence decoding: the one most confident mask of the whole canvas a forward.

The reference point of every parallel decoder: TPF is 1 by construction (counted over the window).
"""

from decoders.fills import TopN
from decoders.spec import Base
from decoders.windows import Canvas

GREEDY = Base(
    name="greedy",
    window=Canvas,
    fill=TopN,
    caches=("none",),
    defaults={"tokens_per_step": 1, "confidence": "prob", "cache": "none", "attention": "full"},
)
