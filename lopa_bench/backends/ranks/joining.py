"""How the processes of one decode find each other, find that they are alike, and find out who is gone.

A store of torch.distributed holds a few words of each rank under keys: that it joined and with which settings, that it
is alive (a beat a second), what made it fail. Rank 0 leads: it has the run, tells the others what to decode next, and
names the rank that ended a decode. Keys of one decode stand behind a prefix of their own.
"""

from __future__ import annotations

import json
import os
import platform
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any, Protocol

import torch.distributed as dist

from lopa_bench.backends.ranks.facts import differences
from lopa_bench.backends.ranks.place import Place
from lopa_bench.backends.ranks.store import PatientStore
from lopa_bench.errors import BackendError

BEAT_S = 1.0
FIRST_PAUSE_S, LAST_PAUSE_S = 0.0002, 0.01  # between looks at the store, which would log waits that end in vain
NAMING_S = 4.0  # to find out which rank it was that broke a collective
GONE_WITH_STORE = "is gone or stands still, and with it the store that keeps the ranks together"
LOST = 75  # exit status of a rank that ends because another one did
GOES_ON = "what was decoded is kept, and the same command goes on, also with another backend.branch_ranks"


class RankError(BackendError):
    """A rank of this decode is gone, stands still or is unlike the others; the message names it."""


class LostContact(RankError):
    """To a rank that does not lead: another one ended the decode, and rank 0 says so."""


class Dismissed(RankError):
    """Rank 0 has nothing to decode."""


class Watched(Protocol):
    """A process that was started here."""

    @property
    def pid(self) -> int: ...

    @property
    def is_alive(self) -> bool: ...

    def ended(self) -> str: ...


