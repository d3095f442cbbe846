"""Blocks from left to right, in each as many masks as a bound allows, at least one.

`eb`: the entropies of the ranks before a mask sum to at most gamma (EB-Sampler, arXiv 2505.24857; as d2Cache runs it,
github.com/Kamichanw/d2Cache, Apache-2.0). `frechet`: Frechet's bound on the joint probability (Fast-dLLM++, arXiv
2606.02955, github.com/Ringo-Star/FastdLLM_plusplus, Apache-2.0). `entropy`: every mask of low entropy (dParallel, arXiv
2509.26488, github.com/czg1225/dParallel, MIT).
"""

from decoders.parts.caches import OF_BLOCKS
from decoders.parts.set_fills import EntropyBounded, EntropyThreshold, Frechet
from decoders.parts.windows import Blocks
from decoders.spec import Base

EB = Base("eb", Blocks, {"eb": EntropyBounded}, OF_BLOCKS, defaults={})
FRECHET = Base("frechet", Blocks, {"frechet": Frechet}, OF_BLOCKS, defaults={"first_position": "rule"})
ENTROPY = Base("entropy", Blocks, {"entropy": EntropyThreshold}, OF_BLOCKS, defaults={"first_position": "rule"})
