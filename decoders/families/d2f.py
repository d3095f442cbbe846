"""Several blocks under way: D2F, MultiBD and d3LLM.

D2F (Discrete Diffusion Forcing, arXiv 2508.09192): a pipeline of blocks with an exact block cache.

In each block that is under way all masks with prob > tau_conf are filled; in an activated block in which none passes,
the most confident one is. A block is appended when the newest is filled to tau_add, and activated when its left
neighbour is filled to tau_act. Attention inside the window is block-causal, so finished blocks can be cached exactly.

MultiBD (multi-block decoding, github.com/SJTU-DENG-Lab/Diffulex at 184ba97, MIT): the same with at most buffer_size
blocks under way, for models that were trained block by block (SDAR, LLaDA2). Defaults are those of its scripts; they
set a buffer of 4 for blocks of 4 (SDAR) and of 2 for blocks of 32 (LLaDA2).

d3LLM (arXiv 2601.07568, github.com/hao-ai-lab/d3LLM: no LICENSE file, its samplers are marked Apache-2.0; SGLang's
FullAttnMultiBlock, Apache-2.0): full attention, so that the whole text is visible from the start; masks of low entropy
are filled in all blocks that take part, at least one in the first. Defaults are those of its evaluation scripts.
"""

from decoders.parts.fills import Threshold
from decoders.parts.set_fills import EntropyAcross
from decoders.parts.windows import Buffer, Pipeline, Widening
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

MULTIBD = Base(
    name="multibd",
    window=Buffer,
    fills={"threshold": Threshold},
    caches=("exact", "none"),
    defaults={
        "fill": "threshold",
        "tau_conf": 0.95,
        "tau_add": 0.1,
        "tau_act": 0.9,
        "buffer_size": 4,
        "forced": "per_block",
        "confidence": "prob",
        "block_size": None,
        "cache": "exact",
        "attention": "block_causal",
    },
)

D3LLM = Base(
    name="d3llm",
    window=Widening,
    fills={"entropy": EntropyAcross},
    caches=("none", "delayed", "exact"),
    defaults={
        "fill": "entropy",
        "tau_entropy": 0.5,
        "forced": "first",
        "tau_add": 0.1,
        "early_stop": False,
        "block_size": None,
        "cache": None,
        "attention": "full",
    },
)
