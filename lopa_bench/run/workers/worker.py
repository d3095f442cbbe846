"""A worker: it loads the model once and decodes what it is handed, one unit after another or a batch at a time.

It asks for each unit (`ask`), is answered with one (`do`) or that there is none now (`rest`), and sends rows back. A
thread of it says every second that it lives, and how many forwards it has begun (`beat`). It keeps nothing: whatever
ends it, what it had under way is handed to another.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from lopa_bench.errors import ConfigError
from lopa_bench.plan.configured import configured
from lopa_bench.plan.identity import check_unchanged
from lopa_bench.plan.plan import Plan, make_plan
from lopa_bench.plan.units import Unit
from lopa_bench.records.runs import flat
from lopa_bench.records.schema import to_json
from lopa_bench.run.workers import member
from lopa_bench.settings.config import config_of
from lopa_bench.system.channel import Channel, Inbox, Message

if TYPE_CHECKING:
    from lopa_bench.engines.base import Engine, Sample
    from lopa_bench.run.rows import Rows


def child(channel: Channel) -> None:
    """A worker that the run started: it is told the run's settings first, and ends with the run."""
    inbox = Inbox(channel, lambda _: os._exit(0))
    begin = inbox.receive()
    if begin is None:
        return
    with refusals_told(channel):
        with contextlib.redirect_stderr(io.StringIO()):  # its notes were said by the run
            plan = plan_of(begin)
        serve(channel, inbox, plan, Path(begin["folder"]), begin["run_id"])


@contextlib.contextmanager
def refusals_told(channel: Channel) -> Iterator[None]:
    """What a user can mend is told to the run instead of raised; nobody minds that the run is gone."""
    try:
        yield
    except EOFError:
        return
    except Exception as error:
        from lopa_bench.console.explain import explain

        if (text := explain(error, ())) is None:
            raise
        channel.send(refused=text.removeprefix("error: "), error=type(error).__name__)


def plan_of(begin: Message) -> Plan:
    """The run that its starter means, made anew from its settings. Raises ConfigError if it comes to another."""
    plan = make_plan(*configured(config_of(begin["resolved"]), begin["resolved"]))
    if plan.identity.key != begin["key"]:
        facts, meant = flat(facts_of(plan)), flat(begin["facts"])
        names = ", ".join(name for name in {**meant, **facts} if meant.get(name) != facts.get(name)) or "something"
        raise ConfigError(
            f"this worker has another run before it, since {names} changed while it started; allowed: the same command "
            "once nothing changes"
        )
    return replace(plan, memory=begin["memory"])


def facts_of(plan: Plan) -> dict[str, Any]:
    """What a run's key is made of, as another process reads it."""
    facts: dict[str, Any] = json.loads(json.dumps(plan.identity.facts, default=str))
    return facts


def serve(channel: Channel, inbox: Inbox, plan: Plan, folder: Path, run_id: str) -> Worker:
    """Loads the model and works until there is nothing left, or the other side is gone."""
    from lopa_bench.engines.opening import open_engine
    from lopa_bench.run.rows import Rows

    with open_engine(plan, folder) as engine:
        check_unchanged(plan.config, plan.identity)
        maker = Rows(run_id, plan, engine)
        worker = Worker(channel, inbox, engine, maker)
        with contextlib.suppress(EOFError), beating(channel, engine):
            channel.send(ready=json.loads(to_json(maker.run("running", ""))), machine=maker.machine)
            worker.work(plan.config.run.warmup)
    return worker


@contextlib.contextmanager
def beating(channel: Channel, engine: Engine) -> Iterator[None]:
    """The run hears that this process lives, and how many forwards it has begun, whatever the block is at."""
    is_over = threading.Event()

    def tell() -> None:
        with contextlib.suppress(EOFError):
            while not is_over.wait(member.BEAT_SECONDS):
                channel.send(beat=engine.forwards)

    thread = threading.Thread(target=tell, daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join(member.BEAT_SECONDS)  # it holds the engine, whose device may be wanted next


class Worker:
    """An engine at work for a channel. `done` counts its samples; `end`: why the run ended, if it was told."""

    def __init__(self, channel: Channel, inbox: Inbox, engine: Engine, maker: Rows) -> None:
        self._channel, self._inbox, self._engine, self._maker = channel, inbox, engine, maker
        self.done = 0
        self.end: str | None = None

    def work(self, warmup: int) -> None:
        """Until there is nothing left. Raises EOFError if that was not said."""
        while (unit := self._next(wait=True)) is not None:
            for _ in range(warmup):
                self._engine.warm_up(unit)
            warmup = 0
            for sample in self._engine.timed(Handed(unit, lambda: self._next(wait=False))):
                self._send(sample)

    def _next(self, wait: bool) -> Unit | None:
        """The next unit that is to be decoded; None if there is none, without `wait` none at the moment."""
        while self.end is None:
            if (message := self._inbox.receive(wait=False)) and "end" in message:
                self.end = message["end"]
                return None
            self._channel.send(ask=True, wait=wait)
            message = self._inbox.receive()
            if message is None:
                raise EOFError("the run is gone")
            if "do" not in message:
                self.end = message.get("end")
                return None
            unit = Unit(*message["do"])
            given_up = message.get("given_up")
            sample = self._engine.failed(unit, "error", given_up) if given_up else self._engine.too_long(unit)
            if sample is None:
                return unit
            self._send(sample)
        return None

    def _send(self, sample: Sample) -> None:
        self._channel.send(row=self._maker.sample(sample), steps=self._maker.steps(sample))
        self.done += 1


class Handed(Sequence[Unit]):
    """Units that come one by one while they are worked on: reading on asks for the next."""

    def __init__(self, first: Unit, ask: Callable[[], Unit | None]) -> None:
        self._units, self._ask = [first], ask

    def __iter__(self) -> Iterator[Unit]:
        yield self._units[0]
        while (unit := self._ask()) is not None:
            self._units.append(unit)
            yield unit

    def __len__(self) -> int:
        return len(self._units)

    @overload
    def __getitem__(self, at: int) -> Unit: ...
    @overload
    def __getitem__(self, at: slice) -> list[Unit]: ...
    def __getitem__(self, at: int | slice) -> Unit | list[Unit]:
        return self._units[at]
