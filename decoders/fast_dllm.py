"""Fast-dLLM (arXiv 2505.22618): blocks from left to right, in each all masks above a threshold, at least one.

`fill=threshold`: prob > tau_conf (the released programs keep >=). `fill=factor`: the largest n with
(n + 1)(1 - c_n) < factor, at least one.
"""

from decoders.config import DecoderConfig
from decoders.fills import Factor, Fill, Threshold
from decoders.spec import Base
from decoders.windows import Blocks

FILLS = {"threshold": Threshold, "factor": Factor}


def fill(config: DecoderConfig) -> Fill:
    return FILLS[config.fill or "threshold"](config)


FAST_DLLM = Base(
    name="fast_dllm",
    window=Blocks,
    fill=fill,
    caches=("none", "exact", "prefix", "dual"),
    defaults={
        "fill": "threshold",
        "tau_conf": 0.9,
        "factor": 1.0,
        "forced": "per_block",
        "confidence": "prob",
        "block_size": None,
        "cache": None,
        "attention": "full",
    },
)
