"""LLaDA's sampler, low-confidence remasking (arXiv 2502.09992): blocks from left to right, a fixed quota a step.

Each block of M masks has S = steps / blocks steps; a step fills M // S of its most confident masks, the first M mod S
steps one more.
"""

from decoders.parts.fills import Quota
from decoders.parts.windows import Blocks
from decoders.spec import Base

LLADA = Base(
    name="llada",
    window=Blocks,
    fills={"quota": Quota},
    caches=("none", "exact", "prefix", "dual"),
    defaults={
        "fill": "quota",
        "steps": None,
        "confidence": "prob",
        "block_size": None,
        "cache": None,
        "attention": "full",
    },
)
