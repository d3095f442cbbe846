"""`lopa-bench send RUN... tracker=NAME`: finished runs, told to a tracker afterwards, from their records alone."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from contextlib import contextmanager, suppress
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

from lopa_bench.console.numbers import plain, plain_lines
from lopa_bench.errors import ConfigError, Locked, RunError, StorageError
from lopa_bench.records.finding import find_run
from lopa_bench.records.locks import Lock, is_locked
from lopa_bench.records.reading import read_samples, read_steps
from lopa_bench.records.runs import Run
from lopa_bench.settings.spelling import meant, nearest
from lopa_bench.settings.tracker import TrackerConfig
from lopa_bench.system.clock import now
from lopa_bench.system.storage import whole_file
from lopa_bench.tracking.making import make_tracker
from lopa_bench.tracking.tracker import Guarded

if TYPE_CHECKING:
    from collections.abc import Iterator

PATIENCE = 120.0  # seconds that one call may take: no run waits for it
SENT = "sent.json"  # in a run's folder: where it was sent and when
STEP_COLUMNS = ("positions", "winner")
OWN = ("name", "mode", "project", "group", "uri")  # what may be told; the rest a sweep fills in

READ_BY = {"mode": ("wandb",), "project": ("wandb", "mlflow"), "uri": ("mlflow", "tensorboard")}


def command(arguments: Sequence[str]) -> int:
    """Carries out `send ...`. Exit status: 0 all of them are there, 1 a service failed, 2 a wrong word or run."""
    options = _parser().parse_intermixed_args(arguments)
    try:
        words = [word for word in options.words if word.partition("=")[0].partition(".")[0] == "tracker"]
        config = _config(words)
        names = [word for word in options.words if word not in words]
        if not names:
            raise RunError("send needs a run; allowed: its folder, its id, or a part of the id that no other run has")
        runs = list({run.id: run for run in (find_run(name, options.out) for name in names)}.values())
        for run in runs:
            _check(run)
    except (ConfigError, RunError, StorageError) as error:
        _say(f"error: {error}")
        return 2
    return max(send(run, config, options.again) for run in runs)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="lopa-bench send", description=__doc__)
    parser.add_argument("command", help=argparse.SUPPRESS)
    parser.add_argument("words", nargs="+", metavar="RUN | tracker=NAME | tracker.SETTING=VALUE")
    parser.add_argument("--out", type=Path, default=Path("outputs"), help="output folder (outputs)")
    parser.add_argument("--again", action="store_true", help="what was sent before is sent once more")
    return parser


def _config(words: Sequence[str]) -> TrackerConfig:
    """The tracker that words name. W&B uploads unless it is told otherwise: that is what sending is."""
    config = TrackerConfig(mode="online")
    known = [one.name for one in fields(TrackerConfig) if one.name in OWN]
    for word in words:
        key, sign, value = word.partition("=")
        name = key.partition(".")[2] or "name"
        if not sign or name not in known:
            near = [f"tracker.{one}=VALUE" for one in nearest(name, known)]
            allowed = ", ".join(f"tracker.{one}" for one in known if one != "name")
            raise ConfigError(f"{word} is no setting of a tracker; allowed: tracker=NAME, {allowed}{meant(near)}")
        setattr(config, name, None if value in ("null", "") else value)
    if config.name == "none":
        raise ConfigError("send needs tracker=wandb, tracker=mlflow or tracker=tensorboard")
    config.check()
    for name, trackers in READ_BY.items():
        if config.name not in trackers and any(word.startswith(f"tracker.{name}=") for word in words):
            raise ConfigError(f"tracker.{name} has no meaning here: it is read with tracker={' or '.join(trackers)}")
    if config.name == "wandb" and config.mode == "disabled":
        raise ConfigError("tracker.mode=disabled sends nothing; allowed: online, or offline for wandb sync")
    return config


def _check(run: Run) -> None:
    """Raises RunError for a run that is not whole: what is sent would stand there as if it were."""
    if run.status != "finished":
        held = run.status == "running" and is_locked(run.folder)
        state = (
            "is still in progress"
            if held
            else f"did not finish ({'killed' if run.status == 'running' else run.status})"
        )
        raise RunError(f"{run.id} {state}; allowed: finished runs (the command that began it goes on with it)")
    run.check_whole()


def send(run: Run, config: TrackerConfig, again: bool = False) -> int:
    """Tells a tracker of one finished run; 0 if it is there afterwards, else 1. Its records are only read."""
    tracker = make_tracker(config, run.folder, PATIENCE)
    assert isinstance(tracker, Guarded)  # _config refuses none
    place = f"{tracker.service}: {tracker.place}"
    try:
        with _held(run.folder):
            if not again and (before := _sent_before(run, place, tracker)):
                _say(f"{run.id} was sent to {place} {before}; nothing is sent again (--again would)")
                return 0
            if tracker.failure is None:
                tracker.start(dict(run.row))
                for row in run.samples.to_pylist():
                    tracker.sample(row)
                tables = {"samples": read_samples(run.folder)}
                if tracker.draws_steps:
                    tables["steps"] = read_steps(run.folder, STEP_COLUMNS, in_order=False)
                tracker.finish(run.aggregates, tables)
            if tracker.failure is not None:
                _say(f"error: {run.id} was not sent: {tracker.failure}; its records are as they were")
                return 1
            _note(run.folder, place)
    except Locked as error:
        _say(f"error: {error}")
        return 1
    print(plain(f"sent {run.id} to {place}"))
    return 0


def _sent_before(run: Run, place: str, tracker: Guarded) -> str | None:
    """When and as what this run was sent there, by the note in its folder or by the service itself."""
    if at := _notes(run.folder).get(place):
        return f"at {at}"
    found = tracker.sent_before(run.id)
    return None if found is None else f"as {found}"


def _notes(folder: Path) -> dict[str, str]:
    with suppress(OSError, ValueError):
        found = json.loads((folder / SENT).read_text("utf-8"))
        return found if isinstance(found, dict) else {}
    return {}


def _note(folder: Path, place: str) -> None:
    notes = _notes(folder) | {place: now()}
    try:
        with whole_file(folder / SENT) as file:
            file.write(json.dumps(notes, indent=1).encode())
    except StorageError as error:
        _say(f"warning: {error}; that it was sent is noted nowhere, so sending it again would send it twice")


@contextmanager
def _held(folder: Path) -> Iterator[None]:
    """The run's lock, so that nobody changes or sends it meanwhile; an archive that cannot be written has none."""
    try:
        lock = Lock(folder)
    except StorageError:
        yield
        return
    try:
        yield
    finally:
        lock.release()


def _say(text: str) -> None:
    print(plain_lines(text), file=sys.stderr)
