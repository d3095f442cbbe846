"""From what happened to the rows that record it (METRICS.md, raw facts)."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from decoders import UNMASKED
from decoders.types import Step
from lopa_bench.backends.outcome import Traffic
from lopa_bench.plan.plan import Plan
from lopa_bench.records.schema import NOT_SCORED, SCHEMA_VERSION
from lopa_bench.run.completion import complete
from lopa_bench.run.replies import reply_columns
from lopa_bench.system.clock import now
from lopa_bench.system.environment import git_revision, host, machine_name, product_version, versions

if TYPE_CHECKING:
    from lopa_bench.engines.base import Engine, Sample


class Rows:
    """Makes the rows of one run."""

    def __init__(self, run_id: str, plan: Plan, engine: Engine) -> None:
        self.run_id = run_id
        self.plan = plan
        self.config = plan.config
        self.task = plan.task
        self.engine = engine
        self.host = host(engine.device) | dict(engine.facts())
        self.machine = machine_name(self.host)

    def sample(self, sample: Sample) -> dict[str, Any]:
        """The row of a sample before it is scored; one that was not decoded never is."""
        outcome, generation = sample.outcome, sample.outcome.generation
        row: dict[str, Any] = {
            "run_id": self.run_id,
            "problem_id": sample.problem.id,
            "problem_index": sample.unit.index,
            "sample_index": sample.unit.sample_index,
            "prompt": sample.prompt,
            "prompt_tokens": None if sample.prompt_ids is None else len(sample.prompt_ids),
            "gold": sample.problem.gold,
            "scorer": self.task.scorer,
            "stop": list(self.task.stop),
            "batch": self.config.run.batch,
            "concurrency": getattr(self.config.backend, "concurrency", 1),
            "approximate": outcome.cached > 0 and getattr(self.config.backend, "prefix_reuse", "") == "approximate",
            "token_source": "ids",
            "finish_reason": outcome.status,
            "error": outcome.error,
            "prefill_s": outcome.prefill_s,
            "total_s": outcome.total_s,
            "peak_memory_bytes": sample.peak_memory_bytes,
            "wall_s": sample.wall_s,
            "machine": self.machine,
            "branch_ranks": getattr(self.config.backend, "branch_ranks", None),
            "workers": 1,
            "seed": sample.seed,
            "completion": "",
            "answer_text": "",
            "token_ids": [],
            "correct": None,
            "score_status": NOT_SCORED if sample.is_decoded else "not_decoded",
            "score_details": {},
        }
        if outcome.total_s is not None and outcome.prefill_s is not None:
            row["decode_s"] = outcome.total_s - outcome.prefill_s
        if sample.reply is not None and outcome.total_s is not None:
            return row | reply_columns(sample.reply, self.task.stop, self.engine.codec, outcome.total_s)
        if generation is None:
            return row
        text = complete(generation.ids, self.engine.end_ids, self.task.stop, self.engine.text)
        return row | {
            "window_tokens": generation.window_tokens,
            "eos_tokens": text.eos_tokens,
            "content_tokens": text.content_tokens,
            "rounds": generation.rounds,
            "forwards": generation.forwards,
            "rows": generation.rows,
            "tokens_processed": generation.tokens_processed,
            "edits": generation.edits,
            "finish_reason": "stop" if text.stopped else outcome.status,
            "completion": text.text,
            "answer_text": text.answer,
            "token_ids": list(generation.ids),
        }

    def steps(self, sample: Sample) -> list[dict[str, Any]]:
        """One row a decoding step."""
        generation = sample.outcome.generation
        if generation is None:
            return []
        seconds: Sequence[float | None] = sample.outcome.step_s or [None] * generation.forwards
        traffic: Sequence[Traffic | None] = sample.outcome.traffic or [None] * generation.forwards
        key = {"run_id": self.run_id, "problem_id": sample.problem.id, "sample_index": sample.unit.sample_index}
        steps = enumerate(zip(generation.steps, seconds, traffic, strict=True))
        return [key | _step(i, step, s) | _sent(bytes_) for i, (step, s, bytes_) in steps]

    def run(self, status: str, started: str) -> dict[str, Any]:
        """The run's own row, without its aggregates."""
        config, source, identity = self.config, self.task.source, self.plan.identity
        return {
            "run_id": self.run_id,
            "version": product_version(),
            "schema_version": SCHEMA_VERSION,
            "status": status,
            "created": started,
            "finished": None if status == "running" else now(),
            "task": self.task.name,
            "scorer": self.task.scorer,
            "source_kind": source.kind,
            "source_name": source.name,
            "source_sha256": source.sha256,
            "source_rows": source.rows,
            "source_revision": source.revision,
            "model": config.model.name,
            "model_path": config.model.path,
            "model_sha256": identity.weights_sha256,
            "model_is_toy": config.model.toy,
            "decoder": config.decoder.name,
            "base": config.decoder.base,
            "k": None if config.decoder.name in UNMASKED else str(config.decoder.k),
            "attention": config.decoder.attention,
            "backend": config.backend.name,
            "device": self.engine.device,
            "dtype": self.engine.dtype,
            "seed": config.run.seed,
            "limit": config.task.limit,
            "samples": config.task.samples,
            "shard": config.run.shard,
            "batch": config.run.batch,
            "key": identity.key,
            "union_key": identity.union_key,
            "identity": identity.facts,
            "config": {**self.plan.resolved, "decoder": asdict(config.decoder), "task": self._task_settings()},
            "versions": versions(),
            "host": self.host,
            "git_revision": git_revision(),
            "argv": sys.argv[1:],
        }

    def _task_settings(self) -> dict[str, Any]:
        """What the task asks with, its own defaults filled in: runs that were told so and runs that were not agree."""
        task = self.task
        return asdict(self.config.task) | {"shots": task.shots, "prompt_style": task.prompt_style}


def _step(number: int, step: Step, seconds: float | None) -> dict[str, Any]:
    """A step's fields are columns, but for those that only the cache and the sample's own counts need."""
    facts = {name: list(value) if isinstance(value, tuple) else value for name, value in vars(step).items()}
    del facts["kept"], facts["passes"], facts["edits"]
    winner, anchor = (step.scores[step.winner], step.scores[0]) if step.scores else (None, None)
    facts |= _edits(step)
    return facts | {"step": number, "winner_score": winner, "anchor_score": anchor, "seconds": seconds}


def _sent(traffic: Traffic | None) -> dict[str, int | None]:
    """What ranks told each other for a step."""
    if traffic is None:
        return {"readout_bytes": None, "commit_bytes": None}
    return {"readout_bytes": traffic.readout, "commit_bytes": traffic.commit}


def _edits(step: Step) -> dict[str, list[int] | None]:
    """What a decoder that edits changed: positions, and the ids there before and after."""
    names = ("edit_positions", "edit_old", "edit_new")
    if step.edits is None:
        return dict.fromkeys(names)
    return {name: [edit[part] for edit in step.edits] for part, name in enumerate(names)}
