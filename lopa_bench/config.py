"""The whole configuration of a run, as structured configs: a wrong name or value fails before anything is loaded."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_origin

from decoders.config import DecoderConfig
from lopa_bench.backends.config import (
    SETTINGS,
    BackendSettings,
    LocalSettings,
    ServerSettings,
    check_backend,
    check_together,
)
from lopa_bench.paired import parse
from lopa_bench.tracking import TrackerConfig
from tasks.base import TaskConfig

if TYPE_CHECKING:
    from omegaconf import DictConfig


class ConfigError(ValueError):
    """A wrong setting; the message names the value and the allowed ones."""


@dataclass
class ModelSettings:
    """A checkpoint and what it was trained for (one YAML each in conf/model).

    `path`: "embedded:<name>", a folder, or a Hub id. `lora`: a PEFT adapter folder or Hub id, merged at load.
    `block_size`, `attention`, `gen_length`: what the decoders take by default with this model; `attention` is the one
    inside the window of lookahead branches.
    `layout`: dream, llada, or causal (autoregressive). `chat_template_kwargs`: further variables of the chat template.
    `max_length`: prompt and generation together. `end_ids`: the ids that end a text; null: those that the checkpoint's
    files name. `toy` marks models whose numbers say nothing about 7B models.
    """

    name: str = "mini"
    path: str | None = None
    revision: str | None = None
    lora: str | None = None
    lora_revision: str | None = None
    layout: str | None = None
    dtype: str = "auto"
    max_length: int = 2048
    gen_length: int = 512
    block_size: int = 32
    attention: str = "full"
    add_bos: bool = False
    end_ids: list[int] | None = None
    chat_template_kwargs: dict[str, Any] = field(default_factory=dict)
    toy: bool = False


@dataclass
class RunSettings:
    """How the problems are worked through.

    `batch`: samples decoded together in one model call. `warmup`: untimed decodes before the first sample.
    `shard`: "i/n" takes the problems whose index leaves i when divided by n; None takes all.
    `preset`: counting rule of the console; the rows hold what every rule needs. `out`: where runs are written.
    """

    seed: int = 0
    batch: int = 1
    warmup: int = 1
    shard: str | None = None
    preset: str = "effective"
    out: str = "outputs"
    progress: bool = True


@dataclass
class ObjectiveSettings:
    """What an optimising sweeper is told of a job: the aggregate `maximise`, as long as `accuracy` is reached."""

    maximise: str | None = None
    accuracy: float | None = None


@dataclass
class Config:
    """Everything that a run depends on.

    `resume`: continue an earlier run with the same settings, or print its numbers if it is finished.
    `fail_fast`: a sweep starts no further job once one has failed. `against`: the run of a sweep with which all others
    are paired at its end, as NAME:VALUE, such as decoder:ar.
    """

    decoder: DecoderConfig = field(default_factory=DecoderConfig)
    task: TaskConfig = field(default_factory=TaskConfig)
    model: ModelSettings = field(default_factory=ModelSettings)
    backend: BackendSettings = field(default_factory=BackendSettings)  # a choice of conf/backend
    tracker: TrackerConfig = field(default_factory=TrackerConfig)
    run: RunSettings = field(default_factory=RunSettings)
    objective: ObjectiveSettings = field(default_factory=ObjectiveSettings)
    resume: bool = True
    fail_fast: bool = False
    against: str | None = None


CHOICES = {
    "model.dtype": ("auto", "float32", "bfloat16", "float16"),
    "model.attention": ("full", "block_causal"),
    "model.layout": (None, "dream", "llada", "causal"),
    "tracker.name": ("none", "wandb"),
    "tracker.mode": ("online", "offline", "disabled"),
    "objective.maximise": (None, "tpf", "tpf_row", "tps", "tps_decode", "accuracy", "tokens_per_processed"),
}
LARGEST = 2**63 - 1  # what a record holds
RANGES: dict[str, tuple[float, float]] = {
    "model.max_length": (2, 2**24),
    "model.gen_length": (1, 65536),
    "model.block_size": (1, 65536),
    "run.batch": (1, 65536),
    "run.warmup": (0, 65536),
    "run.seed": (0, LARGEST),
    "task.samples": (1, 65536),
    "task.limit": (1, LARGEST),
    "objective.accuracy": (0, 1),
}
MAY_BE_EMPTY = ("backend.key_env",)


def register() -> None:
    """Makes the schema known to Hydra under the name `schema`."""
    from hydra.core.config_store import ConfigStore

    store = ConfigStore.instance()
    store.store(name="schema", node=Config)
    store.store(group="backend/schema", name="local", node=LocalSettings)
    store.store(group="backend/schema", name="server", node=ServerSettings)


def structured(backend: str) -> DictConfig:
    """The schema of a configuration with this backend."""
    from omegaconf import OmegaConf

    schema = OmegaConf.structured(Config)
    schema.backend = SETTINGS.get(backend, LocalSettings)
    return schema


def validate(config: Config) -> None:
    """Everything that can be judged before anything is loaded. Raises ConfigError, DecoderError or TaskError."""
    from decoders import UNMASKED, resolve_settings
    from lopa_bench.presets import PRESETS
    from lopa_bench.settings import takes
    from lopa_bench.spelling import meant, nearest
    from lopa_bench.units import Shard
    from tasks.registry import check_settings

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
    from lopa_bench.settings import known, takes

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
    from lopa_bench.settings import known

    return key in MAY_BE_EMPTY or get_origin(known()[key]) in (dict, list)


def _check_prefix_reuse(reuse: str, decoder: DecoderConfig) -> None:
    if reuse != "off" and decoder.cache != "exact":
        raise ConfigError(f"backend.prefix_reuse={reuse} needs decoder.cache=exact; allowed here: off")
    if reuse == "exact" and decoder.attention != "block_causal":
        raise ConfigError(
            "backend.prefix_reuse=exact needs decoder.attention=block_causal; allowed here: off, approximate"
        )


def check_model_path(model: ModelSettings) -> None:
    """A model needs a path; a path that looks like a folder must be one."""
    if not model.path:
        raise ConfigError(f"model.path is not set: model={model.name} needs a checkpoint folder or a Hub id")
    for name, path in (("model.path", model.path), ("model.lora", model.lora)):
        looks_local = path is not None and (path.startswith((".", "/", "~")) or path.count("/") != 1)
        if (
            path is not None
            and looks_local
            and not path.startswith("embedded:")
            and not Path(path).expanduser().is_dir()
        ):
            raise ConfigError(
                f"{name}={path} is no folder; allowed: a checkpoint folder, or a Hub id such as owner/name"
            )


def _shown(value: str | None) -> str:
    return "null" if value is None else value


def _value(config: Config, dotted: str):  # type: ignore[no-untyped-def]  # any setting
    part, name = dotted.split(".")
    return getattr(getattr(config, part), name)
