"""Decoders that change what they have filled.

`joint_threshold`: LLaDA2.1 (SGLang's joint_threshold.py, Apache-2.0; the model's own generate, as in
github.com/ZHZisZZ/dllm at ca17675, Apache-2.0). Defaults are SGLang's. `wino`: WINO (arXiv 2507.18578;
github.com/Feng-Hong/WINO-DLLM at 9549a1d, no licence stated). `saber`: Saber (arXiv 2510.18165;
github.com/zhaoyMa/Saber at 49579a9, no licence stated).
"""

from decoders.parts.caches import OF_BLOCKS
from decoders.parts.editing_fills import JointThreshold, Saber, Wino
from decoders.parts.windows import Blocks, Reopened, Revisited
from decoders.spec import Base

JOINT_THRESHOLD = Base(
    name="joint_threshold",
    window=Revisited,
    fills={"joint_threshold": JointThreshold},
    caches=("exact", "none"),
    defaults={"cache": "exact", "attention": "block_causal"},
)

WINO = Base("wino", Blocks, fills={"wino": Wino}, caches=OF_BLOCKS, defaults={})

SABER = Base("saber", Reopened, fills={"saber": Saber}, caches=("none",), defaults={})
