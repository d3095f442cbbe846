"""The part of a run that needs the model: from units to samples. Loading this module loads torch."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from functools import partial

import torch

from decoders import decode
from decoders.types import Decode
from lopa_bench.backends.local import Job, LocalBackend, Outcome
from lopa_bench.models.served import serve
from lopa_bench.plan import Plan
from lopa_bench.rows import Sample
from lopa_bench.units import Unit, sample_seed


class Decoding:
    """A loaded model and the decodes of a plan. Raises CheckpointError."""

    def __init__(self, plan: Plan) -> None:
        torch.manual_seed(plan.config.run.seed)
        self.plan = plan
        self.decoder = plan.decoder
        self.served = serve(plan.config.model, plan.config.backend, plan.config.run.batch)
        reuse = plan.config.backend.prefix_reuse
        self.backend = LocalBackend(self.served.network, plan.config.model.max_length, reuse)
        self.prompt_ids = {index: self.served.encode(prompt) for index, prompt in plan.prompts.items()}

    def samples(self, units: Sequence[Unit]) -> Iterator[Sample]:
        """Decodes the units; each sample says how long decoding took since the one before."""
        self._warm_up(units)
        stream = self._stream(units)
        while True:
            began = time.perf_counter()
            sample = next(stream, None)
            if sample is None:
                return
            sample.wall_s = time.perf_counter() - began
            yield sample

    def _stream(self, units: Sequence[Unit]) -> Iterator[Sample]:
        """All samples, those that do not fit the window first."""
        fitting = []
        for unit in units:
            reason = self._too_long(unit)
            if reason is None:
                fitting.append(unit)
            else:
                yield self._sample(unit, Outcome(None, "prompt_too_long", error=reason))
        batch = self.plan.config.run.batch
        _reset_peak(self.backend.device)
        jobs = (Job(self.prompt_ids[unit.index], partial(self._start, unit)) for unit in fitting)
        for number, outcome in self.backend.stream(jobs, batch):
            sample = self._sample(fitting[number], outcome)
            sample.peak_memory_bytes = _peak(self.backend.device) if batch == 1 else None
            yield sample
            _reset_peak(self.backend.device)

    def _sample(self, unit: Unit, outcome: Outcome) -> Sample:
        text = self.plan.prompts[unit.index].text
        problem = self.plan.problem(unit)
        return Sample(unit, problem, text, self.prompt_ids[unit.index], self._seed(unit), outcome)

    def _seed(self, unit: Unit) -> int:
        return sample_seed(self.plan.config.run.seed, self.plan.problem(unit).id, unit.sample_index)

    def _start(self, unit: Unit, cached: int = 0) -> Decode:
        ids = self.prompt_ids[unit.index]
        return decode(self.decoder, ids, self.served.vocabulary, cached, seed=self._seed(unit))

    def _too_long(self, unit: Unit) -> str | None:
        wanted, ids = self.decoder.config.gen_length, self.prompt_ids[unit.index]
        room = self.backend.max_length - wanted
        if len(ids) <= room:
            return None
        return f"the prompt has {len(ids)} tokens, {room} fit beside decoder.gen_length={wanted}"

    def _warm_up(self, units: Sequence[Unit]) -> None:
        """Untimed decodes of the first prompt that fits, so that no sample pays for first-time costs."""
        first = next((unit for unit in units if self._too_long(unit) is None), None)
        for _ in range(self.plan.config.run.warmup if first else 0):
            assert first is not None
            self.backend.decode(self._start(first))


def _reset_peak(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)


def _peak(device: torch.device) -> int | None:
    """Peak device memory of one sample in bytes; None where the device does not report it."""
    return torch.cuda.max_memory_allocated(device) if device.type == "cuda" else None
