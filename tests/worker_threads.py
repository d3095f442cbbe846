"""Workers as threads of the test: the same messages over the same channels, without the seconds of an interpreter."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

import pytest

from decoders.config import DecoderConfig
from lopa_bench.records.runs import Run
from lopa_bench.run.runner import run
from lopa_bench.run.workers.worker import plan_of, refusals_told, serve
from lopa_bench.settings.backend import LocalSettings
from lopa_bench.settings.config import Config, RunSettings
from lopa_bench.settings.model import ModelSettings
from lopa_bench.system.channel import Channel, Inbox
from tasks.types import TaskConfig
from tests.scripted import Runs

ENDED = "was killed by SIGKILL"
local = threading.local()


class Dies(BaseException):
    """Ends a worker where it is raised, as SIGKILL would."""


class ThreadChild:
    def __init__(self, name: str, environment: Mapping[str, str | None]) -> None:
        here, there = Pipe()
        self.name, self.environment, self.channel = name, environment, Channel(here)
        self._is_killed = threading.Event()
        self._thread = threading.Thread(target=self._work, args=(Channel(there),), daemon=True)
        self._thread.start()

    def _work(self, channel: Channel) -> None:
        threading.current_thread().name = self.name
        local.is_killed = self._is_killed
        with suppress(Dies, EOFError), refusals_told(channel):
            inbox = Inbox(channel)
            if (begin := inbox.receive()) is not None:
                serve(channel, inbox, plan_of(begin), Path(begin["folder"]), begin["run_id"])
        channel.close()

    def ended(self) -> str:
        return ENDED

    def kill(self) -> None:
        """It ends as soon as it looks at its channel, and is waited for: it must not be at work in the next test."""
        self.channel.close()
        self._is_killed.set()
        self._thread.join(timeout=30)


class ThreadCrew:
    """As lopa_bench.system.processes.Crew."""

    def __init__(self) -> None:
        self.children: list[ThreadChild] = []

    def start(self, name: str, target: str, environment: Mapping[str, str | None]) -> ThreadChild:
        self.children.append(ThreadChild(name, environment))
        return self.children[-1]

    def close(self) -> None:
        for child in self.children:
            child.kill()


def hang() -> None:
    """Inside a scripted engine: nothing ends this decode but the end of its worker."""
    assert local.is_killed.wait(20), "nobody killed this worker"
    raise Dies


def this_worker() -> int:
    """Its number, inside a scripted engine."""
    return int(threading.current_thread().name.split()[1])


class SharedRuns(Runs):
    """Scripted runs by some workers; `run(devices)` with null is one in this thread."""

    def __init__(self, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(out, monkeypatch)
        monkeypatch.setattr("lopa_bench.run.workers.pool.Crew", ThreadCrew)

    def share(self, devices: str | None, limit: int = 12, **settings: Any) -> Run:
        config = self.config(devices, limit, **settings)
        return run(config, asdict(config))

    def config(self, devices: str | None, limit: int = 12, **settings: Any) -> Config:
        config = Config(
            decoder=DecoderConfig(name="d2f"),
            task=TaskConfig(name="gsm8k", source="embedded", limit=limit),
            model=ModelSettings(name="mini", path="embedded:mini", max_length=1024, toy=True),
            backend=LocalSettings(device="cpu"),
            run=RunSettings(out=str(self.out), progress=False, devices=devices),
        )
        for name, value in settings.items():
            setattr(config, name, value)
        return config
