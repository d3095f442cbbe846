"""Comparing two LaTeX answers with math-verify in worker processes: bounded, and usable from any thread."""

from __future__ import annotations

import json
import os
import queue
import select
import subprocess
import sys
import weakref
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tasks.math.forms import LONGEST, by_form, plain
from tasks.types import TaskError

SECONDS = 10
MEMORY_BYTES = 2 * 1024**3
START_SECONDS = 60  # sympy on a busy machine
ROOT = Path(__file__).parents[2]  # the worker is started there: where the run was started, `tasks` may be the user's
INSTALL = "pip install 'math-verify[antlr4_9_3]'"


@dataclass(frozen=True)
class Comparison:
    """`correct` is None unless `status` is "ok"; "timeout" and "error" are no verdicts on the answer."""

    status: str  # ok, timeout, error
    correct: bool | None = None
    reason: str | None = None


class Worker:
    """One process, started when it is first needed and again after a timeout or an error. For one thread at a time."""

    def __init__(self, seconds: int, memory_bytes: int) -> None:
        self.seconds = seconds
        self.memory_bytes = memory_bytes
        self._process: subprocess.Popen[bytes] | None = None

    def compare(self, gold: str, answer: str) -> Comparison:
        process = self._started()
        assert process.stdin is not None
        try:
            process.stdin.write(json.dumps({"gold": gold, "answer": answer}).encode() + b"\n")
            process.stdin.flush()
            reply = _reply(process, self.seconds)
        except BrokenPipeError:
            reply = {"status": "error", "reason": "the worker had died"}
        if reply["status"] != "ok":
            self.stop()
        return Comparison(**reply)

    def stop(self) -> None:
        if self._process is not None:
            _kill(self._process)
            self._process = None

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is not None and self._process.poll() is None:
            return self._process
        command = [sys.executable, "-m", "tasks.math.worker", str(self.seconds), str(self.memory_bytes)]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        pipe = subprocess.PIPE
        try:
            process = subprocess.Popen(
                command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, env=environment, cwd=ROOT
            )
        except OSError as error:
            raise TaskError(f"math-verify does not start: {error}") from error
        ready = _reply(process, START_SECONDS)
        if ready["status"] != "ready":
            _kill(process)
            raise TaskError(f"math-verify does not start ({ready['reason']}): {INSTALL}")
        self._process = process
        weakref.finalize(self, _kill, process)
        return process


class GraderPool:
    """A few workers that any thread may ask; a call waits until one is free."""

    def __init__(self, size: int | None = None, seconds: int = SECONDS, memory_bytes: int = MEMORY_BYTES) -> None:
        self.size = size or min(4, os.cpu_count() or 1)
        # Last in, first out: a single caller always meets the same, warm worker.
        self._free: queue.LifoQueue[Worker] = queue.LifoQueue()
        for _ in range(self.size):
            self._free.put(Worker(seconds, memory_bytes))

    def compare(self, gold: str, answer: str) -> Comparison:
        """The verdict on two answers, whose form is looked at first."""
        if max(len(gold), len(answer)) <= LONGEST:
            gold, answer = plain(gold), plain(answer)
            if decided := by_form(gold, answer):
                return Comparison("ok", *decided)
        with self._borrowed() as worker:
            return worker.compare(gold, answer)

    def compare_all(self, pairs: Sequence[tuple[str, str]]) -> list[Comparison]:
        with ThreadPoolExecutor(self.size) as threads:
            return list(threads.map(lambda pair: self.compare(*pair), pairs))

    @contextmanager
    def _borrowed(self) -> Iterator[Worker]:
        worker = self._free.get()
        try:
            yield worker
        finally:
            self._free.put(worker)


def _reply(process: subprocess.Popen[bytes], seconds: float) -> dict[str, Any]:
    assert process.stdout is not None
    readable, _, _ = select.select([process.stdout], [], [], seconds)
    if not readable:
        return {"status": "timeout", "reason": f"no answer within {seconds:g} s"}
    line = process.stdout.readline()  # a reply is one short line, written at once
    return json.loads(line) if line else {"status": "error", "reason": "the worker died"}


def _kill(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            stream.close()
