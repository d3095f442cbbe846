"""Which cache policy a decoder has, and the settings that it reads."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from decoders.allowed import shown
from decoders.config import DecoderConfig, DecoderError, check_choice, fill_in
from decoders.parts.caches import CACHES
from decoders.spec import Base


def with_cache(config: DecoderConfig, base: Base) -> DecoderConfig:
    """The settings with their cache policy and what it reads filled in; what other policies read is left open.

    Raises DecoderError for a policy that does not go with the base or its attention, and for settings that it does not
    read. What a setting is by default it may be, so that files which name it stay right when the policy is changed.
    """
    cache = _cache(config, base)
    read = CACHES[cache].reads
    unread = {name: default for one in base.caches for name, default in CACHES[one].reads.items() if name not in read}
    for name, default in unread.items():
        value = getattr(config, name)
        if value not in (None, default, base.readable[name]):
            readers = [one for one in base.caches if name in CACHES[one].reads]
            raise DecoderError(
                f"decoder.{name}={shown(value)} has no meaning with decoder.cache={cache}; "
                f"allowed: decoder.cache={' or '.join(readers)}, which reads it"
            )
    left: dict[str, Any] = dict.fromkeys(unread)
    return fill_in(replace(config, cache=cache, **left), read)


def _cache(config: DecoderConfig, base: Base) -> str:
    """The policy as set, else the base's own where attention allows it, else an exact one where there is one."""
    attention = config.attention or "full"
    fitting = base.caches_under(attention)
    if not fitting:
        other = " or ".join(name for name in base.window.caches if base.caches_under(name))
        raise DecoderError(f"decoder.attention={attention} is not supported by {base.name}; allowed: {other}")
    if config.cache is not None:
        check_choice("cache", config.cache, base.caches, base.name)
        if config.cache not in fitting:
            other = " or ".join(name for name in base.window.caches if config.cache in base.caches_under(name))
            raise DecoderError(
                f"decoder.cache={config.cache} needs decoder.attention={other}; "
                f"allowed with {attention}: {', '.join(fitting)}"
            )
        return config.cache
    preferred = [base.readable["cache"], "exact" if attention == "block_causal" else "none", fitting[0]]
    return next(cache for cache in preferred if cache in fitting)
