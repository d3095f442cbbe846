"""Decoding by a model of transformers in this process: autoregressive, or by its own sampler. It loads torch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from lopa_bench.backends.autoregressive import CAUSAL, decode_text, load_causal
from lopa_bench.backends.diffusion_gemma import CLASS, decode_canvases
from lopa_bench.backends.outcome import Outcome
from lopa_bench.engines.base import Engine, Sample
from lopa_bench.engines.masked import peak_memory, reset_peak
from lopa_bench.models.device import dtype_name
from lopa_bench.plan.plan import Plan
from lopa_bench.plan.units import Unit
from lopa_bench.settings.backend import LocalSettings


class AutoregressiveEngine(Engine):
    """A causal model and the decodes of a plan, one at a time. Raises CheckpointError."""

    kind = CAUSAL

    def __init__(self, plan: Plan) -> None:
        backend = plan.config.backend
        assert isinstance(backend, LocalSettings)
        torch.manual_seed(plan.config.run.seed)
        self.model = load_causal(plan.config.model, backend, self.kind, plan.network)
        self.device, self.dtype = str(self.model.device), dtype_name(self.model.dtype)
        self.codec = self.model.codec
        self.end_ids = self.model.end_ids
        super().__init__(plan, {index: self.model.codec.encode(prompt) for index, prompt in plan.prompts.items()})

    @property
    def forwards(self) -> int:
        return self.model.forwards

    def warm_up(self, unit: Unit) -> None:
        self._decode(unit)

    def stream(self, units: Sequence[Unit]) -> Iterator[Sample]:
        for unit in units:
            reset_peak(self.model.device)
            sample = self._sample(unit, self._decode(unit))
            sample.peak_memory_bytes = peak_memory(self.model.device)
            yield sample

    def _decode(self, unit: Unit) -> Outcome:
        config = self.plan.config.decoder
        return decode_text(
            self.model, self.prompt_ids[unit.index], config.gen_length, config.temperature, self._seed(unit)
        )


class DiffusionGemmaEngine(AutoregressiveEngine):
    """DiffusionGemma, whose sampler is its own."""

    kind = CLASS

    def _decode(self, unit: Unit) -> Outcome:
        config = self.plan.config.decoder
        return decode_canvases(self.model, self.prompt_ids[unit.index], config.gen_length, self._seed(unit))
