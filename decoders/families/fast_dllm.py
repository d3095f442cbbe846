"""Fast-dLLM (arXiv 2505.22618): blocks from left to right, in each all masks above a threshold, at least one.

`fill=threshold`: prob > tau_conf (the released programs keep >=). `fill=factor`: the largest n with
(n + 1)(1 - c_n) < factor, at least one (`factor_released`: dInfer's off-by-one variant). `fill=hierarchy`: the best of
each run of masks too (dInfer, github.com/inclusionAI/dInfer, Apache-2.0). `fill=quota` and
`fill=schedule` are its samplers without a threshold, for LLaDA and for Dream. `first_position=unconditional` is its
cached sampler for Dream.
"""

from decoders.parts.caches import OF_BLOCKS
from decoders.parts.fills import Factor, FactorReleased, Quota, Threshold
from decoders.parts.schedules import Schedule
from decoders.parts.set_fills import Hierarchy
from decoders.parts.windows import Blocks
from decoders.spec import Base

FAST_DLLM = Base(
    name="fast_dllm",
    window=Blocks,
    fills={
        "threshold": Threshold,
        "factor": Factor,
        "factor_released": FactorReleased,
        "hierarchy": Hierarchy,
        "quota": Quota,
        "schedule": Schedule,
    },
    caches=OF_BLOCKS,
    defaults={
        "fill": "threshold",
        "tau_conf": 0.9,
        "tau_run": 0.5,
        "factor": 1.0,
        "steps": None,
        "empty_steps": "skip",
        "first_position": "rule",
        "forced": "per_block",
        "confidence": "prob",
        "block_size": None,
        "cache": None,
        "attention": "full",
    },
)
