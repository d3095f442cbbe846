"""What a run asks of whatever decodes its problems: samples, one by one as they finish."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from lopa_bench.backends.outcome import Outcome, Reply
from lopa_bench.models.text.tokenizers import Codec
from lopa_bench.plan.plan import Plan
from lopa_bench.plan.units import Unit, sample_seed
from tasks.types import Problem


@dataclass
class Sample:
    """One decode on its way to a row: what was asked and what came back, from a model here or as a server's reply.

    `prompt_ids`: None where the server makes them. `wall_s`: seconds of decoding between the sample that finished
    before and this one.
    """

    unit: Unit
    problem: Problem
    prompt: str
    prompt_ids: list[int] | None
    seed: int
    outcome: Outcome
    reply: Reply | None = None
    peak_memory_bytes: int | None = None
    wall_s: float | None = None

    @property
    def is_decoded(self) -> bool:
        """Whether there is a completion to judge."""
        return self.outcome.generation is not None or (self.reply is not None and self.reply.unjudged is None)


class Engine(ABC):
    """Decodes the units of a plan. A context manager: leaving it ends what it started.

    `prompt_ids`: by problem index; none for a server that makes them itself.
    """

    device: str
    dtype: str
    end_ids: Sequence[int] = ()
    codec: Codec | None = None  # None where a server makes ids from messages and text from ids

    def __init__(self, plan: Plan, prompt_ids: Mapping[int, list[int]]) -> None:
        self.plan = plan
        self.prompt_ids = prompt_ids

    def text(self, ids: Sequence[int]) -> str:
        """The text of generated ids."""
        assert self.codec is not None
        return self.codec.decode(ids)

    @abstractmethod
    def warm_up(self, unit: Unit) -> None:
        """One untimed decode."""

    @abstractmethod
    def stream(self, units: Sequence[Unit]) -> Iterator[Sample]:
        """The samples of units whose prompts fit, as they finish; with `wall_s` if decoding goes on meanwhile."""

    @property
    def forwards(self) -> int:
        """Model calls that were begun so far: whether it grows tells a slow decode from one that hangs."""
        return 0

    def facts(self) -> Mapping[str, Any]:
        """What the records should say of the place beside this machine: the ids that end a text, whoever named them."""
        return {"end_ids": list(self.end_ids)} if self.end_ids else {}

    def samples(self, units: Sequence[Unit]) -> Iterator[Sample]:
        """All samples, those with a prompt that does not fit first; each says how long it took since the one before."""
        fitting = []
        for unit in units:
            if (sample := self.too_long(unit)) is not None:
                yield sample
            else:
                fitting.append(unit)
        for _ in range(self.plan.config.run.warmup if fitting else 0):
            self.warm_up(fitting[0])
        yield from self.timed(fitting)

    def timed(self, units: Sequence[Unit]) -> Iterator[Sample]:
        """The samples of units whose prompts fit, each with its `wall_s`; `units` may still grow while it is read."""
        stream = self.stream(units)
        while True:
            began = time.perf_counter()
            sample = next(stream, None)
            if sample is None:
                return
            if sample.wall_s is None:
                sample.wall_s = time.perf_counter() - began
            yield sample

    def close(self) -> None:  # noqa: B027  # most have nothing to end
        """Ends what this engine started."""

    def __enter__(self) -> Engine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _sample(self, unit: Unit, outcome: Outcome, reply: Reply | None = None) -> Sample:
        prompt, problem = self.plan.prompts[unit.index].text, self.plan.problem(unit)
        ids = self.prompt_ids.get(unit.index)
        return Sample(unit, problem, prompt, ids, self._seed(unit), outcome, reply)

    def _seed(self, unit: Unit) -> int:
        return sample_seed(self.plan.config.run.seed, self.plan.problem(unit).id, unit.sample_index)

    @property
    def max_length(self) -> int:
        """Of prompt and generation together."""
        return self.plan.config.model.max_length

    def too_long(self, unit: Unit) -> Sample | None:
        """The sample of a unit whose prompt leaves no room for the generation; None where it does."""
        ids, wanted = self.prompt_ids.get(unit.index), self.plan.config.decoder.gen_length
        room = self.max_length - wanted
        if ids is None or len(ids) <= room:
            return None
        reason = f"the prompt has {len(ids)} tokens, {room} fit beside decoder.gen_length={wanted}"
        return self.failed(unit, "prompt_too_long", reason)

    def failed(self, unit: Unit, status: str, reason: str) -> Sample:
        """The sample of a unit that was not decoded. `status` is one of ERROR_REASONS of the records."""
        return self._sample(unit, Outcome(None, status, error=reason))
