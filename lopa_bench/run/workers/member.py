"""A worker as the run sees it: what it has under way, and whether it still lives and gets on.

Its time does not tell a slow decode from one that hangs. What counts is life: a beat a second from a thread of the
worker (worker.py), and in it how many forwards it has begun. A process that is stopped sends none; one whose decode
waits for ever sends the same number again and again.
"""

from __future__ import annotations

from typing import Any

from lopa_bench.plan.units import Unit
from lopa_bench.system.channel import Channel, Message
from lopa_bench.system.processes import Child

BEAT_SECONDS = 1.0
LOOK_SECONDS = 0.5  # between two looks at all workers
LOADING_SECONDS = 3600.0  # at least, before a worker that is not ready is given up
SILENT_SECONDS = 60.0  # of a loaded worker: longer than any call holds the interpreter, or a network is away
MUTE_SECONDS = 5.0  # without a beat, after which a decode that stands still is put down to its process


class Member:
    """A worker. `out`: what it has under way; `child`: its process, if this one started it."""

    def __init__(self, name: str, channel: Channel, child: Child | None = None) -> None:
        self.name, self.channel, self.child = name, channel, child
        self.out: set[Unit] = set()
        self.done = 0
        self.waits = False  # for the next unit, however long
        self.row: dict[str, Any] | None = None  # of the run, as it sees itself, once its model is loaded
        self.machine = ""
        self.refusal: tuple[str, str] | None = None  # why it cannot work at all: type and text of an error
        self.hangs: str | None = None  # how, if it was given up
        self._silent = self._still = 0.0  # seconds without a word, and without a forward that it should make
        self._forwards = 0

    def ended(self) -> str:
        """How it ended, in words that follow its name. If it was given up, a process of this one is killed."""
        if self.refusal:
            return f"cannot work: {self.refusal[1]}"
        if self.hangs is None:
            return self.child.ended() if self.child else "is gone"
        if self.child is None:
            return self.hangs
        self.child.kill()
        return f"{self.hangs} and was killed"

    @property
    def is_silent(self) -> bool:
        return self._silent > MUTE_SECONDS

    def heard(self, message: Message) -> None:
        """Every word is a sign of life, and one of progress unless it is a beat of no more forwards than before."""
        self._silent = 0.0
        if message.get("beat") != self._forwards:
            self._still = 0.0
        self._forwards = message.get("beat", self._forwards)

    def looked_at(self, stall_s: float | None) -> str | None:
        """To be called every LOOK_SECONDS: how it hangs, or None.

        Time is counted in looks, so that nobody is blamed for an hour in which this process was stopped itself. While a
        worker loads it may be silent (what opens a library or a device may hold the interpreter for minutes) and nobody
        waits for it, so it has an hour, or `stall_s` if that is longer; one that has nothing to do makes no forward.
        """
        is_loaded = self.row is not None
        self._silent += LOOK_SECONDS
        self._still = 0.0 if is_loaded and not self.out else self._still + LOOK_SECONDS
        if is_loaded and self._silent > SILENT_SECONDS:
            return f"gave no sign of life for {SILENT_SECONDS:g} s"
        most = stall_s if is_loaded or stall_s is None else max(stall_s, LOADING_SECONDS)
        if most is None or self._still <= most:
            return None
        if not is_loaded:
            return f"was not ready after {most:g} s"
        does = "gave no sign of life" if self.is_silent else "made no forward"
        return f"{does} for {stall_s:g} s (run.stall_s)"
