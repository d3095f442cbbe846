"""One run: problems -> prompts -> decodes -> scores -> records -> numbers; continued if it was begun before."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from lopa_bench import records
from lopa_bench.backends.config import ServerSettings
from lopa_bench.config import Config
from lopa_bench.console import report
from lopa_bench.latency import load
from lopa_bench.metrics import aggregate
from lopa_bench.plan import Plan, make_plan
from lopa_bench.progress import Progress
from lopa_bench.reading import read_samples, read_steps
from lopa_bench.records import RunStore, compact
from lopa_bench.resume import REDONE, Claim, claim, missing_units, rows_on_disk
from lopa_bench.tracking import make_tracker
from lopa_bench.units import Unit
from tasks.base import Score
from tasks.verdicts import judge

if TYPE_CHECKING:
    from lopa_bench.engines.base import Engine, Sample

AGGREGATE_COLUMNS = ("n", "errors", "accuracy", "tpf", "tps", "latency_s")
STEP_COLUMNS = ("positions", "winner", "branches")  # what a tracker draws


class Result(NamedTuple):
    """The run row, its aggregates as an object, and where it lies."""

    row: dict[str, Any]
    folder: Path


def run(config: Config, resolved: Mapping[str, Any]) -> Result:
    """Runs one configuration, or what is left of it, and prints its table and JSON line.

    `resolved` is the same configuration as plain data, for the record. Raises TaskError or CheckpointError before the
    first decode if data or model cannot be had, Locked if another process is at the same run.
    """
    plan = make_plan(config, resolved)
    runs = Path(config.run.out).expanduser() / "runs"
    with claim(runs, plan.identity.key, config.resume, plan.labels) as claimed:
        missing = missing_units(plan.units, rows_on_disk(claimed.folder))
        if claimed.row and not missing:
            row = _finished_before(claimed, plan)
        else:
            from lopa_bench.engines.base import open_engine

            with open_engine(plan, claimed.folder) as engine:
                row = _Runner(plan, claimed, engine, missing).run()
    report(row, row["aggregates"], claimed.folder)
    return Result(row, claimed.folder)


def _finished_before(claimed: Claim, plan: Plan) -> dict[str, Any]:
    """The row of a run that has all its samples; nothing is decoded and no model is loaded."""
    row = claimed.row
    assert row is not None
    if row["status"] != "finished":  # it was killed behind the last sample
        with RunStore(claimed.folder) as store:
            return _finish(store, row, plan)
    _say(f"finished at {row['finished']}: {claimed.folder}; resume=false runs it again")
    return row | {"aggregates": _numbers(claimed.folder, plan)}


def _finish(store: RunStore, row: Mapping[str, Any], plan: Plan) -> dict[str, Any]:
    """Completes a run on disk."""
    from lopa_bench.rows import now

    compact(store)
    numbers = _numbers(store.folder, plan)
    summary = {name: numbers.get(name) for name in AGGREGATE_COLUMNS}
    row = {**row, "status": "finished", "finished": now(), "aggregates": numbers, **summary}
    store.write_run(row)
    return row


def _numbers(folder: Path, plan: Plan) -> dict[str, Any]:
    samples = read_samples(folder)
    numbers = aggregate(samples, plan.config.run.preset, plan.config.run.seed)
    backend = plan.config.backend
    if isinstance(backend, ServerSettings):
        numbers |= load(samples, numbers["wall_s"], backend.slo_s, backend.slo_ttft_s)
    return numbers


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


class _Runner:
    """State of one run with a loaded model. `units` are those without a row."""

    def __init__(self, plan: Plan, claimed: Claim, engine: Engine, units: Sequence[Unit]) -> None:
        from lopa_bench.rows import Rows, now

        self.plan = plan
        self.claimed = claimed
        self.folder = claimed.folder
        self.engine = engine
        self.units = units
        self.rows = Rows(claimed.folder.name, plan, engine)
        self.tracker = make_tracker(plan.config.tracker, claimed.folder)
        self.started = claimed.row["created"] if claimed.row else now()
        self.store = RunStore(claimed.folder)
        self.waiting: list[tuple[Sample, dict[str, Any]]] = []  # decoded, not scored yet
        self.settled_at = time.monotonic()
        self.is_scoring = False

    def run(self) -> dict[str, Any]:
        """Everything between the first decode and the last row. On an exception what was decoded is kept."""
        if self.claimed.row:
            _say(f"going on in {self.folder}: {len(self.units)} of {len(self.plan.units)} samples are missing")
        row = self.rows.run("running", self.started)
        self.store.write_run(row)
        self.claimed.row = row
        self.tracker.start(row)
        seen = [row for row in rows_on_disk(self.folder).to_pylist() if row["finish_reason"] not in REDONE]
        self._warn_of_other_machines(seen)
        config = self.plan.config
        label = " ".join(self.plan.labels[2:]).replace(" k", " k=")
        try:
            with Progress(len(self.plan.units), label, seen, quiet=not config.run.progress) as self.progress:
                for sample in self.engine.samples(self.units):
                    self._take(sample)
                self._settle()
            self.store.flush()
            row = _finish(self.store, row, self.plan)
        except BaseException as error:
            self._stop(error)
            raise
        tables = {"samples": read_samples(self.folder), "steps": read_steps(self.folder, STEP_COLUMNS)}
        self.tracker.finish(row["aggregates"], tables)
        return row

    def _warn_of_other_machines(self, seen: Sequence[Mapping[str, Any]]) -> None:
        others = sorted({row["machine"] for row in seen if row["machine"] is not None} - {self.rows.machine})
        if others:
            _say(
                f"warning: this is {self.rows.machine}, earlier samples were decoded on {', '.join(others)}: "
                "the times of this run come from different machines, so its TPS and latency are of neither"
            )

    def _take(self, sample: Sample) -> None:
        """A decoded sample: scored now if that costs nothing, else with others, outside the time of any decode."""
        self.waiting.append((sample, self.rows.sample(sample)))
        is_due = (
            len(self.waiting) >= records.FLUSH_SAMPLES or time.monotonic() - self.settled_at >= records.FLUSH_SECONDS
        )
        if self._is_instant or is_due:
            self._settle()

    @property
    def _is_instant(self) -> bool:
        return getattr(self.plan.task, "instant", True)

    def _settle(self) -> None:
        """Scores what waits and hands it to the store."""
        self.is_scoring = True
        scores = self._scores()
        self.is_scoring = False
        for (sample, row), score in zip(self.waiting, scores, strict=True):
            row = self.rows.scored(row, score)
            self.store.add(row, self.rows.steps(sample))
            self.tracker.sample(row)
            self.progress.add(row)
        self.waiting.clear()
        if not self._is_instant:
            self.store.flush()
        self.settled_at = time.monotonic()

    def _scores(self) -> list[Score | None]:
        """A verdict for each waiting sample; None for those that were not decoded."""
        decoded = [item for item in self.waiting if item[0].is_decoded]
        verdicts = iter(judge(self.plan.task, [(sample.problem, row["answer_text"]) for sample, row in decoded]))
        return [next(verdicts) if sample.is_decoded else None for sample, _ in self.waiting]

    def _stop(self, error: BaseException) -> None:
        """Keeps what was decoded and says how to go on."""
        is_interrupt = isinstance(error, KeyboardInterrupt)
        try:
            if self.waiting and not self.is_scoring:
                _say(f"scoring {len(self.waiting)} decoded samples first; Ctrl-C again drops them")
                self._settle()
        finally:
            self.store.flush()
            self.store.write_run(self.rows.run("interrupted" if is_interrupt else "failed", self.started))
            self.tracker.fail(f"{type(error).__name__}: {error}")
            done = len(self.plan.units) - len(missing_units(self.plan.units, rows_on_disk(self.folder)))
            command = shlex.join(["python", "-m", "lopa_bench", *sys.argv[1:]])
            _say(f"stopped after {done} of {len(self.plan.units)} samples, kept in {self.folder}; to go on: {command}")
