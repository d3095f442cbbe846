"""The judge's side of one sandbox: starts it, talks to the worker, watches it, and leaves nothing of it behind."""

from __future__ import annotations

import fcntl
import json
import os
import select
import signal
import sys
import sysconfig
import time
from pathlib import Path
from typing import Any

from tasks.sandbox import patience
from tasks.sandbox.ended import Ended
from tasks.sandbox.inside import bootstrap, wire
from tasks.sandbox.processes import kill_descendants
from tasks.sandbox.walls.watch import Watch

BUSY_FACTOR = 4  # how many times the wall clock limit a program may take that waits for its turn
START_S = 60.0  # for the interpreter to come up, on a machine that is very busy
LOOK_EVERY_S = 0.05
EXIT_S = 1.0  # for the launcher to say why the worker is gone
FAREWELL_S = 1.0  # for a worker that answered to the end, to end itself and be accounted for
ROOT = str(Path(__file__).parents[2])
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc/ld.so.cache", "/etc/localtime")
REPLY_LIMIT = wire.LARGE_VALUE + (1 << 20)


class Session:
    """One worker. `limits` holds cpu_s, wall_s, memory_mb, processes, file_mb and output_kb."""

    def __init__(self, folder: str, limits: dict[str, Any], prefixes: list[str], without: list[str]) -> None:
        self.limits = limits
        self.layers: list[str] = []
        self.facts: dict[str, Any] = {}
        self.output_bytes = 0
        self.output_head = b""
        self.stopped: Ended | None = None
        self._incoming = bytearray()
        self._status = bytearray()
        self._next_look = 0.0
        self._watch: Watch | None = None  # while the interpreter starts
        self._start(self._config(folder, prefixes, without))
        self.started = time.monotonic() + START_S
        self.deadline = self.started
        self._send(bootstrap.payload())
        try:
            self._receive(self.deadline)
        except Ended as end:
            self._read_status()
            raise RuntimeError(f"no interpreter: {end.text}; it said {self.output_head[:2000]!r}") from None
        self._read_status()
        self.layers = self.facts["layers"]
        own_folder = "root" in self.layers
        uid = self.facts["uid"] if "uid" in self.layers else None
        self._watch = Watch(limits, None if own_folder else folder + "/scratch", uid)
        if own_folder or self._watch.sees_files:
            self.layers = [*self.layers, "scratch"]
        self.started = time.monotonic()
        self.deadline = self.started + limits["wall_s"]

    def ask(self, kind: bytes, payload: bytes, seconds: float | None = None) -> tuple[bytes, bytes, float]:
        """Sends a request and waits for its reply, at most `seconds` and never past the limit of the session."""
        deadline = self.deadline if seconds is None else min(self.deadline, time.monotonic() + seconds)
        try:
            self._send(wire.pack(kind, payload), deadline)
            reply = self._receive(deadline)
        except Ended as end:
            self.stopped = end
            raise
        patience.allow(self.deadline - time.monotonic())
        return reply

    def look(self) -> None:
        """Raises Ended if the program has passed a limit that is not watched all the time."""
        if self._watch is not None:
            self._watch.look()

    def close(self) -> int:
        """Kills everything; returns how many processes were left after that, which is 0."""
        self.seconds = time.monotonic() - self.started
        os.close(self._out)  # a worker that still listens ends now, and the launcher tells what it used
        self._await_exit(FAREWELL_S if self.stopped is None else 0.3)
        left = kill_descendants(self.pid)
        end = time.monotonic() + 1.0
        while self._drain() and time.monotonic() < end:
            pass
        self._read_status()
        for fd in (self._in, self._output, self._status_fd):
            os.close(fd)
        return left

    @property
    def output_capped(self) -> bool:
        return self.output_bytes > self.limits["output_kb"] * 1024

    def _start(self, config: dict[str, Any]) -> None:
        request_read, self._out = os.pipe()
        self._in, reply_write = os.pipe()
        self._output, output_write = os.pipe()
        self._status_fd, status_write = os.pipe()
        devnull = os.open(os.devnull, os.O_RDONLY)
        child_ends = [devnull, output_write, output_write, request_read, reply_write, status_write]
        # Numbers above those that the child gets, so that no dup2 closes a descriptor that is still needed.
        high = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 10) for fd in child_ends]
        actions = [(os.POSIX_SPAWN_DUP2, fd, number) for number, fd in enumerate(high)]
        code = f"import sys; sys.path.insert(0, {ROOT!r}); from tasks.sandbox.walls.launcher import main; main()"
        arguments = [sys.executable, "-I", "-S", "-B", "-c", code, json.dumps(config)]
        self.pid = os.posix_spawn(sys.executable, arguments, {}, file_actions=actions, setsid=True)
        for fd in {*child_ends, *high}:
            os.close(fd)
        for fd in (self._out, self._in, self._output, self._status_fd):
            os.set_blocking(fd, False)

    def _config(self, folder: str, prefixes: list[str], without: list[str]) -> dict[str, Any]:
        mount_point, scratch = folder + "/root", folder + "/scratch"
        os.mkdir(mount_point)
        os.mkdir(scratch)
        paths = sysconfig.get_paths()
        interpreter = {*prefixes, paths["stdlib"], paths["platstdlib"], sys.executable, *_library_folders()}
        return {
            "mount_point": mount_point,
            "scratch": scratch,
            "number": os.getpid(),
            "readable": [*SYSTEM, *sorted(interpreter), str(Path(sys.executable).resolve().parent)],
            "hidden": [ROOT + "/tasks"],  # where the project is installed beside the interpreter's packages
            "limits": self.limits,
            "without": without,
            "python": sys.executable,
            "bootstrap": bootstrap.SOURCE,
        }

    def _send(self, data: bytes, deadline: float | None = None) -> None:
        view = memoryview(data)
        while view:
            try:
                view = view[os.write(self._out, view) :]
            except BlockingIOError:
                self._wait(self._out, select.POLLOUT, deadline or self.deadline)
            except BrokenPipeError:
                raise self._ended() from None

    def _receive(self, deadline: float) -> tuple[bytes, bytes, float]:
        kind, seconds, length = wire.HEADER.unpack(self._take(wire.HEADER.size, deadline))
        if length > REPLY_LIMIT:
            raise Ended("error", f"a reply of {length} bytes")
        return kind, self._take(length, deadline), seconds

    def _take(self, count: int, deadline: float) -> bytes:
        while len(self._incoming) < count:
            try:
                part = os.read(self._in, 1 << 20)
            except BlockingIOError:
                self._wait(self._in, select.POLLIN, deadline)
                continue
            if not part:
                raise self._ended()
            self._incoming += part
        taken = bytes(self._incoming[:count])
        del self._incoming[:count]
        return taken

    def _wait(self, fd: int, event: int, deadline: float) -> None:
        """Sleeps until `fd` is ready; meanwhile takes the solution's output off its pipe and looks at its memory."""
        poll = select.poll()
        poll.register(fd, event)
        poll.register(self._output, select.POLLIN)
        while True:
            now = time.monotonic()
            if now > deadline and not self._waits_for_the_processor(now):
                raise Ended("timeout", "the wall clock limit")
            ready = dict(poll.poll(1000 * min(LOOK_EVERY_S, max(deadline - now, 0.05))))
            if self._output in ready and not self._drain():
                poll.unregister(self._output)
            if fd in ready:
                return
            if self._watch is not None and now >= self._next_look:
                self._next_look = now + LOOK_EVERY_S
                self._watch.look()

    def _drain(self) -> bool:
        """Reads what the solution printed; True while there may be more."""
        try:
            part = os.read(self._output, 1 << 16)
        except BlockingIOError:
            return bool(select.select([self._output], [], [], 0.05)[0])
        self.output_bytes += len(part)
        self.output_head = (self.output_head + part)[:4096]
        return bool(part)

    def _waits_for_the_processor(self, now: float) -> bool:
        """Whether a program that is out of wall clock time only had too little of a busy machine."""
        if self._watch is None or now > self.started + BUSY_FACTOR * self.limits["wall_s"]:
            return False
        return self._watch.waits_for_the_processor()

    def _ended(self) -> Ended:
        """Why the worker is gone. The report comes from the launcher, which the solution cannot reach."""
        self._await_exit(EXIT_S)
        code, cpu = self.facts.get("exit"), self.facts.get("cpu_s", 0.0)
        if code in (-signal.SIGXCPU, -signal.SIGPROF) or (code == -signal.SIGKILL and cpu >= self.limits["cpu_s"]):
            return Ended("timeout", "the CPU limit")
        if code in (wire.OUT_OF_MEMORY, -signal.SIGKILL):
            return Ended("memory", "killed for memory")
        if code is None:
            return Ended("error", "the channel was closed")
        return Ended("exit", f"the process ended ({'signal' if code < 0 else 'exit status'} {abs(code)})")

    def _await_exit(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while "exit" not in self.facts and time.monotonic() < end:
            select.select([self._status_fd], [], [], 0.05)
            if not self._read_status():
                break

    def _read_status(self) -> bool:
        try:
            part = os.read(self._status_fd, 1 << 16)
        except BlockingIOError:
            return True
        self._status += part
        *lines, rest = self._status.split(b"\n")
        self._status = bytearray(rest)
        for line in lines:
            self.facts.update(json.loads(line))
        return bool(part)


def _library_folders() -> set[str]:
    """Where the shared libraries of this interpreter lie, on systems that keep them in places of their own."""
    lines = Path("/proc/self/maps").read_text("utf-8", "surrogateescape").splitlines()
    files = {line.rpartition(" ")[2] for line in lines if ".so" in line}
    return {os.path.dirname(file) for file in files if file.startswith("/")}
