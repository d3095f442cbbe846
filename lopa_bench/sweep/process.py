"""The process of a job, seen from the sweep: one for each, or one for job after job that keeps its model loaded.

It has a process group of its own, so that signals reach it through here alone and nothing of it outlives it. One that
keeps its model says when a job has finished and is then given the next, with the streams of that one; whatever else
happens to it ends it, and the next job has a new one.
"""

from __future__ import annotations

import atexit
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.reduction import send_handle
from typing import IO

from lopa_bench import ROOT
from lopa_bench.system.channel import Channel
from lopa_bench.system.processes import environment

GRACE_SECONDS = 60.0  # for a job that was asked to stop, before it is killed
LOG, OUTCOME, SETTINGS = "job.log", "outcome.json", "settings.yaml"  # in the job's folder
KEEP = "--keep"  # the child's first argument, before the descriptor of its channel
# As `-m lopa_bench.sweep.child`, but of this installation: the launch folder may hold a folder `lopa_bench`.
START = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
from lopa_bench.sweep.child import main
del sys.path[0]
sys.exit(main())
"""


class JobProcess:
    """A process at a job. `stderr`: what that job says; `code`: its exit status, negative for a signal."""

    def __init__(self, job: Sequence[str], cwd: str, log: IO[bytes], keeps: bool) -> None:
        """`job`: its folder and its overrides; `log`: for its stdout; `keeps`: it may be given further jobs."""
        self.cwd, self.keeps = cwd, keeps
        self.code: int | None = None
        self._is_free = False
        self._connection, there = Pipe()
        self._channel = Channel(self._connection)
        keep = [KEEP, str(there.fileno())] if keeps else []
        self._process = subprocess.Popen(
            [sys.executable, "-c", START, *keep, *job], cwd=cwd, env=environment(), start_new_session=True,
            pass_fds=[there.fileno()] if keeps else [], stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.PIPE,
        )  # fmt: skip
        there.close()
        assert self._process.stderr is not None
        self.stderr: IO[bytes] = self._process.stderr

    def take(self, job: Sequence[str], log: IO[bytes]) -> bool:
        """Hands it the next job; False if it is gone."""
        source, sink = os.pipe()
        self.stderr = open(source, "rb")  # noqa: SIM115  # whoever reads it to its end is done with it
        try:
            self._channel.send(job=list(job))
            for stream in (log.fileno(), sink):
                send_handle(self._connection, stream, self._process.pid)
        except (EOFError, OSError):
            return False
        finally:
            os.close(sink)
        self.code, self._is_free = None, False
        return True

    def wait(self) -> None:
        """Until the job has ended."""
        if self.keeps:
            with suppress(EOFError):
                self._channel.receive()
                self.code, self._is_free = 0, True
                return
        self.code = self._process.wait()

    def stop(self) -> None:
        """Lets the job flush; a second Ctrl-C does not. (A job of a background shell would ignore SIGINT.)"""
        self._is_free = False
        with suppress(KeyboardInterrupt, subprocess.TimeoutExpired):
            self._process.terminate()
            self._process.wait(timeout=GRACE_SECONDS)

    def leave(self) -> None:
        """Behind a job: the process is there for the next, or nothing of it is left."""
        global _free
        if self._is_free:
            _free = self
        else:
            self.kill()
            self.code = self._process.returncode

    def kill(self) -> None:
        """With all that it started."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._channel.close()


_free: JobProcess | None = None  # that has finished its job


def begin(job: Sequence[str], cwd: str, log: IO[bytes], keeps: bool) -> JobProcess:
    """A process at this job: the one that finished the job before, if both jobs keep their model, else a new one."""
    global _free
    before, _free = _free, None
    keeps = keeps and threading.current_thread() is threading.main_thread()  # the kernel ends it with its starter
    if before is not None:
        if keeps and before.cwd == cwd and before.take(job, log):
            return before
        before.kill()
    return JobProcess(job, cwd, log, keeps)


@atexit.register
def _dismiss() -> None:
    if _free is not None:
        _free.kill()
