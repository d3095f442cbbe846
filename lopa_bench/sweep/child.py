"""The process of one job of a sweep: `python -m lopa_bench.sweep.child FOLDER OVERRIDE...`, as jobs.py starts it.

It runs the folder's settings.yaml and leaves its last words in outcome.json. A process that ends without them was
ended from outside or by os._exit. With `--keep DESCRIPTOR` in front it asks for further jobs as long as each finishes.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from lopa_bench.console.numbers import plain_lines
from lopa_bench.errors import Locked
from lopa_bench.models.device import free_devices
from lopa_bench.models.kept import KeptNetwork
from lopa_bench.records.schema import to_json
from lopa_bench.run.start import run_here
from lopa_bench.settings.config import structured
from lopa_bench.sweep.process import KEEP, OUTCOME, SETTINGS
from lopa_bench.system.channel import Channel
from lopa_bench.system.out_of_memory import is_out_of_memory
from lopa_bench.system.signals import die_with_parent, exit_code, status_of, stop_on_signals
from lopa_bench.system.storage import whole_file
from lopa_bench.system.streams import failure, secure


def main() -> int:
    secure()
    die_with_parent()
    stop_on_signals()
    further = Further(int(sys.argv[2])) if sys.argv[1] == KEEP else None
    kept = KeptNetwork() if further else None
    job: Sequence[str] | None = sys.argv[3:] if further else sys.argv[1:]
    code = 0
    while job and not code:
        sys.argv[1:] = job[1:]  # the record shows the overrides
        code = run_job(Path(job[0]), kept)
        free_devices()  # caches of a run would count in the peak memory of the next
        job = further.next() if further and not code else None
    return code


class Further:
    """The jobs behind the first, which the sweep hands over with the streams of each."""

    def __init__(self, descriptor: int) -> None:
        os.set_inheritable(descriptor, False)
        self._connection = Connection(descriptor)
        self._channel = Channel(self._connection)

    def next(self) -> list[str] | None:
        """A job's folder and overrides; None at the end, or where this process can no longer speak."""
        if failure(sys.stdout) or failure(sys.stderr):
            return None
        with open(os.devnull, "wb") as nowhere:
            self._speak_to(nowhere.fileno(), nowhere.fileno())  # so that who reads the streams sees their end
        try:
            self._channel.send(finished=True)
            job: list[str] = self._channel.receive()["job"]
            streams = [recv_handle(self._connection) for _ in range(2)]
        except (EOFError, OSError, KeyboardInterrupt):
            return None
        self._speak_to(*streams)
        for stream in streams:
            os.close(stream)
        return job

    @staticmethod
    def _speak_to(out: int, err: int) -> None:
        os.dup2(out, 1)
        os.dup2(err, 2)


def run_job(folder: Path, kept: KeptNetwork | None) -> int:
    """Runs the settings of a folder, with the network of the job before if that fits. Returns the exit status."""
    loaded = OmegaConf.load(folder / SETTINGS)
    settings = OmegaConf.merge(structured(loaded.backend.name), loaded)
    try:
        result = run_here(settings, kept=kept)  # type: ignore[arg-type]  # a mapping merged into a mapping
    except SystemExit as end:
        outcome, code = _outcome("exited", f"sys.exit({end.code!r})"), status_of(end)
        traceback.print_exc()
    except KeyboardInterrupt as stop:
        outcome, code = _outcome("interrupted", None), exit_code(stop)
    except BaseException as error:
        outcome, code = _failure(error)
    else:
        outcome, code = _outcome("finished", None), 0
        outcome |= {"run_id": result.folder.name, "path": str(result.folder), "numbers": result.aggregates}
    with whole_file(folder / OUTCOME) as file:
        file.write(to_json(outcome).encode())
    return code


def _failure(error: BaseException) -> tuple[dict[str, Any], int]:
    from lopa_bench.console.explain import explain  # with Hydra, which a job that goes well does without

    message = explain(error)
    if message is not None:
        print(plain_lines(message), file=sys.stderr)
        return _outcome("refused" if isinstance(error, Locked) else "failed", message.removeprefix("error: ")), 2
    traceback.print_exc()
    status = "out_of_memory" if is_out_of_memory(error) else "failed"
    return _outcome(status, traceback.format_exception_only(error)[-1].strip().splitlines()[0]), 1


def _outcome(status: str, error: str | None) -> dict[str, Any]:
    return {"status": status, "error": error}


if __name__ == "__main__":
    sys.exit(main())
