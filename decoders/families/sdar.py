"""SDAR (arXiv 2510.06303): block diffusion, one block after the other, each in denoising steps with a fixed quota.

`fill=dynamic` is low_confidence_dynamic: every mask above the threshold if they are at least the step's quota, else
the quota's most confident; `fill=static` is low_confidence_static, `fill=sequential` the order of the text. A finished
block costs one forward more, which stores its keys and values (`store=merged` saves it).
"""

from decoders.parts.fills import Dynamic, Sequential, Static
from decoders.parts.windows import Successive
from decoders.spec import Base

SDAR = Base(
    name="sdar",
    window=Successive,
    fills={"dynamic": Dynamic, "static": Static, "sequential": Sequential},
    caches=("exact", "none"),
    defaults={
        "fill": "dynamic",
        "tau_conf": 0.85,
        "denoising_steps": None,
        "confidence": "prob",
        "block_size": None,
        "cache": "exact",
        "store": "forward",
        "attention": "block_causal",
    },
)
