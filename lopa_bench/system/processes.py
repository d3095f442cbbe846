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
from lopa_bench.system.signals import die_with_parent, signal_name
from lopa_bench.system.streams import secure

# This installation's modules, whatever lies in the launch folder.
START = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
from lopa_bench.system.processes import main
sys.exit(main())
"""
GRACE_SECONDS = 2.0  # for a process whose channel is closed to be gone, so that its end can be told
KILL_SECONDS = 10.0  # for a process that was killed to be gone
LAST_LINES = 20  # of what it printed, that are kept


class Child:
    """A process of a crew. `channel` is this side's end of its channel."""

    def __init__(self, name: str, process: subprocess.Popen[bytes], channel: Channel) -> None:
        self.name, self.process, self.channel = name, process, channel
        self._last_lines: deque[bytes] = deque(maxlen=LAST_LINES)
        self._kills = oom_kills()
        assert process.stdout is not None
        self._tee = pass_on(process.stdout, name, self._last_lines.append)

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def is_alive(self) -> bool:
        return self.process.poll() is None

    def kill(self) -> None:
        """Waits a while for its end: the kernel cannot end one that is inside a call to a device that never answers."""
        with suppress(OSError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait(KILL_SECONDS)

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
            return f"was killed by {signal_name(-code)}"
        last = next((line for line in reversed(self._last_lines) if line.strip()), b"").decode(errors="replace")
        return f"ended with status {code}" + (f" ({last.strip()})" if last else "")


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


def pass_on(source: IO[bytes], name: str, keep: Callable[[bytes], object]) -> threading.Thread:
    """A thread that gives what a process prints to `keep` and, with its name in front, to stderr here, line by line.

    All of it is read whether or not it can be written: a full pipe would hold the process up for ever.
    """

    def read() -> None:
        for line in source:
            with suppress(OSError, ValueError):  # a full disk; a closed log
                keep(line)
            with suppress(OSError, ValueError):
                text = line.decode(errors="replace").rstrip("\n")
                print(f"[{name}] {text}", file=sys.stderr, flush=True)

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    return thread


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
