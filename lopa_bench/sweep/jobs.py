"""One job of a sweep: a process of its own, watched from here, whatever launcher called.

The job's folder holds `settings.yaml` (what the process is given), `job.log` (all it printed), `outcome.json` (its own
last words, lopa_bench/sweep/child.py) and `job.json` (how it ended, seen from outside).
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from signal import SIGKILL
from typing import Any

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from lopa_bench.console.numbers import plain
from lopa_bench.metrics.varied import as_text, by_name
from lopa_bench.records.schema import to_json
from lopa_bench.settings.config import escaped
from lopa_bench.settings.shard import OF_DEVICES
from lopa_bench.sweep.process import LOG, OUTCOME, SETTINGS, begin
from lopa_bench.system.clock import now
from lopa_bench.system.out_of_memory import oom_kills
from lopa_bench.system.processes import pass_on
from lopa_bench.system.signals import signal_name
from lopa_bench.system.storage import whole_file
from lopa_bench.system.streams import secure

STOP = "stop"  # in the sweep's folder: no further job is to start
REPORT = "job.json"
VARIED = "varied.json"  # in the sweep's folder: the names of what its jobs differ in
RUN_COLUMNS = ("n", "accuracy", "tpf", "tps")


class JobFailed(RuntimeError):
    """What an optimising sweeper is told of a job without a value."""


@dataclass
class JobReport:
    """How a job ended. `path` is its run's folder, `error` the last line of what went wrong."""

    job: int
    status: str
    overrides: list[str]
    folder: str
    started: str | None = None
    seconds: float | None = None
    run_id: str | None = None
    path: str | None = None
    error: str | None = None
    exit_code: int | None = None
    signal: int | None = None
    numbers: dict[str, Any] = field(default_factory=dict)  # aggregates of the run

    def write(self) -> None:
        with whole_file(Path(self.folder) / REPORT) as file:
            file.write(to_json(asdict(self)).encode())

    def row(self) -> dict[str, Any]:
        """As a row of sweep.parquet."""
        row = {name: value for name, value in asdict(self).items() if name != "numbers"}
        return row | {name: self.numbers.get(name) for name in RUN_COLUMNS}


def note_varied(sweep: Path, names: Sequence[str]) -> None:
    """Left in the sweep's folder for its jobs, which may run on other machines."""
    sweep.mkdir(parents=True, exist_ok=True)
    with whole_file(sweep / VARIED) as file:
        file.write(to_json(list(names)).encode())


