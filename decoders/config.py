"""The settings of a decoder, their meaning and their allowed values."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

from decoders.allowed import choice, number, refused, shown, wrong_values
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
    bottom: float = number(1.0, 0, 1, above=True)
    window: int | None = number(None, 1, 65536)
    creation_weight: float = number(0.0, 0, 1)
    alpha: float = number(0.7, 0, 1)


@dataclass
class DecoderConfig:
    """All settings of all decoders. None takes the decoder's own default; a setting that the decoder does not read
    is refused. See docs/decoders.md. Probabilities may be compared with thresholds from 0 to 1; greater ones (nothing
    ever passes) are meaningful in theory and a typing error in practice.

    `own`: settings that parts of one's own read, by name. They are attributes of the configuration as well.
    """

    name: str = "lopa"
    target: str | None = None  # "module:attribute" of a Base that is not part of this package
    base: str | None = None
    gen_length: int = number(512, 1, 65536)
    block_size: int | None = number(None, 1, 65536)
    sub_block_size: int | None = number(None, 1, 65536)
    buffer_size: int | None = number(None, 1, 65536)
    attention: str | None = choice(None, "full", "block_causal")
    grid: str | None = choice(None, "prompt", "absolute")
    cache: str | None = choice(None, "none", "exact", "prefix", "dual", "vicinity", "sub_block", "delayed")
    prefix_look: int | None = number(None, 0, 65536)
    after_look: int | None = number(None, 0, 65536)
    warmup_steps: int | None = number(None, 0, 65536)
    cache_delay: int | None = number(None, 0, 65536)
    refresh_interval: int | None = number(None, 1, 65536)
    store: str | None = choice(None, "merged", "forward")
    # fill rule
    fill: str | None = None
    tokens_per_step: int | None = number(None, 1, 65536)
    steps: int | None = number(None, 1, 65536)
    denoising_steps: int | None = number(None, 1, 65536)
    empty_steps: str | None = choice(None, "skip", "run")
    factor: float | None = number(None, 0, 1_000_000, above=True)
    first_position: str | None = choice(None, "rule", "unconditional")
    gamma: float | None = number(None, 0, 1_000_000)
    delta: float | None = number(None, -65536, 1)
    tau_entropy: float | None = number(None, 0, 1_000_000)
    tau_kl: float | None = number(None, 0, 1_000_000)
    kl_steps: int | None = number(None, 1, 65536)
    behind_end: str | None = choice(None, "fill", "wait")
    tau_conf: float | None = number(None, 0, 1)
    tau_run: float | None = number(None, 0, 1)
    tau_edit: float | None = number(None, 0, 1)
    tau_back: float | None = number(None, 0, 1)
    max_post_edit: int | None = number(None, 0, 65536)
    capped: str | None = choice(None, "verify", "end")
    penalty: float | None = number(None, 0, 1_000_000)
    tau_add: float | None = number(None, 0, 1)
    tau_act: float | None = number(None, 0, 1, above=True)
    forced: str | None = choice(None, "per_block", "global", "first", "first_and_global")
    early_stop: bool | None = None
    confidence: str | None = choice(None, *MEASURES)
    fill_confidence: str | None = choice(None, *MEASURES)
    # lookahead
    k: int | str = number(0, 0, 1024, word="auto")
    select: str | None = choice(None, "score", "gate", "confirm", "exact")
    floor: float | None = number(None, 0, 1)
    complete: str | None = choice(None, "end", "verify")
    gate: float | None = number(None, 0, 1)
    confirm: float | None = number(None, 0, 1)
    confirm_best: bool | None = None
    eager: bool = False
    score: ScoreConfig = field(default_factory=ScoreConfig)
    # end of text, readout
    decode_tail: bool = False
    mask_logit: str = choice("exclude", "exclude", "keep")
    # sampling (decoders/sampling.py)
    temperature: float = number(0.0, 0, 100)
    top_p: float = number(1.0, 0, 1, above=True)
    top_k: int | None = number(None, 1, 2**31 - 1)
    alg_temp: float | None = number(None, 0, 100)
    cfg_scale: float = number(0.0, 0, 100)
    logits_eos_inf: bool = False
    eos_penalty: float = number(0.0, 0, 1000)
    confidence_eos_eot_inf: bool | None = None
    own: dict[str, Any] = field(default_factory=dict)

    if not TYPE_CHECKING:  # a checker shall go on to find a misspelt setting

        def __getattr__(self, name: str) -> Any:
            try:
                return self.__dict__["own"][name]
            except KeyError:
                raise AttributeError(f"no setting {name}") from None


FIELDS = tuple(f.name for f in fields(DecoderConfig) if f.name not in ("score", "own"))
SCORE_FIELDS = tuple(f.name for f in fields(ScoreConfig))


def settings(config: DecoderConfig) -> dict[str, Any]:
    """All settings by dotted name: those of the score as `score.*`, one's own as `own.*`."""
    flat: dict[str, Any] = {name: getattr(config, name) for name in FIELDS}
    flat |= {f"score.{name}": getattr(config.score, name) for name in SCORE_FIELDS}
    return flat | {f"own.{name}": value for name, value in config.own.items()}


def validate(config: DecoderConfig) -> None:
    """Raises DecoderError for the first value of a wrong type, out of range or not among the choices."""
    for prefix, group in (("", config), ("score.", config.score)):
        for name, value, setting in wrong_values(group):
            raise refusal(prefix + name, value, setting.takes)
    for name, value in config.own.items():
        _check_own(f"own.{name}", value)


def refusal(name: str, value: Any, allowed: str) -> DecoderError:
    """The error for a value that a setting cannot have."""
    return DecoderError(refused(f"decoder.{name}", value, allowed))


def check_choice(name: str, value: str | None, allowed: Iterable[str], who: str) -> None:
    """Raises DecoderError for a choice that `who` does not support."""
    if value not in (words := list(allowed)):
        raise DecoderError(f"decoder.{name}={shown(value)} is not supported by {who}; allowed: {', '.join(words)}")


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
