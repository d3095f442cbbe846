"""D2F (Discrete Diffusion Forcing, arXiv 2508.09192): a pipeline of blocks with an exact block cache.

In each block that is under way all masks with prob > tau_conf are filled; in an activated block in which none passes,
the most confident one is. A block is appended when the newest is filled to tau_add, and activated when its left
neighbour is filled to tau_act. Attention inside the window is block-causal, so finished blocks can be cached exactly.
"""

from decoders.parts.fills import Threshold
from decoders.parts.windows import Pipeline
from decoders.spec import Base

D2F = Base(
    name="d2f",
    window=Pipeline,
    fills={"threshold": Threshold},
    caches=("exact", "none"),
    defaults={
        "fill": "threshold",
        "tau_conf": 0.9,
        "tau_add": 0.1,
        "tau_act": 0.95,
        "forced": "per_block",
        "confidence": "prob",
        "block_size": None,
        "cache": "exact",
        "attention": "block_causal",
    },
)