def varied_in(sweep: Path) -> list[str]:
    """The names of what the jobs of a sweep differ in."""
    try:
        names: list[str] = json.loads((sweep / VARIED).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return []
    return names


def is_over_devices(sweep: Path) -> bool:
    """Whether the jobs of a sweep differ in who decodes. A run's key does not say that, so they would be one run."""
    return any(name in OF_DEVICES for name in varied_in(sweep))


def own_of(overrides: Sequence[str], sweep: Path) -> dict[str, str]:
    """A job's overrides without those that all jobs of its sweep have."""
    names = varied_in(sweep)
    return {name: value for name, value in by_name(overrides).items() if name in names}


def read_report(folder: Path) -> JobReport | None:
    try:
        return JobReport(**json.loads((folder / REPORT).read_text("utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def supervise(settings: DictConfig) -> Any:
    """Runs one job and reports it. Returns the report, or the objective's value if one is set (else JobFailed)."""
    secure()  # a launcher's worker has not passed main()
    hydra = HydraConfig.get()
    sweep = Path(hydra.runtime.cwd) / hydra.sweep.dir
    folder = sweep / str(hydra.sweep.subdir)
    report = JobReport(int(hydra.job.num), "running", list(hydra.overrides.task), str(folder), now())
    if (sweep / STOP).exists():
        report.status, report.started = "skipped", None
        report.write()
        return _returned(report, settings)
    if settings.tracker.name != "none":
        settings.tracker.group = settings.tracker.group or sweep.name
        settings.tracker.varied = as_text(own_of(report.overrides, sweep))
    settings.run.same_devices |= is_over_devices(sweep)
    folder.mkdir(parents=True, exist_ok=True)
    with whole_file(folder / SETTINGS) as file:
        file.write(as_given(settings).encode())
    report.write()
    own = as_text(own_of(report.overrides, sweep))
    print(plain(f"[{report.job}] {own or ' '.join(report.overrides) or 'begins'}"), file=sys.stderr, flush=True)
    try:
        _watch(report, hydra.runtime.cwd, settings.keep_model)
    finally:
        report.write()
        _say(report)
        if settings.fail_fast and report.status != "finished":
            (sweep / STOP).touch()
    return _returned(report, settings)


def as_given(settings: DictConfig) -> str:
    """The resolved settings as YAML that means the same when it is read: a dollar sign of a user's text stays one."""
    return OmegaConf.to_yaml(OmegaConf.create(escaped(OmegaConf.to_container(settings, resolve=True))))


def _returned(report: JobReport, settings: DictConfig) -> Any:
    if settings.objective.maximise is None:
        return asdict(report)
    if report.status != "finished":
        raise JobFailed(f"job {report.job} is {report.status}: {report.error}")
    return objective(report.numbers, settings.objective.maximise, settings.objective.accuracy)


def objective(numbers: Mapping[str, Any], name: str, accuracy: float | None) -> float:
    """The value to maximise. Below the wanted accuracy it is negative and the smaller the more is missing."""
    if accuracy is not None and (numbers.get("accuracy") or 0.0) < accuracy:
        return (numbers.get("accuracy") or 0.0) - accuracy
    return float(numbers.get(name) or 0.0)


def _watch(report: JobReport, cwd: str, keeps: bool) -> None:
    """Has the job done by a process of its own, waits for its end and fills in the report."""
    folder = Path(report.folder)
    (folder / OUTCOME).unlink(missing_ok=True)
    began, kills = time.monotonic(), oom_kills()
    with open(folder / LOG, "ab", buffering=0) as log:
        process = begin([str(folder), *report.overrides], cwd, log, keeps)
        tee = pass_on(process.stderr, str(report.job), log.write)
        try:
            process.wait()
        except BaseException:  # Ctrl-C, or a batch system's launcher that wants this process to end
            process.stop()
            raise
        finally:
            process.leave()
            tee.join(timeout=2)
            report.seconds = round(time.monotonic() - began, 3)
            fill_in(report, process.code, read_outcome(folder), oom_kills() - kills)


def read_outcome(folder: Path) -> dict[str, Any] | None:
    """The last words of the job's process; None if it could not say any."""
    try:
        return json.loads((folder / OUTCOME).read_text("utf-8"))
    except (OSError, ValueError):
        return None


def fill_in(report: JobReport, code: int | None, outcome: Mapping[str, Any] | None, oom_killed: int) -> None:
    """The verdict from outside (exit code, the kernel's count of out-of-memory kills) and from inside (`outcome`)."""
    report.exit_code = code if code is not None and code >= 0 else None
    report.signal = -code if code is not None and code < 0 else None
    said = dict(outcome or {})
    report.status = said.get("status", "vanished")
    report.error = said.get("error")
    for name in ("run_id", "path"):
        setattr(report, name, said.get(name))
    report.numbers = said.get("numbers") or {}
    if report.signal is not None:
        name = signal_name(report.signal)
        report.status = "out_of_memory" if oom_killed > 0 and report.signal == SIGKILL else "killed"
        report.error = "killed by the kernel for memory" if report.status == "out_of_memory" else f"killed by {name}"
    elif outcome is None:
        report.error = f"the process ended with status {code} in the middle of the run and said nothing (os._exit?)"
    elif report.status == "finished" and code != 0:
        report.status, report.error = "failed", f"the run is complete, but its process ended with status {code}"


def _say(report: JobReport) -> None:
    seconds = "" if report.seconds is None else f" after {report.seconds:.1f} s"
    reason = f" ({report.error})" if report.error else ""
    where = f", see {Path(report.folder) / LOG}" if report.status != "finished" else ""
    print(plain(f"[{report.job}] {report.status}{seconds}{reason}{where}"), file=sys.stderr, flush=True)
