"""Whether a configuration can be run, judged before anything is loaded."""

from __future__ import annotations

import math
import os
from dataclasses import asdict, dataclass
from typing import Any, get_origin

from decoders import UNMASKED, Decoder, make_decoder, resolve_settings
from decoders.allowed import refused
from decoders.config import DecoderConfig
from decoders.types import CHANGE
from lopa_bench.errors import ConfigError
from lopa_bench.metrics.paired import parse
from lopa_bench.settings.backend import LocalSettings, check_together
from lopa_bench.settings.config import Config
from lopa_bench.settings.known import known, takes
from lopa_bench.settings.shard import Devices, Shard
from lopa_bench.settings.values import LARGEST, check_values
from tasks.registry import check_settings

MAY_BE_EMPTY = ("backend.key_env",)
FOLDERS = ("run.out", "tracker.uri")  # which need not be there yet


@dataclass(frozen=True)
class Validated:
    """What a valid configuration comes to; its decoder's settings are filled in."""

    settings: DecoderConfig
    decoder: Decoder | None  # None if it fills no masks
    shard: Shard
    devices: Devices | None = None


def validate(config: Config) -> Validated:
    """Everything that can be judged before anything is loaded. Raises ConfigError, BackendError, DecoderError or
    TaskError.
    """
    config.model.check()
    for group in ("run", "objective", "task"):
        check_values(group, getattr(config, group))
    config.tracker.check()
    shard = Shard.parse(config.run.shard)
    _check_plain(asdict(config))
    config.backend.check()
    decoder = None if config.decoder.name in UNMASKED else make_decoder(config.decoder)
    settings = decoder.config if decoder else resolve_settings(config.decoder)
    check_together(config.backend, settings.name, config.model.name, config.model.layout)
    if settings.gen_length >= config.model.max_length:
        raise ConfigError(
            f"decoder.gen_length={settings.gen_length} leaves no room for a prompt in "
            f"model.max_length={config.model.max_length}; allowed: at most {config.model.max_length - 1}"
        )
    if config.run.batch > 1 and decoder is None:
        more = "" if config.backend.name == "local" else "; backend.concurrency sends several requests at once"
        raise ConfigError(f"run.batch={config.run.batch} is not allowed with decoder={settings.name}; allowed: 1{more}")
    if isinstance(config.backend, LocalSettings):
        _check_prefix_reuse(config.backend.prefix_reuse, settings)
        _check_ranks(config.backend, settings, decoder)
        if config.model.quantize is not None and config.backend.tensor_ranks > 1:
            raise ConfigError(
                f"model.quantize={config.model.quantize} is not allowed with backend.tensor_ranks="
                f"{config.backend.tensor_ranks}: matrices of 8 bits are not shared; allowed: one of both"
            )
        _check_compile(config.backend, config.run.batch)
    devices = _devices(config)
    check_settings(config.task)
    if config.against is not None:
        try:
            parse(config.against)
        except ValueError as error:
            raise ConfigError(str(error)) from None
    return Validated(settings, decoder, shard, devices)


def _devices(config: Config) -> Devices | None:
    """What run.devices says, if it can be with the other settings."""
    if config.run.devices is None:
        return None
    devices, backend, given = Devices.parse(config.run.devices), config.backend, f"run.devices={config.run.devices}"
    if not isinstance(backend, LocalSettings):
        raise ConfigError(
            f"{given} needs backend=local: backend={backend.name} has devices of its own; allowed here: null, with "
            "backend.concurrency for several requests at once"
        )
    if config.run.shard is not None:
        raise ConfigError(
            f"{given} shares out all problems, run.shard={config.run.shard} takes a part of them; allowed: one of both"
        )
    if backend.prefix_reuse == "approximate":
        raise ConfigError(
            f"{given} is not allowed with backend.prefix_reuse=approximate: its rows depend on what the same process "
            "decoded before; allowed here: null"
        )
    if ":" in backend.device or (devices.kind and backend.device not in (devices.kind, "auto")):
        kind = backend.device.partition(":")[0]
        allowed = f"backend.device={devices.kind or kind}, or run.devices=null"
        raise ConfigError(f"{given} and backend.device={backend.device} name devices twice; allowed: {allowed}")
    return devices


