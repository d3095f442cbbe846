"""All workers of a run, seen from the process that leads it: it hands out units, takes rows and survives workers.

A unit is with one worker at a time. What a worker had when it ended is handed to another, first of all; a unit at which
several ended is given up as a failed sample, so that one problem does not take all workers along. A worker that hangs
(member.py) is ended.
"""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from types import TracebackType
from typing import Any

from lopa_bench import errors
from lopa_bench.errors import WorkerError
from lopa_bench.plan.plan import Plan
from lopa_bench.plan.units import Unit
from lopa_bench.run.decoding import Decoding, Rows
from lopa_bench.run.workers.member import LOOK_SECONDS, Member
from lopa_bench.run.workers.places import Place
from lopa_bench.run.workers.worker import facts_of
from lopa_bench.system.channel import Channel, Message
from lopa_bench.system.clock import now
from lopa_bench.system.processes import Child, Crew

TARGET = "lopa_bench.run.workers.worker:child"
MOST_DEATHS = 3  # of workers at one unit
SHOWN = 8  # workers whose samples are told one by one


class Pool(Decoding):
    """A context manager: entering it waits for the first worker, leaving it ends all of them.

    Raises WorkerError, or what they say is wrong, when no worker is left.
    """

    def __init__(self, plan: Plan, folder: Path, run_id: str, places: Sequence[Place], target: str = TARGET) -> None:
        self._plan, self._folder, self._run_id = plan, folder, run_id
        self._places, self._target = places, target
        self._crew = Crew()
        self._lock = threading.RLock()
        self._ready = threading.Event()  # a worker is, or none will ever be
        self._finished: SimpleQueue[tuple[dict[str, Any], list[dict[str, Any]]] | None] = SimpleQueue()
        self._todo: deque[Unit] = deque()
        self._deaths: dict[Unit, list[str]] = {}
        self._members: list[Member] = []
        self._lost: list[tuple[Member, str]] = []
        self._row: dict[str, Any] | None = None
        self._count = 0
        self._is_closing = False
        self._is_over = threading.Event()

    def __enter__(self) -> Pool:
        threading.Thread(target=self._watch, daemon=True).start()
        try:
            with self._lock:  # none is lost before all are there: the first to end would look like the last one left
                for place in self._places:
                    child = self._crew.start(self.new_name(place.device), self._target, place.environment)
                    self.add(child.name, child.channel, child, place.memory)
            self._ready.wait()
            if self._row is None:
                raise self._nobody_left()
        except OSError as error:  # no more processes, no memory for one
            self.close()
            raise WorkerError(
                f"worker {self._count - 1} of {len(self._places)} cannot be started ({error}); allowed: fewer in "
                "run.devices"
            ) from error
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close("" if error is None else f"{type(error).__name__}: {error}", isinstance(error, KeyboardInterrupt))

    def close(self, end: str = "", is_stopped: bool = False) -> None:
        """Ends all workers. Those of other processes are told why, unless this one is only stopped: they go on."""
        with self._lock:
            self._is_closing = True
            members = list(self._members)
        self._is_over.set()
        for member in members:
            if member.child is None:
                try:
                    if not is_stopped:
                        member.channel.send(end=end)
                except EOFError:
                    pass
                member.channel.close()
        self._crew.close()

    def new_name(self, place: str) -> str:
        with self._lock:
            self._count += 1
            return f"worker {self._count - 1} ({place})"

    def add(self, name: str, channel: Channel, child: Child | None = None, memory: int | None = None) -> None:
        """A worker that is there; it may have its model loaded or not."""
        member = Member(name, channel, child)
        with self._lock:
            if self._is_closing:
                channel.close()
                return
            self._members.append(member)
        begin: Message = {
            "folder": str(self._folder),
            "run_id": self._run_id,
            "key": self._plan.identity.key,
            "memory": memory,
        }
        if child:
            begin |= {"resolved": self._plan.resolved, "facts": facts_of(self._plan)}
        threading.Thread(target=self._listen, args=(member, begin), daemon=True).start()

    @property
    def workers(self) -> int:  # type: ignore[override]  # an attribute of others
        return len(self._members)

    @property
    def machine(self) -> str:  # type: ignore[override]
        return next((member.machine for member in self._members if member.machine), "")

    @property
    def all_ready(self) -> bool:
        """Whether every worker has its model loaded."""
        return all(member.row is not None for member in list(self._members))

    def run_row(self, status: str, started: str) -> dict[str, Any]:
        assert self._row is not None
        finished = None if status == "running" else now()
        return self._row | {"status": status, "created": started, "finished": finished, "argv": sys.argv[1:]}

    def beside(self) -> str:
        with self._lock:
            members = list(self._members)
        each = " + ".join(str(member.done) for member in members)
        return f"{len(members)} workers" + (f" ({each})" if len(members) <= SHOWN else "")

    def rows(self, units: Sequence[Unit]) -> Rows:
        with self._lock:
            self._todo.extend(units)
            self._serve()
            if not self._members:
                self._finished.put(None)
        for _ in units:
            item = self._finished.get()
            if item is None:
                raise self._nobody_left()
            yield item

    # --- one thread a worker

    def _listen(self, member: Member, begin: Message) -> None:
        try:
            member.channel.send(**begin)
            while True:
                message = member.channel.receive()
                member.heard(message)
                self._take(member, message)
        except EOFError:
            self._lose(member)

    def _take(self, member: Member, message: Message) -> None:
        if "row" in message:
            self._take_row(member, message["row"], message["steps"])
        elif "ask" in message:
            with self._lock:
                member.waits = bool(message["wait"])
                if not self._hand(member) and not member.waits:
                    member.channel.send(rest=True)
        elif "ready" in message:
            with self._lock:
                member.row, member.machine = message["ready"], message["machine"]
                self._row = self._row or member.row
            self._ready.set()
        elif "refused" in message:
            member.refusal = message["error"], message["refused"]

    def _take_row(self, member: Member, row: dict[str, Any], steps: list[dict[str, Any]]) -> None:
        unit = Unit(row["problem_index"], row["sample_index"])
        with self._lock:
            if unit not in member.out:
                return
            member.out.remove(unit)
            member.done += 1
            row["workers"] = len(self._members)
        self._finished.put((row, steps))

    def _hand(self, member: Member) -> bool:
        """Gives a worker the next unit, if there is one. To be called with the lock."""
        if not self._todo:
            return False
        unit = self._todo.popleft()
        member.out.add(unit)
        member.waits = False
        deaths = self._deaths.get(unit, [])
        given_up = f"given up: {'; '.join(deaths)}" if len(deaths) >= MOST_DEATHS else None
        member.channel.send(do=[unit.index, unit.sample_index], given_up=given_up)
        return True

    def _serve(self) -> None:
        """Gives units to those that wait for one. To be called with the lock."""
        for member in self._members:
            if member.waits and self._todo:
                try:
                    self._hand(member)
                except EOFError:  # its own thread will notice, and take back what it was given
                    continue

    def _watch(self) -> None:
        """Closes the channel of a worker that hangs: its own thread loses it then, as one that ended. Another process
        that still hears is told, and ends itself.
        """
        while not self._is_over.wait(LOOK_SECONDS):
            for member in list(self._members):
                if member.hangs or not (hangs := member.looked_at(self._plan.config.run.stall_s)):
                    continue
                member.hangs = hangs
                with suppress(EOFError):
                    if member.child is None and not member.is_silent:
                        member.channel.send(hangs=hangs)
                member.channel.close()

    def _lose(self, member: Member) -> None:
        how = "" if self._is_closing else member.ended()
        member.channel.close()
        with self._lock:
            if self._is_closing:
                return
            self._members.remove(member)
            self._lost.append((member, how))
            for unit in sorted(member.out, key=lambda unit: (unit.index, unit.sample_index), reverse=True):
                self._deaths.setdefault(unit, []).append(f"{member.name} {how}")
                self._todo.appendleft(unit)
            self._say(member, how)
            self._serve()
            if not self._members:
                self._ready.set()
                self._finished.put(None)

    def _say(self, member: Member, how: str) -> None:
        names = ", ".join(dict.fromkeys(self._plan.problem(unit).id for unit in member.out))
        redone = f"; what it was at is redone: {names}" if names else ""
        left = f"{len(self._members)} of {self._count} workers go on" if self._members else "no worker is left"
        print(f"warning: {member.name} {how}{redone}; {left}", file=sys.stderr, flush=True)

    def _nobody_left(self) -> Exception:
        """What ended the run. If no worker could begin, it is what the first says is wrong."""
        refusals = [member.refusal for member, _ in self._lost]
        if refusals and self._row is None and (first := refusals[0]) is not None:
            kind: Callable[[str], Exception] = getattr(errors, first[0], WorkerError)
            each = f" (each of {len(refusals)} workers)" if len(refusals) > 1 else ""
            return kind(first[1] + each)
        told = "; ".join(f"{member.name} {how}" for member, how in self._lost)
        return WorkerError(f"no worker is left: {told}; the same command goes on from the rows that are kept")
