"""Whether a configuration can be run, judged before anything is loaded."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any, get_origin

from decoders import UNMASKED, resolve_settings
from decoders.config import DecoderConfig
from lopa_bench.errors import ConfigError
from lopa_bench.metrics.paired import parse
from lopa_bench.metrics.presets import PRESETS
from lopa_bench.settings.backend import LocalSettings, check_backend, check_together
from lopa_bench.settings.config import CHOICES, LARGEST, RANGES, Config
from lopa_bench.settings.known import known, takes
from lopa_bench.settings.model import check_model_path
from lopa_bench.settings.shard import Shard
from lopa_bench.settings.spelling import meant, nearest
from tasks.registry import check_settings

MAY_BE_EMPTY = ("backend.key_env",)


def validate(config: Config) -> None:
    """Everything that can be judged before anything is loaded. Raises ConfigError, DecoderError or TaskError."""
    from lopa_bench.settings.known import takes

    for name, allowed in {**CHOICES, "run.preset": tuple(PRESETS)}.items():
        value = _value(config, name)
        if value not in allowed:
            near = [f"{name}={one}" for one in nearest(str(value), map(_shown, allowed))]
            raise ConfigError(f"{name}={value} is not allowed; allowed: {', '.join(map(_shown, allowed))}{meant(near)}")
    for name, (least, most) in RANGES.items():
        value = _value(config, name)
        if value is not None and not least <= value <= most:
            raise ConfigError(f"{name}={value} is not allowed; allowed: {takes(name)}")
    ids = config.model.end_ids
    if ids is not None and not (ids and all(type(one) is int and one >= 0 for one in ids)):
        raise ConfigError(f"model.end_ids={ids} is not allowed; allowed: a list of ids of 0 and above, or null")
    _check_plain(asdict(config))
    check_backend(config.backend)
    decoder = resolve_settings(config.decoder)
    check_together(config.backend, decoder.name, config.model.name, config.model.layout)
    if decoder.gen_length >= config.model.max_length:
        raise ConfigError(
            f"decoder.gen_length={decoder.gen_length} leaves no room for a prompt in "
            f"model.max_length={config.model.max_length}; allowed: at most {config.model.max_length - 1}"
        )
    if config.run.batch > 1 and decoder.name in UNMASKED:
        more = "" if config.backend.name == "local" else "; backend.concurrency sends several requests at once"
        raise ConfigError(f"run.batch={config.run.batch} is not allowed with decoder={decoder.name}; allowed: 1{more}")
    Shard.parse(config.run.shard)
    if isinstance(config.backend, LocalSettings):
        _check_prefix_reuse(config.backend.prefix_reuse, decoder)
    check_settings(config.task)
    if config.against is not None:
        try:
            parse(config.against)
        except ValueError as error:
            raise ConfigError(str(error)) from None
    check_model_path(config.model)


def _check_plain(value: Any, key: str = "") -> None:
    """No number that a record or a request cannot hold, and no empty name or path."""

    if isinstance(value, dict):
        for name, item in value.items():
            _check_plain(item, f"{key}.{name}" if key else str(name))
    elif isinstance(value, list):
        for item in value:
            _check_plain(item, key)
    elif isinstance(value, float) and not math.isfinite(value):
        raise ConfigError(f"{key}={value} is not allowed; allowed: {takes(key)}")
    elif isinstance(value, int) and not -LARGEST <= value <= LARGEST:
        raise ConfigError(f"{key}={value} is not allowed; allowed: integers up to {LARGEST}")
    elif isinstance(value, str) and not value.strip() and key in known() and not _may_be_empty(key):
        raise ConfigError(f"{key} is empty; allowed: {takes(key)}")


def _may_be_empty(key: str) -> bool:

    return key in MAY_BE_EMPTY or get_origin(known()[key]) in (dict, list)


def _check_prefix_reuse(reuse: str, decoder: DecoderConfig) -> None:
    if reuse != "off" and decoder.cache != "exact":
        raise ConfigError(f"backend.prefix_reuse={reuse} needs decoder.cache=exact; allowed here: off")
    if reuse == "exact" and decoder.attention != "block_causal":
        raise ConfigError(
            "backend.prefix_reuse=exact needs decoder.attention=block_causal; allowed here: off, approximate"
        )


def _shown(value: str | None) -> str:
    return "null" if value is None else value


def _value(config: Config, dotted: str):  # type: ignore[no-untyped-def]  # any setting
    part, name = dotted.split(".")
    return getattr(getattr(config, part), name)