def _check_plain(value: Any, key: str = "") -> None:
    """No number that a record or a request cannot hold, no empty name or path, and no home of nobody."""
    if isinstance(value, dict):
        for name, item in value.items():
            _check_plain(item, f"{key}.{name}" if key else str(name))
    elif isinstance(value, list):
        for item in value:
            _check_plain(item, key)
    elif isinstance(value, float) and not math.isfinite(value):
        raise ConfigError(refused(key, value, takes(key) if key in known() else "finite numbers"))
    elif isinstance(value, int) and not -LARGEST <= value <= LARGEST:
        raise ConfigError(refused(key, value, f"integers up to {LARGEST}"))
    elif isinstance(value, str) and not value.strip() and key in known() and not _may_be_empty(key):
        raise ConfigError(f"{key} is empty; allowed: {takes(key)}")
    elif isinstance(value, str) and key in FOLDERS and os.path.expanduser(value).startswith("~"):
        raise ConfigError(f"{key}={value} is the folder of a user who is not here; allowed: a path, ~ or ~USER")


def _may_be_empty(key: str) -> bool:
    return key in MAY_BE_EMPTY or get_origin(known()[key]) in (dict, list)


def _check_compile(backend: LocalSettings, batch: int) -> None:
    """Steps of static shape are those of one sample in one process."""
    for name, count in (
        ("run.batch", batch),
        ("backend.branch_ranks", backend.branch_ranks),
        ("backend.tensor_ranks", backend.tensor_ranks),
    ):
        if backend.compile != "none" and count > 1:
            raise ConfigError(
                f"backend.compile={backend.compile} is not allowed with {name}={count}; allowed: {name}=1, or "
                "backend.compile=none"
            )


def _check_prefix_reuse(reuse: str, decoder: DecoderConfig) -> None:
    if reuse != "off" and decoder.cache != "exact":
        raise ConfigError(f"backend.prefix_reuse={reuse} needs decoder.cache=exact; allowed here: off")
    if reuse == "exact" and decoder.attention != "block_causal":
        raise ConfigError(
            "backend.prefix_reuse=exact needs decoder.attention=block_causal; allowed here: off, approximate"
        )


def _check_ranks(backend: LocalSettings, settings: DecoderConfig, decoder: Decoder | None) -> None:
    """Raises ConfigError for a decode that these ranks cannot share, or a protocol that would change its result."""
    if backend.tensor_ranks > 1 and decoder is None:
        raise ConfigError(
            f"backend.tensor_ranks={backend.tensor_ranks} shares networks of this project, and decoder={settings.name} "
            "runs one of transformers; allowed: 1"
        )
    if backend.branch_ranks == 1:
        return
    given = f"backend.branch_ranks={backend.branch_ranks}"
    if decoder is None:
        raise ConfigError(
            f"{given} is not allowed with decoder={settings.name}, which has no branches; allowed: 1 (run.devices "
            "works through the problems on several devices)"
        )
    if CHANGE in decoder.rule.measures and settings.k != 0:
        raise ConfigError(
            f"{given} is not allowed with decoder.fill={settings.fill}, which compares whole distributions of a "
            "forward with those of the one before, and ranks do not exchange these; allowed: 1, or decoder.k=0"
        )
    if backend.branch_protocol == "single_phase" and (reason := _needs_commit(settings, decoder)):
        raise ConfigError(f"backend.branch_protocol=single_phase is not allowed with {reason}; allowed: two_phase")


def _needs_commit(settings: DecoderConfig, decoder: Decoder) -> str | None:
    """Why ranks must be sent what the winner's rank keeps."""
    if settings.attention != "block_causal":
        return f"decoder.attention={settings.attention}: what is kept has seen what branches differ in"
    if settings.cache != "exact":
        return f"decoder.cache={settings.cache}, which keeps more than finished blocks or nothing"
    if decoder.rule.edits and settings.k != 0:
        return f"decoder.fill={settings.fill}: a block is kept as one branch has it, which others may not have finished"
    if decoder.select.drafts:
        return f"decoder.{decoder.chosen}: a drafted row may finish a block that the others have not"
    return None
