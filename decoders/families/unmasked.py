"""Decoders that fill no masks: their loop is not here, their settings are, so that they stand in the same tables.

`ar` is autoregressive decoding, one token a forward from left to right (lopa_bench/backends/autoregressive.py, or a
server). `served` is whatever algorithm a server of diffusion models was started with. `diffusion_gemma` is the sampler
that DiffusionGemma brings along, whose temperatures are those of its generation_config.json.
"""

from __future__ import annotations

from decoders.allowed import shown
from decoders.config import DecoderConfig, DecoderError, settings, validate

UNMASKED = ("ar", "served", "diffusion_gemma")
READ = ("name", "gen_length", "k", "temperature")  # k is read as: none


def resolve_unmasked(config: DecoderConfig) -> DecoderConfig:
    """The settings of one of UNMASKED. Raises DecoderError for a wrong value, or one that has no meaning for it."""
    validate(config)
    defaults = settings(DecoderConfig())
    for name, value in settings(config).items():
        if name not in READ and not (name in defaults and value == defaults[name]):
            raise DecoderError(
                f"decoder.{name}={shown(value)} has no meaning for decoder={config.name}; "
                f"allowed: {', '.join(READ[1:])}"
            )
    if config.name == "diffusion_gemma" and config.temperature:
        raise DecoderError(
            f"decoder.temperature={shown(config.temperature)} has no meaning for decoder=diffusion_gemma, which has a "
            "schedule of its own (t_min, t_max in generation_config.json); allowed: 0"
        )
    return DecoderConfig(name=config.name, gen_length=config.gen_length, temperature=config.temperature)
