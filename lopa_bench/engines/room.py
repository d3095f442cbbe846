"""Whether a run fits into the memory of its device, judged before its weights are loaded."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from decoders import Decoder, decode
from decoders.types import Prediction, Readout, Request, Vocabulary
from lopa_bench.errors import CheckpointError
from lopa_bench.models.config import ModelConfig
from lopa_bench.models.memory import Call, Need, cache_bytes, call_bytes

ROUNDS = 3  # of a decode that show its calls: the prompt's, and the first ones with branches
SIZES = {"float32": 4, "bfloat16": 2, "float16": 2}


@dataclass(frozen=True)
class Demand:
    """What decides how much memory a run takes. `parameters` counts numbers, `positions` those of one cache."""

    config: ModelConfig
    parameters: int
    positions: int
    decoder: Decoder
    prompt: Sequence[int]  # the longest
    vocabulary: Vocabulary
    batch: int
    dtype: str

    def need(self) -> Need:
        """What the run takes for sure."""
        return self._need(self._calls)

    def most(self) -> Need:
        """What it takes if the whole generation comes to be in the window of all branches."""
        calls = list(self._calls)
        if calls and calls[-1].start + calls[-1].width < len(self.prompt) + self.decoder.config.gen_length:
            rows, width = max(call.rows for call in calls), self.decoder.config.gen_length
            calls.append(Call(rows, width, calls[-1].start, rows * width, calls[-1].copies))
        return self._need(calls)

    @cached_property
    def _calls(self) -> list[Call]:
        return first_calls(self.decoder, self.prompt, self.vocabulary)

    def _need(self, calls: Sequence[Call]) -> Need:
        size = SIZES[self.dtype]
        caches = self.batch * cache_bytes(self.config, self.positions, size)
        widest = max((call_bytes(self.config, call, size, self.batch) for call in calls), default=0)
        return Need(self.parameters * size, caches, widest)

    def with_decoder(self, **changes: Any) -> Demand:
        return replace(self, decoder=replace(self.decoder, config=replace(self.decoder.config, **changes)))


def first_calls(decoder: Decoder, prompt: Sequence[int], vocabulary: Vocabulary) -> list[Call]:
    """The first model calls of a decode, whatever the model answers: a prediction that nothing is sure of.

    They are the least that a decode takes: a pipeline may have more blocks under way later.
    """
    found = []
    with suppress(Exception):  # of a part of one's own: the decode itself will tell it, with its cause
        for request in _requests(decoder, prompt, vocabulary):
            rows, width = request.ids.shape
            read_RW = request.ids == vocabulary.mask_id
            if request.predict is not None:
                read_RW[:, request.predict[0] - request.start : request.predict[1] - request.start] = True
            read = int((read_RW & (np.arange(width) < request.lengths[:, None])).sum()) + rows * request.shadows
            rows, read = rows * request.passes, read * request.passes
            found.append(Call(rows, width + request.shadows, request.start, read, _copies(request.readout)))
    return found


def _copies(readout: Readout) -> int:
    """How many further copies of the logits backends/readout.py has at once: for the measure "kl" the distributions of
    this forward and of the one before, twice; for top_p the sorted ones, their order and sums.
    """
    drawn, measured = readout.temperature > 0, "neg_entropy" in readout.measures
    cut = 5 * (readout.top_p < 1) + 2 * (readout.top_k is not None) + bool(readout.last)
    return (3 if measured else 2) + 4 * ("kl" in readout.measures) + (readout.mask_logit == "keep") + 2 * drawn + cut


def _requests(decoder: Decoder, prompt: Sequence[int], vocabulary: Vocabulary) -> Iterator[Request]:
    token = next(one for one in range(vocabulary.size) if one not in (vocabulary.mask_id, *vocabulary.end_ids))
    running = decode(decoder, prompt, vocabulary)
    request = next(running)
    for _ in range(ROUNDS):
        yield request
        rows, width = request.ids.shape
        shape = rows, width + request.behind
        zeros = np.zeros(shape, np.float32)
        extra = dict.fromkeys(request.readout.measures, zeros)
        request = running.send(Prediction(np.full(shape, token), zeros, extra))


def check_memory(demand: Demand, free: int | None, device: str) -> None:
    """Raises CheckpointError for a run that needs more than the `free` bytes of its device (None: not known), with the
    figures and the nearest settings that fit.
    """
    need = demand.need()
    if free is None:
        return
    if need.total <= free:
        if (most := demand.most().total) > free:
            print(
                f"note: with the whole generation in the window the run would take {_size(most)} on {device}, "
                f"where {_size(free)} are free",
                file=sys.stderr,
            )
        return
    config = demand.decoder.config
    figures = (
        f"weights {_size(need.weights)} in {demand.dtype}, keys and values {_size(need.caches)} "
        f"({demand.batch} texts of {demand.positions} positions), the widest call {_size(need.call)}"
    )
    raise CheckpointError(
        f"the run needs {_size(need.total)} on {device}, where {_size(free)} are free: {figures} (run.batch="
        f"{demand.batch}, decoder.k={config.k}, decoder.gen_length={config.gen_length}); {_advice(demand, free)}"
    )


def _advice(demand: Demand, free: int) -> str:
    """Each single change of a setting that is enough, as small as halving finds it; else all of them together."""
    config = demand.decoder.config
    longest = len(demand.prompt) + config.gen_length
    k = config.k if isinstance(config.k, int) else 0
    smaller: dict[str, list[tuple[object, Demand]]] = {
        "run.batch": [(n, replace(demand, batch=n)) for n in _halves(demand.batch, 1)],
        "decoder.k": [(n, demand.with_decoder(k=n)) for n in _halves(k, 0)],
        "model.dtype": [("bfloat16", replace(demand, dtype="bfloat16"))] if demand.dtype == "float32" else [],
        "model.max_length": [(n, replace(demand, positions=n)) for n in _halves(demand.positions, longest)],
        "decoder.gen_length": [(n, demand.with_decoder(gen_length=n)) for n in _halves(config.gen_length, 1)],
    }
    told = [
        f"{name}={value}"
        for name, changes in smaller.items()
        for value, _ in [change for change in changes if _fits(change[1], free)][:1]
    ]
    if told:
        return f"allowed here: {' or '.join(told)}"
    least = replace(demand, batch=1, dtype="bfloat16", positions=min(demand.positions, longest)).with_decoder(k=0)
    together = f"run.batch=1 decoder.k=0 model.dtype=bfloat16 model.max_length={least.positions}"
    if _fits(least, free):
        return f"allowed here: {together}, all of them"
    return f"with {together} it still needs {_size(least.need().total)}; allowed: another device or model"


def _size(count: int) -> str:
    return f"{count / 1e9:.2f} GB" if count >= 1e9 else f"{count / 1e6:.2f} MB"


def _fits(demand: Demand, free: int) -> bool:
    need = demand.need()
    return need.call > 0 and need.total <= free


def _halves(value: int, least: int) -> list[int]:
    """value / 2, value / 4, ..., and `least` as the last; nothing if `value` is no greater."""
    found = []
    while value > least:
        value = max(least, value // 2)
        found.append(value)
    return found
