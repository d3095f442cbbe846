"""Fast-dLLM v2 (arXiv 2509.26328): block diffusion with sub-blocks, for models that shift their logits inside a block.

In the first sub-block with masks all masks above a threshold are filled, at least one. The forward that stores a
finished block also gives the next block's first token, whatever its probability. `cache=sub_block` is the block cache:
it feeds one sub-block on the rest of its block as it was when the sub-block began.
"""

from decoders.parts.fills import Threshold
from decoders.parts.windows import SubBlocks
from decoders.spec import Base

FAST_DLLM_V2 = Base(
    name="fast_dllm_v2",
    window=SubBlocks,
    fills={"threshold": Threshold},
    caches=("exact", "sub_block"),
    defaults={
        "fill": "threshold",
        "tau_conf": 0.9,
        "forced": "per_block",
        "confidence": "prob",
        "block_size": None,
        "sub_block_size": None,
        "cache": "exact",
        "attention": "block_causal",
    },
)
