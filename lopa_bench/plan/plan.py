"""Everything that a run is before anything heavy is loaded: its decoder, task, prompts, units and identity."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from decoders import UNMASKED, Decoder, make_decoder
from lopa_bench.models.checkpoint.check import check_model
from lopa_bench.models.checkpoint.folders import is_embedded
from lopa_bench.models.kept import KeptNetwork
from lopa_bench.plan.identity import Identity, identify, network_key
from lopa_bench.plan.units import Unit, units_of
from lopa_bench.settings.backend import LocalSettings, ServerSettings
from lopa_bench.settings.config import Config
from lopa_bench.settings.validate import Validated, validate
from tasks.base import Task
from tasks.own import prompt_of
from tasks.registry import make_task
from tasks.types import Problem, Prompt, TaskError


@dataclass(frozen=True)
class Plan:
    """`config` has resolved decoder settings; `resolved` is the configuration as plain data, for the record.

    `memory`: bytes of main memory that a model may take here; None: all that are free. `kept`: where its network stays
    for a next run; None: nowhere.
    """

    config: Config
    resolved: Mapping[str, Any]
    decoder: Decoder | None  # None if it fills no masks
    task: Task
    prompts: Mapping[int, Prompt]  # of the problems of this shard, by index
    units: list[Unit]
    identity: Identity
    memory: int | None = None
    kept: KeptNetwork | None = None

    @property
    def has_network(self) -> bool:
        """Whether an earlier run of this process left its network."""
        return self.kept is not None and self.kept.has(self._network_key)

    def make_room(self) -> None:
        """Lets go of a network that an earlier run left and this one has no use for."""
        if self.kept is not None and not self.has_network:
            self.kept.drop()

    def network(self, load: Callable[[], Any]) -> Any:
        """The network that an earlier run left, else the one that `load` makes."""
        return load() if self.kept is None else self.kept.get(self._network_key, load)

    @cached_property
    def _network_key(self) -> str:
        return network_key(self.config, self.identity.facts["model"])

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


def make_plan(config: Config, resolved: Mapping[str, Any], valid: Validated | None = None) -> Plan:
    """Fills in the decoder's settings, loads the task and finds the checkpoint's files. Raises TaskError or
    CheckpointError, and what `validate` does if `valid` does not hold what it found.

    The model is judged first: its files are small, a data set may have to be fetched, weights to be read for their sum.
    """
    valid = valid or validate(config)
    network = check_model(config.model) if isinstance(config.backend, LocalSettings) else None
    if network is not None and isinstance(config.backend, LocalSettings):
        network.check_shares(config.backend.tensor_ranks)
    decoder, settings = valid.decoder, valid.settings
    if decoder is not None and network is not None and config.decoder.grid is None and settings.grid != network.grid:
        decoder = make_decoder(replace(config.decoder, grid=network.grid))  # that of the model's family
        settings = decoder.config
    if decoder is not None and network is not None:
        decoder.check_shift(network.shifted)
    warn_of_ignored(config)
    config.decoder = settings
    task = _make_task(config)
    units = units_of(valid.shard, len(task.problems), config.task.samples)
    indices = dict.fromkeys(unit.index for unit in units)
    prompts = {index: prompt_of(task, task.problems[index], config.task.target) for index in indices}
    identity = identify(config, task, ((task.problems[index], prompt) for index, prompt in prompts.items()))
    return Plan(config, resolved, decoder, task, prompts, units, identity)


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
