"""The settings of a decoder, their meaning and their allowed values."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

from decoders.types import MEASURES


class DecoderError(ValueError):
    """A wrong setting; the message names the value and the allowed ones."""


@dataclass
class ScoreConfig:
    """Which branch wins: the class of decoders/parts/scores.py called `kind`, or the one at `target` ("module:class").

    bottom, window, creation_weight are read by "mean", alpha by "mixed": see there.
    """

    kind: str = "mean"
    target: str | None = None
    bottom: float = 1.0
    window: int | None = None
    creation_weight: float = 0.0
    alpha: float = 0.7


@dataclass
class DecoderConfig:
    """All settings of all decoders. None takes the decoder's own default; a setting that the decoder does not read
    is refused. See docs/decoders.md.

    `own`: settings that parts of one's own read, by name. They are attributes of the configuration as well.
    """

    name: str = "lopa"
    target: str | None = None  # "module:attribute" of a Base that is not part of this package
    base: str | None = None
    gen_length: int = 512
    block_size: int | None = None
    attention: str | None = None
    grid: str | None = None
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
    own: dict[str, Any] = field(default_factory=dict)

    if not TYPE_CHECKING:  # a checker shall go on to find a misspelt setting

        def __getattr__(self, name: str) -> Any:
            try:
                return self.__dict__["own"][name]
            except KeyError:
                raise AttributeError(f"no setting {name}") from None


CHOICES: dict[str, tuple[str, ...]] = {
    "attention": ("full", "block_causal"),
    "grid": ("prompt", "absolute"),
    "cache": ("none", "exact", "prefix", "dual"),
    "empty_steps": ("skip", "run"),
    "first_position": ("rule", "unconditional"),
    "forced": ("per_block", "global"),
    "confidence": MEASURES,
    "fill_confidence": MEASURES,
    "complete": ("end", "verify"),
    "mask_logit": ("exclude", "keep"),
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


INTEGERS = ("gen_length", "block_size", "tokens_per_step", "steps", "k", "score.window")
FIELDS = tuple(f.name for f in fields(DecoderConfig) if f.name not in ("score", "own"))
SCORE_FIELDS = tuple(f.name for f in fields(ScoreConfig))


def settings(config: DecoderConfig) -> dict[str, Any]:
    """All settings by dotted name: those of the score as `score.*`, one's own as `own.*`."""
    flat: dict[str, Any] = {name: getattr(config, name) for name in FIELDS}
    flat |= {f"score.{name}": getattr(config.score, name) for name in SCORE_FIELDS}
    return flat | {f"own.{name}": value for name, value in config.own.items()}


def validate(config: DecoderConfig) -> None:
    """Raises DecoderError for the first value of a wrong type, out of range or not among the choices."""
    if not isinstance(config.score, ScoreConfig):
        raise refusal("score", config.score, "kind, target, bottom, window, creation_weight, alpha")
    if not isinstance(config.own, Mapping):
        raise refusal("own", config.own, "names and values of settings of one's own")
    optional = settings(DecoderConfig())
    for name, value in settings(config).items():
        if value is None and optional.get(name) is None:
            continue
        if name.startswith("own."):
            _check_own(name, value)
        elif name in CHOICES:
            if value not in CHOICES[name]:
                raise refusal(name, value, ", ".join(CHOICES[name]))
        elif name in RANGES:
            _check_number(name, value)
        elif name == "decode_tail":
            if not isinstance(value, bool):
                raise refusal(name, value, "true or false")
        elif not isinstance(value, str):
            raise refusal(name, value, "a name")


def refusal(name: str, value: Any, allowed: str) -> DecoderError:
    """The error for a value that a setting cannot have."""
    return DecoderError(f"decoder.{name}={shown(value)} is not allowed; allowed: {allowed}")


def shown(value: Any) -> str:
    """A value in a message of one line, as the user would write it."""
    text = "null" if value is None else str(value)
    if not text.isprintable():
        text = repr(text)
    return text if len(text) <= 80 else text[:79] + "…"


def _check_number(name: str, value: Any) -> None:
    low, high, closed = RANGES[name]
    whole = name in INTEGERS
    if name == "k" and value == "auto":
        return
    if isinstance(value, bool) or not isinstance(value, Integral if whole else Real):
        kind = "an integer from" if whole else "a number from" if closed else "a number above"
        raise refusal(name, value, f"{kind} {low:g} to {high:g}" + (", or auto" if name == "k" else ""))
    if not (low <= float(value) <= high) or (value == low and not closed):
        raise refusal(name, value, f"{'from' if closed else 'above'} {low:g} to {high:g}")


def _check_own(name: str, value: Any) -> None:
    """What an own setting is worth is its reader's business; that it can be told apart and recorded is ours."""
    if not name.removeprefix("own.").isidentifier():
        raise DecoderError(f"decoder.{shown(name)} is no name of a setting; allowed: letters, digits and underscores")
    if name.removeprefix("own.") in (*FIELDS, "score", "own"):
        raise DecoderError(
            f"decoder.{name} is the name of a setting that every decoder has; allowed: decoder{name[3:]}={shown(value)}"
        )
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        raise refusal(name, value, "text, finite numbers, true, false, null, and lists of them") from None


def fill_in(config: DecoderConfig, defaults: Mapping[str, Any]) -> DecoderConfig:
    """`config` with its unset values taken from `defaults`; names that are no settings of ours are one's own."""
    unset = {name: value for name, value in defaults.items() if name in FIELDS and getattr(config, name) is None}
    own = {name: value for name, value in defaults.items() if name not in FIELDS}
    return replace(config, **unset, own={**own, **config.own})
