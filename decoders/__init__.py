"""Decoding algorithms for diffusion language models: no model, no files, no network.

    decoder = make_decoder(DecoderConfig(name="lopa", k=8))
    steps = decode(decoder, prompt_ids, vocabulary)   # a generator of model calls

See docs/decoders.md for each algorithm and for how to add one.
"""

from decoders.config import DecoderConfig, DecoderError, ScoreConfig
from decoders.d2f import D2F
from decoders.dream import DREAM
from decoders.fast_dllm import FAST_DLLM
from decoders.greedy import GREEDY
from decoders.llada import LLADA
from decoders.loop import decode
from decoders.spec import Base, Decoder, resolve
from decoders.types import Generation, Keep, Prediction, Readout, Request, Step, Vocabulary

BASES: dict[str, Base] = {base.name: base for base in (GREEDY, LLADA, DREAM, FAST_DLLM, D2F)}


def make_decoder(config: DecoderConfig) -> Decoder:
    """The decoder that `config` describes; raises DecoderError with the allowed values."""
    return resolve(config, BASES)


__all__ = [
    "BASES",
    "Base",
    "Decoder",
    "DecoderConfig",
    "DecoderError",
    "Generation",
    "Keep",
    "Prediction",
    "Readout",
    "Request",
    "ScoreConfig",
    "Step",
    "Vocabulary",
    "decode",
    "make_decoder",
]
