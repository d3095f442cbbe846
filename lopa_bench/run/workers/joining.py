"""Launched processes as workers of one run: the first leads it, the others join; if it dies, another leads.

Whoever gets the run's lock leads: it opens the door, starts a worker of its own on its device, and scores and writes as
every run does. Who finds the lock taken knocks, works, and then looks again: the run is finished, or nobody leads it.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lopa_bench.errors import ConfigError, Locked, WorkerError
from lopa_bench.models.device import device_kind, free_devices
from lopa_bench.plan.plan import Plan
from lopa_bench.records.claim import Claim, claim
from lopa_bench.run.workers.door import Door, knock, place_of
from lopa_bench.run.workers.launched import Rank
from lopa_bench.run.workers.places import VISIBLE, Place, accelerators, count_devices
from lopa_bench.run.workers.pool import Pool
from lopa_bench.run.workers.worker import serve
from lopa_bench.settings.backend import LocalSettings
from lopa_bench.system.channel import Channel, Inbox, Message

PATIENCE_SECONDS = 60.0  # for a run's lock to be free, or its door to be open
PAUSE_SECONDS = 0.2


def place_of_rank(rank: Rank, backend: LocalSettings) -> Place:
    """The devices of a launched process: one for each rank of its decodes, or all that it sees if they are so many.
    Raises ConfigError.
    """
    kind = device_kind(backend.device)
    if ":" in backend.device or kind not in VISIBLE:
        return Place(backend.device if ":" in backend.device else kind)
    there, each = count_devices(kind), backend.ranks
    first = 0 if there == each else rank.local * each
    if first + each > there:
        workers = "processes" if each == 1 else f"workers of {each} ranks"
        raise ConfigError(
            f"{rank} is number {rank.local} on this machine, which has {there} devices of {kind}; allowed: as many "
            f"{workers} as there are devices for"
        )
    return accelerators(kind, range(first, first + each), there, each)[0]


@contextmanager
def led(plan: Plan, claimed: Claim, place: Place, is_spread: bool) -> Iterator[Pool]:
    """The workers of a run that this process leads: its own, and all that join."""
    pool = Pool(plan, claimed.folder, claimed.run_id, [place])

    def welcome(words: Message, channel: Channel) -> None:
        pool.add(pool.new_name(f"{words.get('rank')} on {words.get('host')}"), channel)

    with Door(place_of(claimed.folder.parent, plan.identity.key), welcome, is_spread), pool:
        yield pool


def take_part(plan: Plan, runs: Path, rank: Rank, place: Place) -> tuple[Claim, int]:
    """Works for the run as long as another process leads it; then this one has it, finished or to be led. With the
    number of samples that it decoded.

    Raises WorkerError if the leading process failed, Locked if a process that was not launched is at the run.
    """
    done, until = 0, time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            return claim(runs, plan.identity.key, True, plan.labels), done
        except Locked:
            worked = _work(plan, runs, rank, place)
            if worked is not None:
                done, until = done + worked, time.monotonic() + PATIENCE_SECONDS
            elif time.monotonic() > until:
                raise
            else:
                time.sleep(PAUSE_SECONDS)


def _work(plan: Plan, runs: Path, rank: Rank, place: Place) -> int | None:
    """How many samples this process decoded for the leader; None if nobody opened. Raises WorkerError."""
    channel = knock(place_of(runs, plan.identity.key), rank=str(rank), host=socket.gethostname())
    if channel is None:
        return None
    try:
        inbox = Inbox(channel, _end_if_told)
        begin = inbox.receive()
        if begin is None or begin.get("key") != plan.identity.key:
            return None
        print(f"{rank}: joining {begin['folder']}", file=sys.stderr, flush=True)
        backend = plan.config.backend
        if isinstance(backend, LocalSettings) and backend.ranks == 1:
            backend.device = place.device
        else:
            os.environ |= {name: value for name, value in place.environment.items() if value}  # its ranks see these
        worker = serve(channel, inbox, plan, Path(begin["folder"]), begin["run_id"])
        done, end = worker.done, worker.end
    except EOFError:
        return 0
    finally:
        channel.close()
    del worker
    free_devices()  # if this process leads next, its worker loads the model on the same device
    if end:
        raise WorkerError(f"the process that led the run ended it: {end}")
    return done


def _end_if_told(last: Message | None) -> None:
    """In the thread that reads: a decode that hangs would hold up whoever waits for the end of this process."""
    if last and "hangs" in last:
        print(f"error: this worker {last['hangs']}; another does what it was at", file=sys.stderr, flush=True)
        os._exit(1)
