"""The settings of a decoder, their meaning and their allowed values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from decoders.types import MEASURES


class DecoderError(ValueError):
    """A wrong setting; the message names the value and the allowed ones."""


@dataclass
class ScoreConfig:
    """Branch score (LoPA eq. 2 and variants): creation_weight x creation + (1 - creation_weight) x future.

    kind: "mean" of the confidence over the remaining masks; "mixed" = alpha x mean probability of the tokens that the
    branch added + (1 - alpha) x mean of 1 - normalised entropy; "next_fill" = positions that the fill rule would fill.
    bottom: mean over this lowest fraction only. window: minimum of the means over sliding windows of this many masks.
    """

    kind: str = "mean"
    bottom: float = 1.0
    window: int | None = None
    creation_weight: float = 0.0
    alpha: float = 0.7


@dataclass
class DecoderConfig:
    """All settings of all decoders. None takes the decoder's own default; a setting that the decoder does not read
    is refused. See docs/decoders.md.
    """

    name: str = "lopa"
    target: str | None = None  # "module:attribute" of a Base that is not part of this package
    base: str | None = None
    gen_length: int = 512
    block_size: int | None = None
    attention: str | None = None
    cache: str | None = None
    # fill rule
    fill: str | None = None
    tokens_per_step: int | None = None
    steps: int | None = None
    empty_steps: str | None = None
    factor: float | None = None
    first_position: str | None = None
    tau_conf: float | None = None
    tau_add: float | None = None
    tau_act: float | None = None
    forced: str | None = None
    confidence: str | None = None
    fill_confidence: str | None = None
    # lookahead
    k: int | str = 0
    floor: float | None = None
    complete: str | None = None
    score: ScoreConfig = field(default_factory=ScoreConfig)
    # end of text, readout
    decode_tail: bool = False
    mask_logit: str = "exclude"
    temperature: float = 0.0


CHOICES: dict[str, tuple[str, ...]] = {
    "attention": ("full", "block_causal"),
    "cache": ("none", "exact", "prefix", "dual"),
    "empty_steps": ("skip", "run"),
    "first_position": ("rule", "unconditional"),
    "forced": ("per_block", "global"),
    "confidence": MEASURES,
    "fill_confidence": MEASURES,
    "complete": ("end", "verify"),
    "mask_logit": ("exclude", "keep"),
    "score.kind": ("mean", "mixed", "next_fill"),
}

# name -> (lowest, highest, lowest allowed?). Probabilities may be compared with thresholds from 0 to 1; greater ones
# (nothing ever passes) are meaningful in theory and a typing error in practice.
RANGES: dict[str, tuple[float, float, bool]] = {
    "gen_length": (1, 65536, True),
    "block_size": (1, 65536, True),
    "tokens_per_step": (1, 65536, True),
    "steps": (1, 65536, True),
    "k": (0, 1024, True),
    "tau_conf": (0, 1, True),
    "tau_add": (0, 1, True),
    "tau_act": (0, 1, False),
    "factor": (0, 1e6, False),
    "floor": (0, 1, True),
    "temperature": (0, 100, True),
    "score.bottom": (0, 1, False),
    "score.window": (1, 65536, True),
    "score.creation_weight": (0, 1, True),
    "score.alpha": (0, 1, True),
}


def settings(config: DecoderConfig) -> dict[str, Any]:
    """All settings by dotted name, the nested score included."""
    flat: dict[str, Any] = {f.name: getattr(config, f.name) for f in fields(config) if f.name != "score"}
    flat |= {f"score.{f.name}": getattr(config.score, f.name) for f in fields(config.score)}
    return flat


def validate(config: DecoderConfig) -> None:
    """Raises DecoderError for the first value that is out of range or not among the choices."""
    for name, value in settings(config).items():
        if value is None:
            continue
        if name == "k" and isinstance(value, str):
            if value != "auto":
                raise DecoderError(f"decoder.k={value} is not allowed; allowed: an integer from 0 to 1024, or auto")
        elif name in CHOICES and value not in CHOICES[name]:
            raise DecoderError(f"decoder.{name}={value} is not allowed; allowed: {', '.join(CHOICES[name])}")
        elif name in RANGES:
            low, high, closed = RANGES[name]
            if not (low <= value <= high) or (value == low and not closed):
                opening = f"from {low:g}" if closed else f"above {low:g}"
                raise DecoderError(f"decoder.{name}={value} is not allowed; allowed: {opening} to {high:g}")


def fill_in(config: DecoderConfig, defaults: Mapping[str, Any]) -> DecoderConfig:
    """`config` with its unset values taken from `defaults`."""
    unset = {name: value for name, value in defaults.items() if getattr(config, name) is None}
    return replace(config, **unset)
