"""LLaDA2 (arXiv 2512.15745): one block after the other, in each all masks above a threshold, at least one.

No block costs a forward more than those that fill it: the next block's first forward stores it.
"""

from decoders.parts.fills import Threshold
from decoders.parts.windows import Successive
from decoders.spec import Base

LLADA2 = Base(
    name="llada2",
    window=Successive,
    fills={"threshold": Threshold},
    caches=("exact", "none"),
    defaults={
        "fill": "threshold",
        "tau_conf": 0.95,
        "forced": "per_block",
        "confidence": "prob",
        "block_size": None,
        "cache": "exact",
        "store": "merged",
        "attention": "block_causal",
    },
)
