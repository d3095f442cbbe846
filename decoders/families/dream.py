"""Dream's sampler (arXiv 2508.15487) on the whole canvas.

`fill=schedule` with confidence prob, margin or neg_entropy is Dream's alg maskgit_plus, topk_margin or entropy;
`fill=origin` fills at random; `fill=budget` is Fast-dLLM's confidence_threshold sampler for Dream without cache.
"""

from decoders.parts.schedules import Budget, Origin, Schedule
from decoders.parts.windows import Canvas
from decoders.spec import Base

DREAM = Base(
    name="dream",
    window=Canvas,
    fills={"schedule": Schedule, "origin": Origin, "budget": Budget},
    caches=("none",),
    defaults={
        "fill": "schedule",
        "steps": None,
        "empty_steps": "skip",
        "tau_conf": 0.9,
        "confidence": "neg_entropy",
        "cache": "none",
        "attention": "full",
    },
)
