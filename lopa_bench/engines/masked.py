"""Decoders of masked positions on a model in this process. Loading this module loads torch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import torch

from decoders import decode
from decoders.types import Decode
from lopa_bench.backends.local import LocalBackend, Pending
from lopa_bench.engines.base import Engine, Sample
from lopa_bench.engines.room import Demand, check_memory
from lopa_bench.models.device import dtype_name, free_memory, pick_device, pick_dtype
from lopa_bench.models.loaded import Opened, check_prompts, check_room, count_parameters, load, open_checkpoint
from lopa_bench.models.network.static import Network
from lopa_bench.plan.plan import Plan
from lopa_bench.plan.units import Unit
from lopa_bench.settings.backend import LocalSettings


class MaskedEngine(Engine):
    """A loaded model and the decodes of a plan. Raises CheckpointError."""

    def __init__(self, plan: Plan) -> None:
        config, backend = plan.config, plan.config.backend
        assert isinstance(backend, LocalSettings)
        assert plan.decoder is not None
        torch.manual_seed(config.run.seed)
        self.decoder = plan.decoder
        opened = open_checkpoint(config.model)
        prompt_ids = {index: opened.codec.encode(prompt) for index, prompt in plan.prompts.items()}
        check_room(opened, config.decoder.gen_length)
        check_prompts(opened, prompt_ids)
        self._check_memory(plan, opened, prompt_ids)
        self.model = load(config.model, backend, config.run.batch, opened, plan.network)
        self.backend = self._backend_of(self.model.network, backend)
        self.device, self.dtype = self.model.device, self.model.dtype
        self.codec = self.model.codec
        self.end_ids = self.model.vocabulary.end_ids
        super().__init__(plan, prompt_ids)

    def _backend_of(self, network: Network, settings: LocalSettings) -> LocalBackend:
        return LocalBackend(network, prefix_reuse=settings.prefix_reuse)

    def _free(self, device: torch.device) -> int | None:
        """Bytes that the model may take."""
        return free_memory(device)

    def _check_memory(self, plan: Plan, opened: Opened, prompt_ids: Mapping[int, Sequence[int]]) -> None:
        """Raises CheckpointError if the weights and the widest call of the longest prompt do not fit on the device."""
        config, backend = plan.config, plan.config.backend
        assert isinstance(backend, LocalSettings)
        device = pick_device(backend.device)
        positions = min(config.model.max_length, opened.config.max_positions)
        room = positions - config.decoder.gen_length  # a longer prompt is not decoded
        prompt = max((ids for ids in prompt_ids.values() if len(ids) <= room), key=len, default=None)
        if not prompt:
            return
        demand = Demand(
            opened.config, count_parameters(opened.config), positions, self.decoder, prompt, opened.vocabulary,
            min(config.run.batch, len(plan.units)), dtype_name(pick_dtype(config.model.dtype, device)),
        )  # fmt: skip
        plan.make_room()
        told = plan.memory if device.type == "cpu" else None
        free = self._free(device) if told is None else told
        there = demand.need().weights if plan.has_network else 0
        check_memory(demand, None if free is None else free + there, str(device))

    @property
    def max_length(self) -> int:
        return self.backend.max_length

    @property
    def forwards(self) -> int:
        return self.backend.forwards

    def warm_up(self, unit: Unit) -> None:
        self.backend.decode(self._start(unit))

    def stream(self, units: Sequence[Unit]) -> Iterator[Sample]:
        batch = self.plan.config.run.batch
        reset_peak(self.backend.device)
        for number, outcome in self.backend.stream(self._waiting(units), batch):
            sample = self._sample(units[number], outcome)
            sample.peak_memory_bytes = peak_memory(self.backend.device) if batch == 1 else None
            yield sample
            reset_peak(self.backend.device)

    def close(self) -> None:
        """Its network may stay for a next run, its keys and values do not."""
        self.backend.drop_caches()

    def _waiting(self, units: Sequence[Unit]) -> Iterator[Pending]:
        for unit in units:
            yield Pending(self.prompt_ids[unit.index], partial(self._start, unit))

    def _start(self, unit: Unit, cached: int = 0) -> Decode:
        ids = self.prompt_ids[unit.index]
        return decode(self.decoder, ids, self.model.vocabulary, cached, seed=self._seed(unit))


def reset_peak(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)


def peak_memory(device: torch.device) -> int | None:
    """Peak device memory of one sample in bytes; None where the device does not report it."""
    return torch.cuda.max_memory_allocated(device) if device.type == "cuda" else None
