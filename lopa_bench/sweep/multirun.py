"""A multirun as a whole: which jobs there are, how they ended, and all their runs side by side at the end."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hydra.experimental.callback import Callback
from omegaconf import DictConfig

from lopa_bench.console.numbers import plain
from lopa_bench.errors import ConfigError, RunError, StorageError
from lopa_bench.metrics.varied import Measured, by_name, differing
from lopa_bench.sweep import entrants
from lopa_bench.sweep.jobs import REPORT, JobReport, note_varied, read_report
from lopa_bench.sweep.process import SETTINGS

log = logging.getLogger(__name__)

RECORD = "sweep.parquet"
BASIC_SWEEPER = "hydra._internal.core_plugins.basic_sweeper.BasicSweeper"


@dataclass
class Sweep:
    """`expected`: the overrides of each job where they are known before the jobs run. For the others see Config."""

    folder: Path
    expected: list[list[str]] = field(default_factory=list)
    against: str | None = None
    json: str = "auto"
    out: str = "outputs"

    def jobs(self) -> list[JobReport]:
        """All jobs by number; a report that still says running is of a job whose watcher is gone."""
        reports = {
            report.job: report for path in self.folder.glob(f"*/{REPORT}") if (report := read_report(path.parent))
        }
        for job, overrides in enumerate(self.expected):
            if job not in reports:
                reports[job] = JobReport(job, "not_started", overrides, str(self.folder / str(job)))
        for report in reports.values():
            if report.status == "running":
                report.status, report.error = "vanished", "the process that watched this job has ended"
        return [reports[job] for job in sorted(reports)]


class SweepTable(Callback):
    """Notes a multirun when it starts. Hydra calls no end of one that fails, so `conclude` is called by main()."""

    opened: Sweep | None = None  # of this process: a process has one multirun at most

    def on_multirun_start(self, config: DictConfig, **_: Any) -> None:
        folder = Path(config.hydra.sweep.dir).absolute()
        if any(folder.glob(f"*/{REPORT}")):  # not an exception: Hydra makes a warning of any that a callback raises
            print(
                f"error: hydra.sweep.dir={folder} holds the jobs of another sweep; allowed: a new folder",
                file=sys.stderr,
            )
            sys.exit(2)
        try:
            SweepTable.opened = Sweep(folder, _expected(config), config.against, config.run.json, config.run.out)
            note_varied(folder, varied_names(config, SweepTable.opened.expected))
        except (
            OSError,
            StorageError,
            ConfigError,
        ) as error:  # an exception of a callback would be a warning of Hydra's
            print(f"error: {plain(error)}", file=sys.stderr)
            sys.exit(2)


def _expected(config: DictConfig) -> list[list[str]]:
    """The jobs as Hydra's own sweeper will make them; unknown for sweepers that decide as they go."""
    if config.hydra.sweeper._target_ == entrants.TARGET:
        return entrants.expected(config)
    if config.hydra.sweeper._target_ != BASIC_SWEEPER:
        return []
    from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
    from hydra.core.override_parser.overrides_parser import OverridesParser

    params = [f"{name}={value}" for name, value in (config.hydra.sweeper.params or {}).items()]
    overrides = OverridesParser.create().parse_overrides([*params, *config.hydra.overrides.task])
    return [job for batch in BasicSweeper.split_arguments(overrides, None) for job in batch]


def varied_names(config: DictConfig, expected: Sequence[Sequence[str]]) -> list[str]:
    """What the jobs differ in; of a sweeper that decides as it goes, what it may choose."""
    if expected:
        return list(dict.fromkeys(name for own in differing(expected) for name in own))
    return list(by_name(f"{name}=" for name in config.hydra.sweeper.get("params") or ()))


def conclude() -> int:
    """Writes sweep.parquet and prints the end of this process's multirun. Returns 0 if every job has finished, else 1.

    Without a multirun, or when none of its jobs was started: 0 and silence.
    """
    sweep = SweepTable.opened
    jobs = sweep.jobs() if sweep else []
    if sweep is None or all(job.status == "not_started" for job in jobs):
        return 0
    from lopa_bench.records.schema import to_table
    from lopa_bench.records.writing import write_table
    from lopa_bench.sweep.report import report_sweep

    try:
        write_table(sweep.folder / RECORD, to_table("jobs", [job.row() for job in jobs]))
    except (OSError, StorageError) as error:  # each job has its job.json
        log.warning("%s", plain(error))
    runs = finished_runs(jobs)
    report_sweep(sweep.folder, jobs, with_unions(runs), sweep.against, json=sweep.json, out=sweep.out)
    _track(jobs, sweep.folder, runs)
    return int(any(job.status != "finished" for job in jobs))


def finished_runs(jobs: Sequence[JobReport]) -> list[Measured]:
    """The runs of the jobs that have finished, in the order of the jobs. One that was moved or broken since is named in
    a warning and left out.
    """
    from lopa_bench.records.runs import open_run

    runs: list[Measured] = []
    for job in jobs:
        if job.status == "finished" and job.path:
            try:
                runs.append(Measured(open_run(Path(job.path)), job.numbers, job.overrides))
            except RunError as error:
                log.warning("job %s is not in the table: %s", job.job, plain(error))
    return runs


def with_unions(runs: Sequence[Measured]) -> list[Measured]:
    """The runs, all shards of one run that were counted by the same rule replaced by their union if none is missing."""
    from lopa_bench.records.joining import gathered

    cuts = gathered(runs, lambda one: one.run, apart=lambda one: one.preset)
    return [one for cut in cuts for one in ([_union(cut.parts)] if cut.is_whole and cut.count > 1 else cut.parts)]


def _union(shards: Sequence[Measured]) -> Measured:
    from lopa_bench.metrics.aggregate import aggregate
    from lopa_bench.records.joining import union

    whole = union([shard.run for shard in shards])
    return Measured(whole, aggregate(whole.samples, shards[0].preset, whole.seed), shards[0].overrides)


def _track(jobs: Sequence[JobReport], folder: Path, runs: Sequence[Measured]) -> None:
    """With the tracker of the first job that was started."""
    from omegaconf import OmegaConf

    from lopa_bench.settings.tracker import TrackerConfig
    from lopa_bench.tracking.sweep import track_sweep

    settings = next((path for job in jobs if (path := Path(job.folder) / SETTINGS).exists()), None)
    if settings is not None:
        track_sweep(TrackerConfig(**OmegaConf.load(settings).tracker), folder, runs)
