"""A server of our own: started, awaited with a line of progress, its log in the run's folder, ended in any case."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from lopa_bench.errors import BackendError
from lopa_bench.settings.backend import ServerSettings
from lopa_bench.system.signals import die_with_parent

HOST = "127.0.0.1"
LOG = "server.log"
POLL_S = 0.25
PROGRESS_S = 15.0
GRACE_S = 20.0
LAST_LINES = 5


class Launched:
    """A running server process with its group, so that nothing of it outlives the run."""

    def __init__(self, settings: ServerSettings, facts: Mapping[str, str], folder: Path) -> None:
        """Starts it; `facts` fill the placeholders of the command. Raises BackendError if it cannot be started."""
        port = str(free_port())
        self.url = f"http://{HOST}:{port}"
        self.log = folder / LOG
        values = {"python": sys.executable, "host": HOST, "port": port, **facts}
        self.command = [word.format(**values) for word in (*settings.command, *settings.args)]
        program = find_program(self.command[0])
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [program, *self.command[1:]], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True, preexec_fn=die_with_parent, env=os.environ | settings.env,
            )  # fmt: skip

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def wait(self, limit_s: float) -> None:
        """Until it answers /health. Raises BackendError with the end of its log if it ends or takes too long."""
        import httpx

        began, said = time.monotonic(), 0.0
        while True:
            with suppress(httpx.HTTPError):
                if httpx.get(self.url + "/health", timeout=2.0, trust_env=False).status_code == 200:
                    return
            waited = time.monotonic() - began
            if not self.is_alive:
                status = self._process.returncode
                raise BackendError(f"the server ended with status {status} while it started: {self._end_of_log()}")
            if waited > limit_s:
                raise BackendError(f"no answer within backend.startup_s={limit_s:g} s: {self._end_of_log()}")
            if waited - said >= PROGRESS_S:
                said = waited
                print(
                    f"waiting for the server, {waited:.0f} s so far; its log: {self.log}", file=sys.stderr, flush=True
                )
            time.sleep(POLL_S)

    def close(self) -> None:
        """Asks it to end, and kills its group if it does not."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, number)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout=GRACE_S)

    def _end_of_log(self) -> str:
        lines = [line for line in self.log.read_text("utf-8", "replace").splitlines() if line.strip()]
        return (" | ".join(lines[-LAST_LINES:]) or "it wrote nothing") + f" (whole log: {self.log})"


def free_port() -> int:
    """A port that nobody listens on at this moment."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def find_program(program: str) -> str:
    """The program, first beside this Python: an environment need not be activated."""
    beside = Path(sys.executable).parent / program
    found = str(beside) if beside.is_file() else shutil.which(program)
    if found is None:
        raise BackendError(f"backend.command: {program} is not installed here; allowed: a program on PATH")
    return found
