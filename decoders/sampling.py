"""What a token is drawn from, and by what its position is ranked: settings that concern logits alone.

Every decoder of masks reads SAMPLING; `alg_temp` and `confidence_eos_eot_inf` belong to fill rules, `eos_penalty` to
those whose steps have a time. The rules are those of the released programs: top_p and top_k of Dream's and SDAR's
samplers, cfg_scale, logits_eos_inf and confidence_eos_eot_inf of LLaDA's, eos_penalty of Dream-Coder's
(docs/decoders.md); a backend applies them (lopa_bench/backends/readout.py).
"""

from __future__ import annotations

from collections.abc import Iterable

from decoders.config import DecoderConfig, DecoderError
from decoders.types import Readout, Vocabulary

SAMPLING = ("temperature", "top_p", "top_k", "cfg_scale", "logits_eos_inf", "eos_penalty")


def check_sampling(config: DecoderConfig, timed: Iterable[str]) -> None:
    """Raises DecoderError for settings of resolved ones that are allowed one by one and wrong together. `timed`: the
    fill rules of the decoder whose steps have a time.
    """
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
    _check_penalty(config, timed)


def _check_penalty(config: DecoderConfig, timed: Iterable[str]) -> None:
    """`timed`: the fill rules of the decoder whose steps have a time."""
    if not config.eos_penalty:
        return
    asked = f"decoder.eos_penalty={config.eos_penalty:g}"
    if config.fill not in (rules := list(timed)):
        allowed = f"decoder.fill={' or '.join(rules)}" if rules else "decoder=dream, or fast_dllm with fill=schedule"
        raise DecoderError(
            f"{asked} has no meaning with decoder.fill={config.fill}, whose steps have no time by which it fades; "
            f"allowed: 0, or {allowed}"
        )
    if config.first_position == "unconditional":
        raise DecoderError(
            f"{asked} is not supported by decoder.first_position=unconditional, whose first forward is no step of the "
            "schedule; allowed: rule"
        )
    if config.logits_eos_inf:
        raise DecoderError(
            f"{asked} has no meaning with decoder.logits_eos_inf=true: the token that it holds down is never "
            "predicted; allowed: 0, or decoder.logits_eos_inf=false"
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
        fading=vocab.end_ids[:1] if config.eos_penalty else (),
    )