class Ranks:
    """The ranks of one decode as one of them sees them. `children`: by rank, those that this process started."""

    def __init__(self, place: Place, host: str, port: int, timeout_s: float, prefix: str = "", owner: bool = False):
        """Connects to the store at host:port, or opens it there (`owner`; port 0: a free one). Raises RankError."""
        self.place, self.timeout_s = place, timeout_s
        self.children: dict[int, Watched] = {}
        self.entered = 0, 0  # collectives of all branches, and of the tensor ranks since: who stands still is behind
        self._names = {rank: f"rank {rank} of {place.size}" for rank in range(place.size)}
        self._seen: dict[int, tuple[bytes, float]] = {}
        self._turns = self._works = 0
        self._is_over = threading.Event()
        self._beat_s = min(BEAT_S, timeout_s / 4)
        limit = timedelta(seconds=timeout_s)
        try:
            store = dist.TCPStore(host, port, None, owner, limit, wait_for_workers=False)
        except RuntimeError as error:
            does = "cannot listen" if owner else "cannot reach rank 0"
            said = str(error).splitlines()[0]
            raise RankError(f"{self._names[place.rank]} {does} at {host}:{port}: {said}") from None
        self.port = store.port
        self.store = PatientStore(dist.PrefixStore(f"lopa_bench/{prefix}", store), timeout_s)

    def started(self, rank: int, child: Watched) -> None:
        """This process started that rank."""
        self.children[rank] = child
        self._names[rank] += f" (process {child.pid})"

    def join(self, facts: Mapping[str, Any]) -> None:
        """Meets the other ranks; all must be there in `timeout_s` and bring the same facts. Raises RankError."""
        written = json.dumps({"host": platform.node(), "pid": os.getpid(), "facts": facts}, default=str)
        mine = json.loads(written)
        self._set(f"beat/{self.place.rank}", "0 0 0")
        self._set(f"joined/{self.place.rank}", written)
        threading.Thread(target=self._beat, daemon=True).start()
        for rank in range(self.place.size) if self.place.leads else (0,):
            found = json.loads(self._wait(f"joined/{rank}", rank, within=self.timeout_s))
            if not found:
                raise Dismissed("there is nothing to decode")
            self._names[rank] = f"rank {rank} of {self.place.size} (process {found['pid']} on {found['host']})"
            first, other = (mine, found) if self.place.leads else (found, mine)
            if told := differences(first["facts"], other["facts"]):
                if not self.place.leads:
                    raise LostContact(f"{self._names[self.place.rank]} is unlike rank 0: {told}")
                self._say("lost")
                raise RankError(f"{self._names[rank]} is unlike rank 0: {told}; allowed: the same on all ranks")
        if self.place.leads:
            self._set("all", "joined")
        self._wait("all", 0)

    def dismiss(self) -> None:
        """Rank 0, instead of joining: there is nothing to decode."""
        self._set("joined/0", "{}")
        with suppress(RankError):
            for rank in range(1, self.place.size):
                self._wait(f"joined/{rank}", rank, within=self.timeout_s)
            time.sleep(BEAT_S)  # the store may be here, and they have yet to read it

    def work(self, units: Sequence[Any] | None) -> None:
        """Rank 0: what all decode next; None for the end."""
        self._works += 1
        with suppress(RuntimeError):  # who is gone need not be told; a decode will tell it
            self.store.set(f"work/{self._works}", json.dumps(units))

    def next_work(self) -> list[Any] | None:
        """The others: what rank 0 says next."""
        self._works += 1
        units: list[Any] | None = json.loads(self._wait(f"work/{self._works}", 0))
        return units

    def turn(self) -> None:
        """Waits until all ranks are about to make a forward, as long as they live: one may still load its weights, or
        score samples.
        """
        self._turns += 1
        here, go = f"here/{self._turns}", f"go/{self._turns}"
        if not self.place.leads:
            self._set(f"{here}/{self.place.rank}", "")
            self._wait(go, 0)
            return
        for rank in range(1, self.place.size):
            # Behind the first turn there is nothing left that could take a rank long.
            self._wait(f"{here}/{rank}", rank, within=self.timeout_s if self._turns > 1 else None)
        self._set(go, "")

    def together(self, collective: Callable[[], object], of_all: bool) -> None:
        """Enters a collective: one of all branches, or one inside a branch. Raises RankError if it fails."""
        meetings, sums = self.entered
        self.entered = (meetings + 1, 0) if of_all else (meetings, sums + 1)
        try:
            collective()
        except RuntimeError as error:
            raise self.explain(error) from None

    def explain(self, error: RuntimeError) -> RankError:
        """The error to raise for a collective that failed. Takes a few seconds to find out whose fault it was."""
        self.store.limit_s = min(NAMING_S, self.timeout_s)
        self._say("lost")
        end = time.monotonic() + NAMING_S
        others = [rank for rank in range(self.place.size) if rank != self.place.rank]
        try:
            before = {rank: self._beat_of(rank) for rank in others}
            while time.monotonic() < end:
                for rank in others:
                    if reason := self._why_gone(rank):
                        return self._gone(rank, reason)
                time.sleep(0.1)
            now = {rank: self._beat_of(rank) for rank in others}
            silent = [rank for rank in others if before[rank] == now[rank]]
            left = [rank for rank in silent if self._has_left(rank)]
        except RuntimeError:
            return self._gone(0, GONE_WITH_STORE)
        if left != silent:
            return self._gone(next(rank for rank in silent if rank not in left), "gives no sign of life")
        if left == others:
            return self._gone(self.place.rank, self._not_heard)
        last = min(others, key=lambda rank: _entered(now[rank]))
        if _entered(now[last]) < self.entered:
            return self._gone(last, f"stands still: it lives, but no answer came in {self.timeout_s:g} s")
        reason = re.sub(r"^\[[^]]*\] ", "", (str(error).splitlines() or [""])[0]).partition(". ")[0]
        return RankError(f"the ranks lost each other: {reason}; {GOES_ON}")

    def fail(self, error: BaseException) -> None:
        """Leaves word of what ends this rank; that another one did is no fault of its own."""
        if isinstance(error, RankError):
            self._say("lost")
        else:
            text = str(error) if isinstance(error, BackendError) else f"{type(error).__name__}: {error}"
            self._say(f"failed: {text.splitlines()[0] if text else type(error).__name__}")

    def close(self) -> None:
        """Rank 0: tells the others that nothing more is to come, and gives them a moment to go."""
        if self._is_over.is_set():
            return
        if self.place.leads:
            self._say("lost")
            self.work(None)
            end = time.monotonic() + 2
            while time.monotonic() < end and any(child.is_alive for child in self.children.values()):
                time.sleep(0.01)
        self._is_over.set()

    def _gone(self, rank: int, reason: str) -> RankError:
        kind = RankError if self.place.leads or rank == 0 else LostContact
        return kind(f"{self._names[rank]} {reason}; {GOES_ON}")

    def _wait(self, key: str, by: int, within: float | None = None) -> bytes:
        """The value of a key that rank `by` will set, as long as all live and in `within` seconds. Raises RankError."""
        began = judged = time.monotonic()
        pause = FIRST_PAUSE_S
        try:
            while not self.store.check(key):
                time.sleep(pause)
                pause = min(2 * pause, LAST_PAUSE_S)
                if time.monotonic() - judged < self._beat_s:
                    continue
                judged = time.monotonic()
                for rank in range(self.place.size) if self.place.leads else (0,):
                    self._check_alive(rank)
                if self.place.leads and all(map(self._has_left, range(1, self.place.size))):
                    raise self._gone(0, self._not_heard)
                if within is not None and judged - began > within:
                    does = "stands still: no answer came" if self._turns else "did not join"
                    raise self._gone(by, f"{does} in {within:g} s (backend.rank_timeout_s)")
            return self.store.get(key)
        except RankError:
            raise
        except RuntimeError:
            raise self._gone(0, GONE_WITH_STORE) from None

    def _check_alive(self, rank: int) -> None:
        """Raises RankError for a rank that ended, or whose beat has stopped for as long as ranks are waited for."""
        if rank == self.place.rank:
            return
        if reason := self._why_gone(rank):
            raise self._gone(rank, reason)
        beat, now = self._beat_of(rank), time.monotonic()
        if not beat or self._seen.get(rank, (b"", 0.0))[0] != beat:
            self._seen[rank] = beat, now
        elif now - self._seen[rank][1] > self.timeout_s:
            raise self._gone(rank, f"has given no sign of life for {self.timeout_s:g} s")

    def _why_gone(self, rank: int) -> str | None:
        """What a rank said when it failed, or how its process ended; None if nothing is known against it."""
        word = self._word_of(rank)
        if word is not None and word.startswith("failed: "):
            return word
        child = self.children.get(rank)
        if child is not None and not child.is_alive and not self._has_left(rank):
            return child.ended()
        if word is not None and rank == 0:
            return "ended the decode"
        return None

    def _has_left(self, rank: int) -> bool:
        """Whether it went because of another one; it could say so if the store answered it."""
        child = self.children.get(rank)
        is_lost = child is not None and not child.is_alive and child.ended().startswith(f"ended with status {LOST}")
        return is_lost or self._word_of(rank) == "lost"

    @property
    def _not_heard(self) -> str:
        return f"was not heard of for {self.timeout_s:g} s (it was stopped, or cut off), and the others left"

    def _say(self, word: str) -> None:
        with suppress(RuntimeError):
            self.store.set(f"word/{self.place.rank}", word)

    def _set(self, key: str, value: str) -> None:
        try:
            self.store.set(key, value)
        except RuntimeError:
            raise self._gone(0, GONE_WITH_STORE) from None

    def _word_of(self, rank: int) -> str | None:
        return self.store.get(f"word/{rank}").decode() if self.store.check(f"word/{rank}") else None

    def _beat_of(self, rank: int) -> bytes:
        return self.store.get(f"beat/{rank}") if self.store.check(f"beat/{rank}") else b""

    def _beat(self) -> None:
        """The pulse of this rank, until its process ends or rank 0 is gone."""
        number = 0
        with suppress(RuntimeError):
            while not self._is_over.wait(self._beat_s):
                number += 1
                meetings, sums = self.entered
                self.store.set(f"beat/{self.place.rank}", f"{number} {meetings} {sums}")


def _entered(beat: bytes) -> tuple[int, int]:
    meetings, sums = map(int, beat.split()[1:] or (0, 0))
    return meetings, sums
