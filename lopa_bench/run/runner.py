"""One run: problems -> prompts -> decodes -> records -> scores -> numbers; continued if it was begun before."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lopa_bench.console.progress import Progress
from lopa_bench.console.report import report
from lopa_bench.errors import StorageError
from lopa_bench.metrics.aggregate import aggregate
from lopa_bench.metrics.latency import load
from lopa_bench.metrics.varied import Measured
from lopa_bench.models.kept import KeptNetwork
from lopa_bench.plan.plan import Plan, make_plan
from lopa_bench.plan.units import Unit
from lopa_bench.records.claim import Claim
from lopa_bench.records.integrity import Broken, shortfall
from lopa_bench.records.reading import read_samples, read_steps
from lopa_bench.records.repair import ReadBack, read_back
from lopa_bench.records.runs import Run, as_run
from lopa_bench.records.writing import RunStore, compact
from lopa_bench.run.decoding import Before, Decoding, warn_of_other_times, with_workers
from lopa_bench.run.judging import judge_part
from lopa_bench.run.missing import REDONE, RESUME_COLUMNS, missing_units
from lopa_bench.run.workers.opening import Way, way_of
from lopa_bench.settings.backend import ServerSettings
from lopa_bench.settings.config import Config
from lopa_bench.settings.unread import OF_SWEEPS
from lopa_bench.settings.validate import Validated, validate
from lopa_bench.system.clock import now
from lopa_bench.tracking.making import make_tracker

if TYPE_CHECKING:
    import pyarrow as pa

    from lopa_bench.run.workers.launched import Rank

AGGREGATE_COLUMNS = ("n", "errors", "accuracy", "tpf", "tps", "latency_s")
STEP_COLUMNS = ("positions", "winner", "branches")  # what a tracker draws
ROUNDS = 3  # of decoding what is missing: whatever was written and cannot be read again is done once more


def run(
    config: Config,
    resolved: Mapping[str, Any],
    valid: Validated | None = None,
    rank: Rank | None = None,
    kept: KeptNetwork | None = None,
) -> Run:
    """Runs one configuration, or what is left of it, and prints its table and JSON line.

    `resolved` is the same configuration as plain data, for the record; `valid` what `validate` made of it, which is
    asked if it was not before; `rank`: this process is one of several that were launched for it; `kept`: where its
    network stays for the next run of this process. Raises TaskError, CheckpointError or ConfigError before the first
    decode if data, model or devices cannot be had, Locked if another process is at the same run, StorageError if its
    files cannot be written, WorkerError if all workers ended. A process that is a further rank of a decode has no row:
    rank 0 has.
    """
    from lopa_bench.engines.opening import followed

    valid = valid or validate(config)
    runs = Path(config.run.out).expanduser() / "runs"
    if rank is not None and rank.is_spare:
        _say(f"{rank}: the first process of each worker starts its ranks itself, and this one has nothing to do")
        return Run((runs,), {"aggregates": {}})
    way = way_of(config, valid, rank)
    plan = replace(make_plan(config, resolved, valid), kept=kept)
    if followed(plan):
        return Run((runs,), {"aggregates": {}})
    claimed, decoded = way.take(plan, runs)
    with claimed:
        was_finished = claimed.is_finished
        row = _archived(claimed, plan) if claimed.lock is None else _carried_out(claimed, plan, way)
    done = as_run(row, claimed.folder)
    if rank is not None and was_finished and (decoded or rank.number):  # another process shows its numbers
        _say(f"{rank}: {decoded} samples decoded here, the run is in {claimed.folder}")
    else:
        report(Measured(done, done.aggregates), json=config.run.json, out=config.run.out)
    return done


def _carried_out(claimed: Claim, plan: Plan, way: Way) -> dict[str, Any]:
    """The row of a run after all that it lacked was done. No model is loaded if nothing is to be decoded."""
    from lopa_bench.engines.opening import dismiss

    back = read_back(claimed.folder, claimed.run_id)
    row = claimed.row = None if back.has_lost_row else claimed.row
    rows, waiting = back.complete(RESUME_COLUMNS), back.unscored
    missing = missing_units(plan.units, rows)
    if row and claimed.is_finished and not missing and not waiting and row["n"] == rows.num_rows:
        return _finished_before(claimed, plan, back.samples)
    del back  # its texts can be large
    started = row["created"] if row else now()
    if row and not missing:  # it was ended behind the last decode
        dismiss(plan)
        return _Runner(plan, claimed, Before(row), started, rows, waiting).run([])
    if plan.config.run.progress and not plan.has_network:
        backend = plan.config.backend
        _say(f"{'asking' if isinstance(backend, ServerSettings) else 'loading'} {plan.config.model.name} ...")
    with way.open(plan, claimed, len(missing)) as decoding:
        warn_of_other_times(rows, decoding)
        return _Runner(plan, claimed, decoding, started, rows, waiting).run(missing)


def _archived(claimed: Claim, plan: Plan) -> dict[str, Any]:
    """The row of a finished run whose folder cannot be written. Raises StorageError if it is damaged."""
    assert claimed.row is not None
    if reason := shortfall(claimed.folder, claimed.row):
        raise StorageError(f"{claimed.folder} cannot be written, and it is damaged: {reason}")
    return _finished_before(claimed, plan, read_samples(claimed.folder))


def _finished_before(claimed: Claim, plan: Plan, samples: pa.Table) -> dict[str, Any]:
    """The row of a run that has all its samples; nothing is decoded and no model is loaded."""
    from lopa_bench.engines.opening import dismiss

    assert claimed.row is not None
    dismiss(plan)
    _say(f"finished at {claimed.row['finished']}: {claimed.folder}; resume=false runs it again")
    return claimed.row | {"aggregates": _numbers(samples, plan)}


def _numbers(samples: pa.Table, plan: Plan) -> dict[str, Any]:
    numbers = aggregate(samples, plan.config.run.preset, plan.config.run.seed)
    backend = plan.config.backend
    if isinstance(backend, ServerSettings):
        numbers |= load(samples, numbers["wall_s"], backend.slo_s, backend.slo_ttft_s)
    return numbers


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


class _Runner:
    """A run that is under way, `started` then; `rows` are what it begins with, `waiting` the parts of them without
    verdicts.
    """

    def __init__(
        self,
        plan: Plan,
        claimed: Claim,
        decoding: Decoding,
        started: str,
        rows: pa.Table,
        waiting: Sequence[str],
    ) -> None:
        self.plan = plan
        self.claimed = claimed
        self.folder = claimed.folder
        self.run_id = claimed.run_id
        self.decoding = decoding
        self.started = started
        self.seen = [row for row in rows.to_pylist() if row["finish_reason"] not in REDONE]
        self.tracker = make_tracker(plan.config.tracker, claimed.folder)
        self.store = RunStore(claimed.folder)
        self.store.flushed += waiting
        self.is_scoring = False

    def run(self, units: Sequence[Unit]) -> dict[str, Any]:
        """Everything between the first decode and the last row. On an exception what was decoded is kept."""
        if self.claimed.row:
            _say(f"going on in {self.folder}: {len(units)} of {len(self.plan.units)} samples are missing")
        row = self.row_of("running")
        self.store.write_run(row)
        self.claimed.row = row
        self.tracker.start(row)
        try:
            with self._progress() as self.progress:
                back = self._complete(units)
            row = self._finish(row, back)
        except BaseException as error:
            self._stop(error)
            raise
        tables = {"samples": back.samples}
        if self.tracker.draws_steps:
            tables["steps"] = read_steps(self.folder, STEP_COLUMNS, in_order=False)
        self.tracker.finish(row["aggregates"], tables)
        return row

    def row_of(self, status: str) -> dict[str, Any]:
        return with_workers(self.decoding.run_row(status, self.started), self.seen, self.decoding)

    def _progress(self) -> Progress:
        label = " ".join(self.plan.labels[2:]).replace(" k", " k=")
        quiet = not self.plan.config.run.progress
        return Progress(len(self.plan.units), label, self.seen, quiet=quiet, beside=self.decoding.beside)

    def _complete(self, units: Sequence[Unit]) -> ReadBack:
        """Decodes and scores until every unit has a row that can be read back, and gives these rows, of which all that
        follows is made. Raises StorageError if that fails.
        """
        self._judge()
        for _ in range(ROUNDS):
            for row, steps in self.decoding.rows(units):
                self.store.add(row, steps)
                self.progress.add(row)
                self._judge()
            self.store.flush()
            self._judge()
            back = read_back(self.folder, self.run_id)
            units = missing_units(self.plan.units, back.complete(RESUME_COLUMNS), redone=())
            if not units:
                return back
        raise StorageError(
            f"{len(units)} of {len(self.plan.units)} samples are not in {self.folder} though all were done"
        )

    def _judge(self) -> None:
        """Scores the samples of all parts that were written since; they are on disk, whatever ends the scoring."""
        self.is_scoring = True
        while self.store.flushed:
            rows, judged = judge_part(self.store, self.plan.task, self.store.flushed[0])
            del self.store.flushed[0]
            self.progress.judged(judged)
            for row in rows:
                self.tracker.sample(row)
        self.is_scoring = False

    def _finish(self, row: Mapping[str, Any], back: ReadBack) -> dict[str, Any]:
        """Merges the parts and completes the run row by the samples that were read back."""
        try:
            compact(self.store, back)
        except (StorageError, Broken) as error:  # it makes reading faster, no more
            _say(f"warning: {error}; the parts of this run were not merged")
        numbers = _numbers(back.samples, self.plan)
        summary = {name: numbers.get(name) for name in AGGREGATE_COLUMNS}
        row = with_workers(row, back.samples.select(["workers"]).to_pylist())
        finished = {**row, "status": "finished", "finished": now(), "aggregates": numbers, **summary}
        self.store.write_run(finished)
        return finished

    def _stop(self, error: BaseException) -> None:
        """Keeps what was decoded and says how to go on. What goes wrong here does not hide what went wrong first."""
        try:
            self.store.flush()
            if self.store.flushed and not self.is_scoring:
                _say("scoring what was decoded first; Ctrl-C again leaves that to the next start")
                self._judge()
        except Exception as second:
            lost = f"{self.store.buffered} decoded samples are lost: " if self.store.buffered else ""
            _say(f"warning: {lost}{second}")
        finally:
            with suppress(StorageError):
                self.store.write_run(self.row_of("interrupted" if isinstance(error, KeyboardInterrupt) else "failed"))
            self.tracker.fail(f"{type(error).__name__}: {error}")
            self._say_how_to_go_on()

    def _say_how_to_go_on(self) -> None:
        units = self.plan.units
        done = len(units) - len(missing_units(units, read_samples(self.folder, RESUME_COLUMNS)))
        words = [word for word in sys.argv[1:] if word.lstrip("+").partition("=")[0] not in OF_SWEEPS]  # of a job
        command = shlex.join(["python", "-m", "lopa_bench", *words])
        _say(f"stopped after {done} of {len(units)} samples, kept in {self.folder}; to go on: {command}")
