"""Experiment tracking beside the records, never instead of them: what fails here costs a warning line.

A tracker cannot prompt, wait for long, or change a result or the exit code of a run. W&B is offline by default.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lopa_bench.console.numbers import plain
from lopa_bench.metrics.aggregate import Running
from lopa_bench.system.bounded import bounded

if TYPE_CHECKING:
    import pyarrow as pa

WAIT_SECONDS = 14.0  # at the start and at the end each, and a call that takes longer is the last one: 30 s in all
LOG_SECONDS = 2.0
NAME_CHARACTERS = 128  # of a name or a group, which is W&B's limit
TABLE_ROWS = 200
TEXT_CHARACTERS = 2000
REASON_CHARACTERS = 200  # of what a service says of its failure
TABLE_COLUMNS = (
    "problem_id", "sample_index", "correct", "score_status", "extracted", "gold", "finish_reason",
    "content_tokens", "forwards", "rows", "total_s", "completion",
)  # fmt: skip

log = logging.getLogger(__name__)


class Tracker:
    """Told of a run as it goes: `start`, `sample` for each sample row, then `finish` or `fail`. It tells nobody."""

    draws_steps = False  # whether `finish` looks at the table of steps

    def start(self, run: Mapping[str, Any]) -> None:
        """Takes the run row as it is at the start."""

    def sample(self, row: Mapping[str, Any]) -> None:
        """Takes a sample row that has its verdict."""

    def finish(self, aggregates: Mapping[str, Any], tables: Mapping[str, pa.Table]) -> None:
        """Takes the numbers of the run and its tables "samples" and "steps"."""

    def fail(self, reason: str) -> None:
        """The run has ended before its end."""


class Guarded(Tracker):
    """What keeps a service from harming a run. After a failure or a deadline it is given up, for good: what comes back
    later logs nothing, and the service's run, if there is one, is closed as failed.

    `patience`: seconds that a call may take where no run waits for it (send.py), and then `failure` says what went
    wrong; None: the deadlines of a run, and a warning.
    """

    service = ""
    place = ""  # where in the service a run stands, in words

    def __init__(self, patience: float | None = None) -> None:
        self.patience = patience
        self.failure: str | None = None
        self._run: Any = None
        self._given_up = threading.Event()

    def start(self, run: Mapping[str, Any]) -> None:
        self._run = self._guarded("start", lambda: self._started(run), late=self._close_as_failed)

    def finish(self, aggregates: Mapping[str, Any], tables: Mapping[str, pa.Table]) -> None:
        self._on_run("finish", lambda run: self._finish(run, aggregates, tables))

    def sent_before(self, run_id: str) -> str | None:
        """The service's name of a run that holds this one whole, if it can be asked and there is one."""
        return None

    def _started(self, run: Mapping[str, Any]) -> Any:
        """The service's run for this one."""
        raise NotImplementedError

    def _finish(self, run: Any, aggregates: Mapping[str, Any], tables: Mapping[str, pa.Table]) -> None:
        """Writes what `finish` was given and closes the service's run."""
        raise NotImplementedError

    def _close_as_failed(self, run: Any) -> None:
        """Closes a run of the service that was given up. Whatever this raises is lost."""

    def _on_run(self, action: str, call: Callable[[Any], object], seconds: float | None = None) -> None:
        """The call on the service's run, if there is one; a run that this call gives up is closed as failed."""
        run = self._run
        if run is None:
            return

        def close(_: object) -> None:
            self._close_as_failed(run)

        self._guarded(action, lambda: call(run), seconds, close)
        if self._given_up.is_set():
            self._run = None

    def _guarded(
        self,
        action: str,
        call: Callable[[], object],
        seconds: float | None = None,
        late: Callable[[Any], object] = lambda _: None,
    ) -> Any:
        """What the call returns; None, and a warning, if it fails or takes too long.

        `late` then gets what comes back all the same.
        """
        try:
            return bounded(call, self.patience or seconds or WAIT_SECONDS, self._given_up, late)
        except Exception as error:
            self._given_up.set()
            reason = plain(" ".join(str(error).split()))[:REASON_CHARACTERS] or type(error).__name__
            self.failure = f"{self.service} could not {action} ({reason})"
            if self.patience is None:
                log.warning("%s; this run goes on without it", self.failure)
            return None


