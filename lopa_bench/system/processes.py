"""Processes that work for this one: each has a name, is watched, and does not outlive it.

    with Crew() as crew:
        child = crew.start("worker 0", "package.module:function", {"CUDA_VISIBLE_DEVICES": "0"})
        child.channel.send(do=1)        # in the child: function(channel)
        child.channel.receive()         # EOFError: it is gone, and child.ended() says how

A child is a fresh interpreter. It ends with this process, however that ends: the kernel kills it (Linux), and a thread
in it sees the end of its channel. What it prints goes to stderr here, line by line, with its name in front. Ctrl-C is
the parent's business: a terminal sends it to the whole group, and children do not take it.
"""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from types import TracebackType
from typing import IO

from lopa_bench import ROOT
from lopa_bench.system.channel import Channel
from lopa_bench.system.out_of_memory import oom_kills
from lopa_bench.system.signals import die_with_parent
from lopa_bench.system.streams import secure

# This installation's modules, whatever lies in the launch folder.
START = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
from lopa_bench.system.processes import main
sys.exit(main())
"""
GRACE_SECONDS = 2.0  # for a process whose channel is closed to be gone, so that its end can be told
LAST_LINES = 20  # of what it printed, that are kept


class Child:
    """A process of a crew. `channel` is this side's end of its channel."""

    def __init__(self, name: str, process: subprocess.Popen[bytes], channel: Channel) -> None:
        self.name, self.process, self.channel = name, process, channel
        self.last_lines: deque[str] = deque(maxlen=LAST_LINES)
        self._kills = oom_kills()
        assert process.stdout is not None
        self._tee = threading.Thread(target=self._pass_on, args=(process.stdout,), daemon=True)
        self._tee.start()

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def is_alive(self) -> bool:
        return self.process.poll() is None

    def kill(self) -> None:
        with suppress(OSError):
            self.process.kill()
        self.process.wait()

    def ended(self) -> str:
        """How it ended, in words that follow its name. One that closed its channel and lives on is killed."""
        try:
            code = self.process.wait(GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            return "closed its channel"
        self._tee.join(GRACE_SECONDS)
        if code == -signal.SIGKILL and oom_kills() > self._kills:
            return "was killed by the kernel for memory"
        if code < 0:
            return f"was killed by {_signal(-code)}"
        last = next((line for line in reversed(self.last_lines) if line.strip()), "")
        return f"ended with status {code}" + (f" ({last.strip()})" if last else "")

    def _pass_on(self, source: IO[bytes]) -> None:
        """It is read to its end whether or not it can be written: a full pipe would hold the child up for ever."""
        for line in source:
            text = line.decode(errors="replace").rstrip("\n")
            self.last_lines.append(text)
            with suppress(OSError, ValueError):
                print(f"[{self.name}] {text}", file=sys.stderr, flush=True)


class Crew:
    """The children of this process. A context manager: leaving it kills those that are left."""

    def __init__(self) -> None:
        self.children: list[Child] = []

    def start(self, name: str, target: str, changes: Mapping[str, str | None] | None = None) -> Child:
        """A process that calls `target` ("module:function") with its channel. `changes`: of its environment; a variable
        of None is taken away. To be called in a thread that lives on: to the kernel it is the parent.
        """
        here, there = Pipe()
        process = subprocess.Popen(
            [sys.executable, "-c", START, target, str(there.fileno())], env=environment(changes),
            pass_fds=[there.fileno()], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        there.close()
        child = Child(name, process, Channel(here))
        self.children.append(child)
        return child

    def close(self) -> None:
        """They hold nothing that is not here as well, so they are not asked."""
        for child in self.children:
            child.kill()
            child.channel.close()

    def __enter__(self) -> Crew:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def main() -> int:
    """The child's side. Returns its exit status."""
    secure()
    die_with_parent(signal.SIGKILL)
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    target, descriptor = sys.argv[1:]
    del sys.argv[1:]
    module, _, name = target.partition(":")
    function: Callable[[Channel], object] = getattr(importlib.import_module(module), name)
    del sys.path[0]
    os.set_inheritable(int(descriptor), False)
    function(Channel(Connection(int(descriptor))))
    return 0


def environment(changes: Mapping[str, str | None] | None = None) -> dict[str, str]:
    """That of a process that is started here: without Hydra's own variables, which are of this one's run. What it
    prints holds every character, whatever the terminal can show.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HYDRA_")}
    kept |= {"PYTHONIOENCODING": "utf-8"}
    for name, value in (changes or {}).items():
        if value is None:
            kept.pop(name, None)
        else:
            kept[name] = value
    return kept


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
