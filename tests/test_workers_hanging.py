"""A worker that hangs is named and ended, and what it was at is redone; one that is only slow is left alone."""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from dataclasses import asdict
from multiprocessing import Pipe
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

from lopa_bench.errors import ConfigError
from lopa_bench.plan.plan import make_plan
from lopa_bench.plan.units import Unit
from lopa_bench.run.workers import joining, member, pool
from lopa_bench.run.workers.member import LOOK_SECONDS, Member
from lopa_bench.run.workers.places import Place
from lopa_bench.run.workers.worker import beating
from lopa_bench.settings.config import RunSettings
from lopa_bench.system.channel import Channel, Inbox
from tests.test_served import engine
from tests.test_workers import rows
from tests.worker_threads import ENDED, SharedRuns, hang

HOUR = 3600.0


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SharedRuns:
    return SharedRuns(tmp_path, monkeypatch)


@pytest.fixture
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look, which counts half a second, takes ten milliseconds: half a minute passes in 0.6 s."""
    monkeypatch.setattr(pool, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(member, "BEAT_SECONDS", 0.02)


def at_work() -> Member:
    here, _ = Pipe()
    worker = Member("worker 0 (cpu)", Channel(here))
    worker.row, worker.out = {}, {Unit(0, 0)}
    return worker


def after(worker: Member, seconds: float, stall_s: float | None, beats: Any = None) -> str | None:
    """What is found when nothing but beats comes for so long."""
    for look in range(int(seconds / LOOK_SECONDS) + 1):
        if beats is not None:
            worker.heard({"beat": beats(look)})
        if found := worker.looked_at(stall_s):
            return found
    return None


def test_who_sends_no_sign_of_life_is_given_up_whatever_the_bound_on_forwards() -> None:
    assert after(at_work(), 59, None) is None
    assert after(at_work(), 61, None) == "gave no sign of life for 60 s"
    assert after(at_work(), 9, 10) is None
    assert after(at_work(), 11, 10) == "gave no sign of life for 10 s (run.stall_s)"


def test_who_lives_but_makes_no_forward_is_given_up_after_the_bound_and_without_one_never() -> None:
    assert after(at_work(), HOUR - 1, HOUR, lambda look: 7) is None
    assert after(at_work(), HOUR + 1, HOUR, lambda look: 7) == "made no forward for 3600 s (run.stall_s)"
    assert after(at_work(), 30 * HOUR, None, lambda look: 7) is None


def test_a_slow_decode_an_idle_worker_and_a_row_are_no_reason() -> None:
    assert after(at_work(), 10 * HOUR, HOUR, lambda look: look // 7000) is None  # a forward in 58 minutes
    idle = at_work()
    idle.out.clear()
    assert after(idle, 10 * HOUR, HOUR, lambda look: 7) is None
    between = at_work()
    for _ in range(3):
        assert after(between, HOUR - 1, HOUR, lambda look: 7) is None
        between.heard({"row": {}, "steps": []})


def test_while_it_loads_a_worker_may_be_silent_for_an_hour_or_longer_if_a_decode_may_be() -> None:
    def loading() -> Member:
        worker = at_work()
        worker.row = None
        worker.out.clear()
        return worker

    for stall_s, most in ((10, HOUR), (HOUR, HOUR), (3 * HOUR, 3 * HOUR)):
        worker = loading()
        assert after(worker, most - 1, stall_s) is None
        assert after(worker, 2, stall_s) == f"was not ready after {most:g} s"
    assert after(loading(), 10 * HOUR, None) is None


@pytest.mark.usefixtures("fast")
def test_a_worker_at_work_says_how_many_forwards_its_engine_has_begun(tiny_model: Path) -> None:
    model = engine(tiny_model)
    model.warm_up(Unit(0, 0))
    here, there = (Channel(connection) for connection in Pipe())
    with beating(there, model):
        assert here.receive() == {"beat": model.backend.forwards}
    assert model.backend.forwards > 0


@pytest.mark.usefixtures("fast")
def test_what_a_worker_that_hangs_was_at_is_redone_by_another(
    runs: SharedRuns, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    alone = runs.share(None)
    runs.out = tmp_path / "shared"
    hung, lock = [], threading.Lock()

    def before(unit: Unit) -> None:
        with lock:
            hangs = unit.index == 5 and not hung
            hung.extend([unit] * hangs)
        if hangs:
            hang()

    runs.before = before
    shared = runs.share("3", run=RunSettings(out=str(runs.out), progress=False, devices="3", stall_s=30))
    assert rows(shared.folder) == rows(alone.folder)
    said = capsys.readouterr().err
    assert "(cpu) made no forward for 30 s (run.stall_s) and was killed; what it was at is redone: gsm8k-" in said
    assert ENDED not in said
    assert "2 of 3 workers go on" in said


@pytest.mark.usefixtures("fast")
def test_a_joined_worker_is_told_that_it_hangs_if_it_can_hear(runs: SharedRuns, tmp_path: Path) -> None:
    """One that is stopped cannot: it is only let go, and may join again."""
    told: SimpleQueue[Any] = SimpleQueue()
    has_one = {False: threading.Event(), True: threading.Event()}

    def work(channel: Channel, is_stopped: bool) -> None:
        inbox = Inbox(channel, lambda last: told.put((is_stopped, last)))
        assert inbox.receive() is not None  # the run
        channel.send(ready={}, machine="there")
        channel.send(ask=True, wait=True)
        assert "do" in (inbox.receive() or {})
        has_one[is_stopped].set()
        with suppress(EOFError):
            while not inbox.is_over and not is_stopped:
                channel.send(beat=1)
                time.sleep(0.02)

    runs.before = lambda unit: all(event.wait(20) for event in has_one.values())
    config = runs.config("1", run=RunSettings(progress=False, devices="1", stall_s=30))
    plan = make_plan(config, asdict(config))
    with pool.Pool(plan, tmp_path, "run", [Place("cpu")]) as led:
        for is_stopped in has_one:
            here, there = (Channel(connection) for connection in Pipe())
            led.add(led.new_name(f"rank {int(is_stopped)} on there"), here)
            threading.Thread(target=work, args=(there, is_stopped), daemon=True).start()
        assert sorted(row["problem_index"] for row, _ in led.rows(plan.units)) == list(range(12))
    last = dict(told.get(timeout=20) for _ in has_one)
    assert last[False] == {"hangs": "made no forward for 30 s (run.stall_s)"}
    assert "do" in last[True]


def test_a_launched_process_that_is_told_ends_itself(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ended: list[int] = []
    monkeypatch.setattr(os, "_exit", ended.append)
    for last in (None, {"do": [1, 0]}, {"end": "StorageError: full"}):
        joining._end_if_told(last)
    assert not ended
    joining._end_if_told({"hangs": "made no forward for 3600 s (run.stall_s)"})
    assert ended == [1]
    assert capsys.readouterr().err.startswith("error: this worker made no forward for 3600 s (run.stall_s); another")


def test_the_bound_is_refused_where_nothing_reads_it(runs: SharedRuns) -> None:
    with pytest.raises(ConfigError, match=r"run.stall_s=null has no meaning here: it is read with run.devices, and by"):
        runs.share(None, run=RunSettings(out=str(runs.out), stall_s=None))
    with pytest.raises(ConfigError, match=r"run.stall_s=4.0 is not allowed; allowed: a finite number from 5, or null"):
        runs.share("2", run=RunSettings(out=str(runs.out), devices="2", stall_s=4.0))
