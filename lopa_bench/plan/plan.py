"""Everything that a run is before anything heavy is loaded: its decoder, task, prompts, units and identity."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from decoders import UNMASKED, Decoder, DecoderConfig, make_decoder, resolve_settings
from lopa_bench.models.checkpoint.check import check_model
from lopa_bench.models.checkpoint.folders import is_embedded
from lopa_bench.models.config import ModelConfig
from lopa_bench.plan.identity import Identity, identify
from lopa_bench.plan.units import Unit, units_of
from lopa_bench.settings.backend import LocalSettings, ServerSettings
from lopa_bench.settings.config import Config
from lopa_bench.settings.shard import Shard
from tasks.base import Task
from tasks.own import prompt_of
from tasks.registry import make_task
from tasks.types import Problem, Prompt, TaskError


@dataclass(frozen=True)
class Plan:
    """`config` has resolved decoder settings; `resolved` is the configuration as plain data, for the record."""

    config: Config
    resolved: Mapping[str, Any]
    decoder: Decoder | None  # None if it fills no masks
    task: Task
    prompts: Mapping[int, Prompt]  # of the problems of this shard, by index
    units: list[Unit]
    identity: Identity

    @property
    def labels(self) -> list[str]:
        """What a run's name says of it."""
        shard = self.config.run.shard
        decoder = self.config.decoder
        labels = [self.task.name, self.config.model.name, decoder.name]
        labels += [self.config.backend.name] if decoder.name in UNMASKED else [f"k{decoder.k}"]
        return labels + ([f"shard-{shard.replace('/', '-of-')}"] if shard else [])

    def problem(self, unit: Unit) -> Problem:
        return self.task.problems[unit.index]


def make_plan(config: Config, resolved: Mapping[str, Any]) -> Plan:
    """Loads the task and finds the checkpoint's files. Raises TaskError or CheckpointError.

    The model is judged first: its files are small, a data set may have to be fetched, weights to be read for their sum.
    """
    network = check_model(config.model) if isinstance(config.backend, LocalSettings) else None
    decoder = None
    if config.decoder.name not in UNMASKED:
        if network is not None:
            config.decoder = on_grid(config.decoder, network)
        decoder = make_decoder(config.decoder)
    warn_of_ignored(config)
    config.decoder = resolve_settings(config.decoder)
    task = _make_task(config)
    units = units_of(Shard.parse(config.run.shard), len(task.problems), config.task.samples)
    indices = dict.fromkeys(unit.index for unit in units)
    prompts = {index: prompt_of(task, task.problems[index], config.task.target) for index in indices}
    identity = identify(config, task, ((task.problems[index], prompt) for index, prompt in prompts.items()))
    return Plan(config, resolved, decoder, task, prompts, units, identity)


def on_grid(decoder: DecoderConfig, network: ModelConfig) -> DecoderConfig:
    """The settings with the grid of the model's family, unless they name one. A copy."""
    return decoder if decoder.grid is not None else replace(decoder, grid=network.grid)


def _make_task(config: Config) -> Task:
    """The task. If neither its data nor the server can be had, the server is told: who starts a run on a server that is
    not there, offline, would else look for the data first. (A finished run needs no server, so it is not asked before.)
    """
    try:
        return make_task(config.task, embedded_default=is_embedded(config.model.path))
    except TaskError:
        if isinstance(config.backend, ServerSettings):
            from lopa_bench.backends.server.reach import check_there

            check_there(config.backend)
        raise


def warn_of_ignored(config: Config) -> None:
    """Says aloud that only LoPA has lookahead; other runs are recorded without."""
    if config.decoder.name != "lopa" and config.decoder.k != 0:
        print(
            f"note: decoder.k={config.decoder.k} means nothing for decoder={config.decoder.name}; it has no lookahead",
            file=sys.stderr,
        )
