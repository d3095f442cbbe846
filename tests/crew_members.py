"""What the children of tests/test_processes.py do."""

from __future__ import annotations

import os
import signal
import sys
import time

from lopa_bench.system.channel import Channel, Inbox
from lopa_bench.system.processes import Crew

FOREVER = 60.0


def echo(channel: Channel) -> None:
    """Answers each message with itself and what it sees of its environment."""
    inbox = Inbox(channel, lambda _: os._exit(0))
    while (message := inbox.receive()) is not None:
        channel.send(**message, pid=os.getpid(), device=os.environ.get("DEVICE"))


def fail(channel: Channel) -> None:
    print("half a word", flush=True)
    raise ValueError("no such weights")


def be_deaf(channel: Channel) -> None:
    """Works on and never looks at its channel."""
    Inbox(channel, lambda _: os._exit(0))
    channel.send(pid=os.getpid())
    os.kill(os.getpid(), signal.SIGINT)  # which a terminal would send to the whole group
    time.sleep(FOREVER)


def hang_up(channel: Channel) -> None:
    channel.close()
    time.sleep(FOREVER)


def parent() -> None:
    """A process with two children, which it tells of."""
    with Crew() as crew:
        children = [crew.start(f"child {number}", "tests.crew_members:be_deaf") for number in range(2)]
        print(*(child.channel.receive()["pid"] for child in children), flush=True)
        time.sleep(FOREVER)


if __name__ == "__main__":
    sys.exit(parent())
