"""One run: problems -> prompts -> decodes -> scores -> records -> numbers."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from decoders import Decoder, decode, make_decoder
from decoders.types import Decode
from lopa_bench.backends.local import LocalBackend, Outcome
from lopa_bench.config import Config
from lopa_bench.console import Progress, report
from lopa_bench.metrics import aggregate
from lopa_bench.models.folders import is_embedded
from lopa_bench.models.served import ServedModel, serve
from lopa_bench.records import RunStore, new_run_id, read_samples, read_steps
from lopa_bench.rows import Rows, Sample, now
from lopa_bench.tracking import make_tracker
from tasks.base import Task
from tasks.registry import make_task

AGGREGATE_COLUMNS = ("n", "errors", "accuracy", "tpf", "tps", "latency_s")


def run(config: Config, resolved: Mapping[str, Any]) -> dict[str, Any]:
    """Runs one configuration and prints its table and JSON line. Returns the run row.

    `resolved` is the same configuration as plain data, for the record. Raises TaskError or CheckpointError before the
    first decode if data or model cannot be had.
    """
    decoder = make_decoder(config.decoder)
    warn_of_ignored(config, decoder)
    config.decoder = decoder.config
    task = make_task(config.task, embedded_default=is_embedded(config.model.path))
    torch.manual_seed(config.run.seed)
    served = serve(config.model, config.backend)
    out = Path(config.run.out).expanduser() / "runs"
    labels = [task.name, config.model.name, decoder.config.name, f"k{decoder.config.k}"]
    run_id = new_run_id(out, *labels)
    return _Runner(config, resolved, decoder, task, served, out / run_id).run()


def warn_of_ignored(config: Config, decoder: Decoder) -> None:
    """Says aloud that a base decoder has no lookahead; its runs are recorded with k = 0."""
    if config.decoder.name != "lopa" and config.decoder.k != 0:
        print(f"note: decoder.k={config.decoder.k} means nothing for decoder={config.decoder.name}; it runs with k=0")


class _Runner:
    """State of one run."""

    def __init__(
        self,
        config: Config,
        resolved: Mapping[str, Any],
        decoder: Decoder,
        task: Task,
        served: ServedModel,
        folder: Path,
    ):
        self.config = config
        self.resolved = resolved
        self.decoder = decoder
        self.task = task
        self.served = served
        self.folder = folder
        self.rows = Rows(folder.name, config, task, served)
        self.backend = LocalBackend(served.network, config.model.max_length)
        self.tracker = make_tracker(config.tracker, folder)
        self.started = now()

    def run(self) -> dict[str, Any]:
        """Everything between the first decode and the JSON line. On an exception what was decoded is kept."""
        row = self.rows.run(self.resolved, "running", self.started)
        with RunStore(self.folder) as store:
            store.write_run(row)
            self.tracker.start(row)
            try:
                wall_s = self._work(store)
            except BaseException as error:
                store.flush()
                status = "interrupted" if isinstance(error, KeyboardInterrupt) else "failed"
                store.write_run(self.rows.run(self.resolved, status, self.started))
                self.tracker.fail(f"{type(error).__name__}: {error}")
                raise
            store.flush()
            samples = read_samples(self.folder)
            numbers = aggregate(samples, self.config.run.preset, self.config.run.seed, wall_s)
            row = self.rows.run(self.resolved, "finished", self.started)
            row |= {"aggregates": numbers} | {name: numbers.get(name) for name in AGGREGATE_COLUMNS}
            store.write_run(row)
        self.tracker.finish(numbers, {"samples": samples, "steps": read_steps(self.folder)})
        report(row, numbers, self.folder)
        return row

    def _work(self, store: RunStore) -> float:
        """Decodes and scores all problems; returns the seconds spent decoding."""
        prompts = [self._prompt(i) for i in range(len(self.task.problems))]
        self._warm_up(prompts)
        label = f"{self.config.decoder.name} k={self.config.decoder.k}"
        decoding = 0.0
        with Progress(len(prompts), label) as progress:
            samples = self._decode_all(prompts)
            while True:
                began = time.perf_counter()
                sample = next(samples, None)
                decoding += time.perf_counter() - began
                if sample is None:
                    return decoding
                row = self._scored(sample)
                store.add(row, self.rows.steps(sample))
                self.tracker.sample(row)
                progress.add(row)

    def _prompt(self, index: int) -> tuple[str, list[int]]:
        prompt = self.task.prompt(self.task.problems[index])
        return prompt.text, self.served.encode(prompt)

    def _decode_all(self, prompts: list[tuple[str, list[int]]]) -> Iterator[Sample]:
        """All samples, those that do not fit the window first."""
        fitting = []
        for index, (text, ids) in enumerate(prompts):
            reason = self._too_long(ids)
            if reason is None:
                fitting.append(index)
            else:
                yield Sample(
                    index, self.task.problems[index], text, ids, Outcome(None, "prompt_too_long", error=reason)
                )
        jobs = (lambda ids=prompts[index][1]: self._start(ids) for index in fitting)
        _reset_peak(self.backend.device)
        for number, outcome in self.backend.stream(jobs, self.config.run.batch):
            index = fitting[number]
            peak = _peak(self.backend.device) if self.config.run.batch == 1 else None
            yield Sample(index, self.task.problems[index], *prompts[index], outcome, peak)
            _reset_peak(self.backend.device)

    def _start(self, prompt_ids: list[int]) -> Decode:
        return decode(self.decoder, prompt_ids, self.served.vocabulary)

    def _too_long(self, ids: list[int]) -> str | None:
        room = self.backend.max_length - self.decoder.config.gen_length
        if len(ids) <= room:
            return None
        return (
            f"the prompt has {len(ids)} tokens, {room} fit beside decoder.gen_length={self.decoder.config.gen_length}"
        )

    def _warm_up(self, prompts: list[tuple[str, list[int]]]) -> None:
        """Untimed decodes of the first prompt that fits, so that no sample pays for first-time costs."""
        first = next((ids for _, ids in prompts if self._too_long(ids) is None), None)
        for _ in range(self.config.run.warmup if first else 0):
            assert first is not None
            self.backend.decode(self._start(first))

    def _scored(self, sample: Sample) -> dict[str, Any]:
        row = self.rows.sample(sample)
        score = None if sample.outcome.generation is None else self.task.score(sample.problem, row["answer_text"])
        return self.rows.scored(row, score)


def _reset_peak(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)


def _peak(device: torch.device) -> int | None:
    """Peak device memory of one sample in bytes; None where the device does not report it."""
    return torch.cuda.max_memory_allocated(device) if device.type == "cuda" else None
