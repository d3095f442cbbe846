"""LLaDA's sampler and LLaDA2's.

LLaDA: low-confidence remasking (arXiv 2502.09992): blocks from left to right, a fixed quota a step.

Each block of M masks has S = steps / blocks steps; a step fills M // S of its most confident masks, the first M mod S
steps one more.

LLaDA2 (arXiv 2512.15745): one block after the other, in each all masks above a threshold, at least one. No block costs
a forward more than those that fill it: the next block's first forward stores it.
"""

from decoders.parts.caches import OF_BLOCKS
from decoders.parts.fills import Quota, Threshold
from decoders.parts.windows import Blocks, Successive
from decoders.spec import Base

LLADA = Base(
    name="llada",
    window=Blocks,
    fills={"quota": Quota},
    caches=OF_BLOCKS,
    defaults={
        "fill": "quota",
        "steps": None,
        "confidence": "prob",
        "block_size": None,
        "cache": None,
        "attention": "full",
    },
)

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
