"""A decoder is a choice of parts and of default settings; this is where the choices are collected."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from decoders.caches import CACHES, Cache
from decoders.config import DecoderConfig, DecoderError, fill_in, settings, validate
from decoders.fills import Fill
from decoders.types import Readout
from decoders.unmasked import UNMASKED
from decoders.windows import Canvas, Window

# Settings that every decoder reads.
COMMON = {"name", "target", "gen_length", "k", "decode_tail", "mask_logit", "temperature"}
# Settings of lookahead, read when branches are tried.
LOOKAHEAD: dict[str, Any] = {
    "confidence": "neg_entropy",
    "attention": "full",
    "complete": "end",
    "floor": None,
}


@dataclass(frozen=True)
class Base:
    """A decoder without lookahead: its window, the fill rules and caches it allows, and its default settings.

    `defaults` names every setting that the decoder reads beside the common ones.
    """

    name: str
    window: type[Window]
    fills: Mapping[str, type[Fill]]
    caches: tuple[str, ...]
    defaults: Mapping[str, Any]


@dataclass(frozen=True)
class Decoder:
    """A decoder ready to run: resolved settings (nothing that is read is left open) and its parts."""

    config: DecoderConfig
    window: type[Window]
    rule: type[Fill]

    @property
    def cache(self) -> type[Cache]:
        return CACHES[self.config.cache or "none"]

    def readout(self, seed: int) -> Readout:
        """What the model must report for these settings. Decodes without a temperature share one readout."""
        config = self.config
        needed = {config.confidence, config.fill_confidence}
        if config.score.kind == "mixed":
            needed.add("neg_entropy")
        measures = frozenset(name for name in needed if name and name != "prob")
        return Readout(measures, config.mask_logit, config.temperature, seed if config.temperature else 0)


def resolve(config: DecoderConfig, bases: Mapping[str, Base]) -> Decoder:
    """The decoder that `config` describes. Raises DecoderError for an unknown name, a value that is not allowed, or a
    setting that this decoder does not read.
    """
    lookahead = config.name == "lopa"
    if config.target is not None:
        outside = load_target(config.target)
        bases = {**bases, outside.name: outside}
    if config.name not in bases and not lookahead:
        raise DecoderError(f"decoder={config.name} is unknown; allowed: {', '.join([*bases, 'lopa', *UNMASKED])}")
    validate(config)
    if config.base is not None and not lookahead:
        raise DecoderError(f"decoder.base={config.base} has no meaning for decoder={config.name}; only lopa has a base")
    base_name = (config.base or "d2f") if lookahead else config.name
    if base_name not in bases:
        raise DecoderError(f"decoder.base={base_name} is unknown; allowed: {', '.join(bases)}")
    base = bases[base_name]
    readable = COMMON | set(base.defaults) | ({"base", "fill_confidence", *LOOKAHEAD} if lookahead else set())
    _refuse_unread(config, readable, lookahead)
    own = {"base": base_name, **LOOKAHEAD, "fill_confidence": base.defaults["confidence"]} if lookahead else {"k": 0}
    resolved = fill_in(fill_in(config, own), base.defaults)
    if not lookahead:
        resolved = fill_in(resolved, {"fill_confidence": resolved.confidence})
        resolved.k = 0
    # Under block-causal attention finished blocks can be cached without changing anything.
    resolved = fill_in(resolved, {"cache": "exact" if resolved.attention == "block_causal" else "none"})
    _check_together(resolved, base)
    return Decoder(resolved, base.window, base.fills[resolved.fill or ""])


def load_target(target: str) -> Base:
    """The Base at "module:attribute", from anywhere Python can import from. Raises DecoderError."""
    module, _, attribute = target.partition(":")
    try:
        base = getattr(import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise DecoderError(f"decoder.target={target} cannot be loaded ({error}); allowed: module:attribute") from None
    if not isinstance(base, Base):
        raise DecoderError(f"decoder.target={target} is a {type(base).__name__}; allowed: a decoders.Base")
    return base


def _refuse_unread(config: DecoderConfig, readable: set[str], lookahead: bool) -> None:
    defaults = settings(DecoderConfig())
    for name, value in settings(config).items():
        if name.startswith("score."):
            unread = not lookahead and value != defaults[name]
        else:
            unread = name not in readable and value is not None
        if unread:
            names = ", ".join(sorted(readable - {"name"}))
            raise DecoderError(
                f"decoder.{name}={value} has no meaning for decoder={config.name}; its settings: {names}"
            )


def _check_together(config: DecoderConfig, base: Base) -> None:
    """Values that are allowed one by one and wrong together. Fills in what depends on other settings."""
    _allow("fill", config.fill, tuple(base.fills), base.name)
    _allow("cache", config.cache, base.caches, base.name)
    if config.block_size is None:
        config.block_size = min(32, config.gen_length)
    if config.attention == "full" and config.cache == "exact" and base.name != "d2f":
        raise DecoderError(
            "decoder.cache=exact needs decoder.attention=block_causal; allowed with full: none, prefix, dual"
        )
    if config.attention == "block_causal" and config.cache in ("prefix", "dual"):
        raise DecoderError(
            f"decoder.cache={config.cache} needs decoder.attention=full: its blocks see the text behind them"
        )
    if config.k == "auto" and config.floor is not None:
        raise DecoderError(f"decoder.floor={config.floor} has no meaning with decoder.k=auto; set k to a number")
    if config.score.window is not None and config.score.bottom < 1.0:
        both = f"decoder.score.window={config.score.window} and decoder.score.bottom={config.score.bottom}"
        raise DecoderError(f"{both} exclude each other; set one")
    if config.first_position == "unconditional":
        _allow("fill", config.fill, ("threshold", "factor", "schedule"), "first_position=unconditional")
    if "steps" in base.defaults:
        _check_steps(config, 1 if base.window is Canvas else -(-config.gen_length // config.block_size))


def _allow(name: str, value: str | None, allowed: tuple[str, ...], base: str) -> None:
    if value not in allowed:
        raise DecoderError(f"decoder.{name}={value} is not supported by {base}; allowed: {', '.join(allowed)}")


def _check_steps(config: DecoderConfig, blocks: int) -> None:
    """A schedule needs whole steps in each block; by default it has one a position."""
    if config.steps is None:
        config.steps = blocks * (config.block_size or 1) if blocks > 1 else config.gen_length
    if config.steps % blocks:
        raise DecoderError(f"decoder.steps={config.steps} is not allowed; allowed: multiples of the {blocks} blocks")
    if config.fill == "budget" and config.gen_length % config.steps:
        raise DecoderError(
            f"decoder.steps={config.steps} is not allowed; allowed: divisors of gen_length={config.gen_length}"
        )
