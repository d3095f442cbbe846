"""Decoding algorithms for diffusion language models: no model, no files, no network.

    decoder = make_decoder(DecoderConfig(name="lopa", k=8))
    steps = decode(decoder, prompt_ids, vocabulary)   # a generator of model calls

See docs/decoders.md for each algorithm and for how to add one.
"""

from decoders.config import DecoderConfig, DecoderError, ScoreConfig
from decoders.families.d2f import D2F, D3LLM, MULTIBD
from decoders.families.dream import DREAM
from decoders.families.editing import JOINT_THRESHOLD, SABER, WINO
from decoders.families.fast_dllm import FAST_DLLM
from decoders.families.fast_dllm_v2 import FAST_DLLM_V2
from decoders.families.greedy import GREEDY
from decoders.families.klass import KLASS
from decoders.families.llada import LLADA, LLADA2
from decoders.families.sdar import SDAR
from decoders.families.set_size import EB, ENTROPY, FRECHET
from decoders.families.unmasked import UNMASKED, resolve_unmasked
from decoders.loop import decode
from decoders.parts.scores import Score
from decoders.resolve import resolve
from decoders.spec import Base, Decoder
from decoders.types import Edit, Generation, Keep, Prediction, Readout, Request, Step, Vocabulary

_UNEDITED = (GREEDY, LLADA, DREAM, FAST_DLLM, D2F, SDAR, FAST_DLLM_V2, LLADA2, MULTIBD, EB, FRECHET, ENTROPY, KLASS)
_ALL = (*_UNEDITED, D3LLM, JOINT_THRESHOLD, WINO, SABER)
BASES: dict[str, Base] = {base.name: base for base in _ALL}


def make_decoder(config: DecoderConfig) -> Decoder:
    """The decoder that `config` describes; raises DecoderError with the allowed values."""
    return resolve(config, BASES, default=D2F)


def resolve_settings(config: DecoderConfig) -> DecoderConfig:
    """The settings with every default filled in, of any decoder. Raises DecoderError with the allowed values."""
    return resolve_unmasked(config) if config.name in UNMASKED else make_decoder(config).config


__all__ = [
    "BASES",
    "UNMASKED",
    "Base",
    "Decoder",
    "DecoderConfig",
    "DecoderError",
    "Edit",
    "Generation",
    "Keep",
    "Prediction",
    "Readout",
    "Request",
    "Score",
    "ScoreConfig",
    "Step",
    "Vocabulary",
    "decode",
    "make_decoder",
    "resolve_settings",
]