class WandbTracker(Guarded):
    """One W&B run for one run of ours, under the same id."""

    service = "W&B"
    draws_steps = True

    def __init__(
        self,
        mode: str = "offline",
        project: str = "lopa_bench",
        dir: Path | str = ".",
        group: str | None = None,
        varied: str | None = None,
        patience: float | None = None,
    ) -> None:
        super().__init__(patience)
        self.mode: Any = mode  # as tracker.mode; wandb types it as literals
        self.project = project
        self.dir = Path(dir)
        self.group = group
        self.varied = varied
        self.running = Running()
        self.place = f"{mode}, project {project}"

    def sample(self, row: Mapping[str, Any]) -> None:
        self.running.add(row)
        self._on_run("log", lambda run: run.log(live_numbers(self.running, row)), LOG_SECONDS)

    def finish_with(self, values: Callable[[], Mapping[str, Any]]) -> None:
        """Logs what `values` makes, and nothing else, and closes the run."""

        def log_and_close(run: Any) -> None:
            self._log(run, dict(values()))
            self._close(run, 0, {})

        self._on_run("finish", log_and_close)

    def fail(self, reason: str) -> None:
        self._on_run("mark as failed", lambda run: self._close(run, 1, {"failed": reason}))

    def _started(self, run: Mapping[str, Any]) -> Any:
        import wandb

        self.dir.mkdir(parents=True, exist_ok=True)
        with _no_terminal():
            return wandb.init(
                mode=self.mode,
                project=self.project,
                group=self.group[:NAME_CHARACTERS] if self.group else None,
                dir=str(self.dir),
                id=self._id(run["run_id"]),
                name=" ".join(filter(None, (self.varied, run["run_id"])))[:NAME_CHARACTERS],
                config=config_of(run) | ({"varied": self.varied} if self.varied else {}),
                settings=_settings(wandb.Settings),
            )

    def _id(self, run_id: str) -> str:
        """Of our own run; with a number if that was tracked before and is now resumed, since W&B's run is closed."""
        run_id = re.sub(r"[^\w.-]+", "-", run_id)  # a sweep's folder may have any name
        before = len([*self.dir.glob(f"wandb/*run-*{run_id}*")])
        return f"{run_id}-{before + 1}" if before else run_id

    def _finish(self, run: Any, aggregates: Mapping[str, Any], tables: Mapping[str, pa.Table]) -> None:
        import wandb

        if "samples" in tables:
            self._log(run, {"samples": wandb.Table(list(TABLE_COLUMNS), sample_rows(tables["samples"]))})
        if "steps" in tables and tables["steps"].num_rows:
            filled = wandb.Histogram(np_histogram=step_histogram(tables["steps"]))
            wins = wandb.Histogram(np_histogram=histogram_of(tables["steps"]["winner"].to_numpy()))
            self._log(run, {"tokens_per_step": filled, "winning_branch": wins})
        self._close(run, 0, aggregates)

    def _log(self, run: Any, values: Mapping[str, Any]) -> None:
        if not self._given_up.is_set():
            run.log(values)

    def _close(self, run: Any, exit_code: int, summary: Mapping[str, Any]) -> None:
        if self._given_up.is_set():
            return
        varied = {"varied": self.varied} if self.varied else {}
        run.summary.update({name: value for name, value in summary.items() if value is not None} | varied)
        run.finish(exit_code=exit_code)
        if self._given_up.is_set():
            return
        self._run = None
        if self.mode == "offline":
            print(f"W&B run kept offline; to upload it: wandb sync {run.settings.sync_dir}", file=sys.stderr)

    def _close_as_failed(self, run: Any) -> None:
        """Left open, W&B would call it finished at the end of this process."""
        if run is not None:
            with suppress(Exception):
                run.summary.update({"failed": "given up: W&B took too long or failed"})
                run.finish(exit_code=1)


def live_numbers(live: Running, row: Mapping[str, Any]) -> dict[str, float]:
    """What is drawn as a run goes on, behind a sample."""
    numbers = {
        "running/accuracy": live.accuracy,
        "running/tpf": live.tpf,
        "running/tps": live.tps,
        "running/errors": live.errors,
        "sample/content_tokens": row.get("content_tokens"),
        "sample/forwards": row.get("forwards"),
        "sample/total_s": row.get("total_s"),
    }
    return {name: value for name, value in numbers.items() if value is not None}


def config_of(run: Mapping[str, Any]) -> dict[str, Any]:
    """The run row without the empty columns; JSON columns as objects, which W&B can filter by."""
    config = {name: value for name, value in run.items() if value is not None and name != "aggregates"}
    for name in ("config", "versions", "host"):
        if isinstance(config.get(name), str):
            config[name] = json.loads(config[name])
    return config


def _settings(settings: Any) -> Any:
    """Quiet, bounded, and without the parts that would touch the measurement. Older versions lack some fields."""
    wanted = {
        "init_timeout": WAIT_SECONDS,
        "finish_timeout": WAIT_SECONDS,
        "silent": True,
        "console": "off",  # capturing stdout would move the JSON line
        "disable_git": True,
        "save_code": False,
        "x_disable_stats": True,  # a sampling thread would compete with the run it measures
    }
    known = settings.__annotations__
    return settings(**{name: value for name, value in wanted.items() if name in known})


@contextmanager
def _no_terminal() -> Iterator[None]:
    """Without a key W&B asks for one where it sees a terminal; where it sees none it raises."""
    stdin = sys.stdin
    with open(os.devnull, encoding="ascii") as empty:
        sys.stdin = empty
        try:
            yield
        finally:
            sys.stdin = stdin


def sample_rows(samples: pa.Table) -> list[list[Any]]:
    rows = samples.slice(0, TABLE_ROWS).select(list(TABLE_COLUMNS)).to_pylist()
    return [[_short(row[name]) for name in TABLE_COLUMNS] for row in rows]


def _short(value: Any) -> Any:
    return value[:TEXT_CHARACTERS] if isinstance(value, str) else value


def step_histogram(steps: pa.Table) -> tuple[Any, Any]:
    """How many steps filled 0, 1, 2, ... tokens."""
    import pyarrow.compute as pc

    return histogram_of(pc.list_value_length(steps["positions"]).to_numpy())


def histogram_of(values: Any) -> tuple[Any, Any]:
    """How often 0, 1, 2, ... occur, as numpy's histogram gives it; W&B takes 512 bins at most."""
    import numpy as np

    edges = np.linspace(-0.5, values.max() + 0.5, min(values.max() + 2, 512))
    return np.histogram(values, bins=edges)
