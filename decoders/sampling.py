"""What a token is drawn from, and by what its position is ranked: settings that concern logits alone.

Every decoder of masks reads SAMPLING; `alg_temp` and `confidence_eos_eot_inf` belong to fill rules. The rules are those
of the released programs: top_p and top_k of Dream's and SDAR's samplers, cfg_scale, logits_eos_inf and
confidence_eos_eot_inf of LLaDA's (docs/decoders.md); a backend applies them (lopa_bench/backends/readout.py).
"""

from __future__ import annotations

from decoders.config import DecoderConfig, DecoderError
from decoders.types import Readout, Vocabulary

SAMPLING = ("temperature", "top_p", "top_k", "cfg_scale", "logits_eos_inf")


def check_sampling(config: DecoderConfig) -> None:
    """Raises DecoderError for settings of resolved ones that are allowed one by one and wrong together."""
    if config.cfg_scale and config.cache != "none":
        raise DecoderError(
            f"decoder.cfg_scale={config.cfg_scale:g} is not supported by decoder.cache={config.cache}: the text "
            "without its prompt would need a cache of its own; allowed: decoder.cache=none"
        )
    if config.confidence_eos_eot_inf and config.fill_confidence != "prob":
        raise DecoderError(
            "decoder.confidence_eos_eot_inf=true has no meaning for positions that are ranked by "
            f"{config.fill_confidence}; allowed: prob"
        )


def check_drawn(config: DecoderConfig, select: str) -> None:
    """Raises DecoderError where a way of lookahead would go by what another row drew."""
    if config.temperature:
        raise DecoderError(
            f"decoder.temperature={config.temperature:g} is not supported by decoder.select={select}: what a row "
            "drew confirms nothing; allowed: 0, or decoder.select=score"
        )


def readout_of(config: DecoderConfig, measures: frozenset[str], seed: int, vocab: Vocabulary) -> Readout:
    """What the model must report. Decodes without a temperature share one readout."""
    return Readout(
        measures,
        config.mask_logit,
        config.temperature,
        seed if config.temperature else 0,
        config.top_p,
        config.top_k,
        config.cfg_scale,
        never=vocab.end_ids[:1] if config.logits_eos_inf else (),
        last=vocab.end_ids if config.confidence_eos_eot_inf else (),
        penalty=config.penalty or 0.0,
    )
