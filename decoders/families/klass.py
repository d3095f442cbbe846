"""KLASS (arXiv 2511.05664; github.com/shkim0116/KLASS, MIT): blocks from left to right, in each all masks of which the
model is sure and whose distribution has stood still for some forwards, else a quota.

With block_size = gen_length it is the authors' program for Dream, which has no blocks.
"""

from decoders.parts.caches import OF_BLOCKS
from decoders.parts.stable_fill import Stable
from decoders.parts.windows import Blocks
from decoders.spec import Base

KLASS = Base("klass", Blocks, fills={"stable": Stable}, caches=OF_BLOCKS, defaults={})
