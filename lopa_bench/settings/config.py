"""The whole configuration of a run, as structured configs: a wrong name or value fails before anything is loaded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from decoders.allowed import choice, number
from decoders.config import DecoderConfig
from lopa_bench.metrics.presets import PRESETS
from lopa_bench.settings.backend import SETTINGS, BackendSettings, LocalSettings, ServerSettings
from lopa_bench.settings.model import ModelSettings
from lopa_bench.settings.tracker import TrackerConfig
from lopa_bench.settings.values import LARGEST
from tasks.types import TaskConfig

if TYPE_CHECKING:
    from omegaconf import DictConfig


@dataclass
class RunSettings:
    """How the problems are worked through.

    `batch`: samples decoded together in one model call. `warmup`: untimed decodes before the first sample.
    `shard`: "i/n" takes the problems whose index leaves i when divided by n; None takes all.
    `devices`: a worker on each of these devices, all at one run: all, N, 0,1,... or cpu:N (docs/parallel.md); None:
    this process alone. `same_devices`: an earlier run is gone on with only if it was asked for with the same
    run.devices and backend.device; jobs of a sweep that differ in these have it set. `stall_s`: seconds without a
    forward after which a worker's decode is given up and redone by another (None: never).
    `preset`: counting rule of the console; the rows hold what every rule needs. `out`: where runs are written.
    `json`: whether the last line of stdout is one of JSON; auto: where stdout is no terminal.
    """

    seed: int = number(0, 0, LARGEST)
    batch: int = number(1, 1, 65536)
    warmup: int = number(1, 0, 65536)
    shard: str | None = None
    devices: str | None = None
    same_devices: bool = False
    stall_s: float | None = number(3600.0, 5)
    preset: str = choice("effective", *PRESETS)
    out: str = "outputs"
    progress: bool = True
    json: str = choice("auto", "always", "auto", "never")


@dataclass
class ObjectiveSettings:
    """What an optimising sweeper is told of a job: the aggregate `maximise`, as long as `accuracy` is reached."""

    maximise: str | None = choice(None, "tpf", "tpf_row", "tps", "tps_decode", "accuracy", "tokens_per_processed")
    accuracy: float | None = number(None, 0, 1)


@dataclass
class Config:
    """Everything that a run depends on.

    `resume`: continue an earlier run with the same settings, or print its numbers if it is finished.
    `fail_fast`: a sweep starts no further job once one has failed. `keep_model`: a job of a sweep that has finished
    hands its process to the next, which takes over the loaded model if it is the same. `against`: the run of a sweep
    with which all others are paired at its end, as NAME:VALUE, such as decoder:ar.
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
    keep_model: bool = False
    against: str | None = None


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


def config_of(resolved: Mapping[str, Any]) -> Config:
    """A configuration from its plain data, as a run's `resolved`. A dollar sign of a user's text stays one."""
    from omegaconf import OmegaConf

    given = OmegaConf.create(escaped(dict(resolved)))
    config = OmegaConf.to_object(OmegaConf.merge(structured(resolved["backend"]["name"]), given))
    assert isinstance(config, Config)
    return config


def escaped(value: Any) -> Any:
    """Plain data in which ${...} of a text is no reference."""
    if isinstance(value, dict):
        return {name: escaped(item) for name, item in value.items()}
    if isinstance(value, list):
        return [escaped(item) for item in value]
    return value.replace("${", "\\${") if isinstance(value, str) else value
