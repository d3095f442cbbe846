"""What a decoder is made of: a base says what it can do, a decoder is a base with resolved settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from decoders.config import DecoderConfig, DecoderError
from decoders.lookahead import ByScore, Select
from decoders.parts.caches import CACHES, Cache
from decoders.parts.fills import Fill
from decoders.parts.scores import Score
from decoders.parts.windows import Blocks, Window
from decoders.sampling import readout_of
from decoders.types import CHANGE, MEASURES, SHADOW, Readout, Vocabulary


@dataclass(frozen=True)
class Base:
    """A decoder without lookahead: its window, the fill rules and caches that it allows, and its default settings.

    `defaults` holds what its parts do not default to themselves (`Window.reads`, `Fill.reads`). A name that is no field
    of DecoderConfig is a setting of one's own. The first of `fills` is used if `defaults` names none. Raises
    DecoderError where parts do not fit.
    """

    name: str
    window: type[Window]
    fills: Mapping[str, type[Fill]]
    caches: tuple[str, ...]
    defaults: Mapping[str, Any]

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.isidentifier():
            raise DecoderError(f"a decoder cannot be called {self.name!r}; allowed: letters, digits and underscores")
        if not self.fills:
            raise DecoderError(f"the decoder {self.name} has no fill rule; allowed: one or more")
        for cache in self.caches:
            if cache not in CACHES:
                raise DecoderError(f"the decoder {self.name} has a cache {cache}; allowed: {', '.join(CACHES)}")
            if CACHES[cache].needs_blocks and not issubclass(self.window, Blocks):
                raise DecoderError(f"the decoder {self.name} has the cache {cache}, whose window must be a Blocks")

    def caches_under(self, attention: str) -> list[str]:
        """The cache policies that can be had with this attention."""
        return [cache for cache in self.caches if cache in self.window.caches.get(attention, ())]

    @cached_property
    def readable(self) -> dict[str, Any]:
        """All settings that this decoder may read, in one choice or another, with their defaults."""
        names = list(self.fills)
        found: dict[str, Any] = {"attention": "full", "cache": None, "fill": names[0], "confidence": "prob"}
        for name in reversed(names):
            found |= self.fills[name].reads or {}
        for cache in self.caches:  # which cache it is depends on attention, so that theirs are filled in behind it
            found |= dict.fromkeys(CACHES[cache].reads)
        return {**found, **self.window.reads, **self.defaults}

    @property
    def ranks(self) -> bool:
        """Whether a rule of it may rank masks by a confidence of choice."""
        return any(rule.reads is None or "confidence" in rule.reads for rule in self.fills.values())

    def readers(self, fill: str) -> dict[str, tuple[str, ...]]:
        """The settings that the rule `fill` is known to leave unread, each with the rules that read it."""
        told = self.fills[fill].reads
        if told is None:
            return {}
        others = {name for rule in self.fills.values() for name in rule.reads or ()} - {*told, *self.window.reads}
        return {name: tuple(rule for rule, part in self.fills.items() if name in (part.reads or ())) for name in others}


@dataclass(frozen=True)
class Decoder:
    """A decoder ready to run: resolved settings (nothing that is read is left open) and its parts."""

    config: DecoderConfig
    window: type[Window]
    rule: type[Fill]
    scorer: type[Score]
    select: type[Select] = ByScore

    def __post_init__(self) -> None:
        """Raises DecoderError where rows beside or ahead of the base would not see what its rule goes by, for what a
        rule that edits cannot go with, and for blocks fed ahead where none can be.
        """
        config = self.config
        if self.rule.edits:
            self._check_editing()
        if config.eager and config.k != 0 and not self.window.goes_ahead:
            raise DecoderError(
                f"decoder.eager=true is not supported by decoder.base={config.base}, which does not decode one block "
                "after the other under block-causal attention; allowed: false, or decoder.base=sdar or llada2"
            )
        if self.select.drafts and CHANGE in self.rule.measures:
            raise DecoderError(
                f"decoder.{self.chosen} is not supported by decoder.fill={config.fill}: it compares a forward with "
                "the one before, which no drafted row has; allowed: a number for k and decoder.select=score or gate"
            )
        if self.select.drafts and self.cache.counts:
            raise DecoderError(
                f"decoder.{self.chosen} is not supported by decoder.cache={config.cache}: what it keeps goes by the "
                "number of forwards, which a draft changes; allowed: decoder.cache=none, or a number for k and "
                "decoder.select=score or gate"
            )

    def _check_editing(self) -> None:
        config, fill = self.config, f"decoder.fill={self.config.fill}"
        if config.temperature:
            raise DecoderError(
                f"decoder.temperature={config.temperature:g} is not supported by {fill}: a token that is drawn anew "
                "would be an edit although the model has not changed its mind; allowed: 0"
            )
        if self.rule.alone and config.k != 0:
            raise DecoderError(f"decoder.k={config.k} is not supported by {fill}: {self.rule.alone}; allowed: 0")
        if self.select.drafts:
            raise DecoderError(
                f"decoder.{self.chosen} is not supported by {fill}: a drafted row assumes what is filled and not what "
                "is edited; allowed: a number for k and decoder.select=score or gate"
            )

    @property
    def chosen(self) -> str:
        """What asked for this way of lookahead, for a message: "k=auto" or "select=exact"."""
        return "k=auto" if self.config.k == "auto" else f"select={self.config.select}"

    @property
    def cache(self) -> type[Cache]:
        return CACHES[self.config.cache or "none"]

    def check_shift(self, shifted: bool) -> None:
        """Raises DecoderError for a model whose logits at i do not predict i + 1, where the decoder builds on that."""
        if self.window.hands_over and not shifted:
            config = self.config
            name = f"decoder={config.name}" if config.base is None else f"decoder.base={config.base}"
            raise DecoderError(
                f"{name} takes a block's first token from the forward that stores the block before, which says "
                "nothing of it here; allowed: models whose logits are shifted by one"
            )

    def readout(self, seed: int, vocab: Vocabulary) -> Readout:
        """What the model must report for these settings."""
        config = self.config
        needed = {config.fill_confidence, *self.rule.measures}
        if "confidence" in self.select.reads:
            needed |= {config.confidence, *(self.scorer.measures if self.select.scored else ())}
        measures = frozenset(name for name in needed if name in (*MEASURES, CHANGE, SHADOW) and name != "prob")
        return readout_of(config, measures, seed, vocab)
