"""Starts `python -m lopa_bench` in milliseconds: a process that has imported everything forks for each command.

A test that kills a run twenty times would else spend its time on `import torch`. What is tested is the same: `main()`
in a process of its own, with its own arguments, working folder and streams.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).parents[1]
FAULTS = Path(__file__).parent / "faults"  # on PYTHONPATH it adds the task `faulty`, see there
TIMEOUT = 120.0


@dataclass
class Command:
    """A command under way, or ended."""

    warm: Warm
    pid: int
    out: Path
    err: Path

    def wait(self) -> Done:
        code = self.warm.ask(wait=self.pid)["code"]
        return Done(code, self.out.read_text(), self.err.read_text())

    def kill(self, number: int = signal.SIGKILL) -> None:
        os.kill(self.pid, number)

    def children(self) -> list[int]:
        """The processes that it started, in that order."""
        try:
            text = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text()
        except (FileNotFoundError, ProcessLookupError):
            return []
        return sorted(map(int, text.split()))

    def wait_for(self, text: str) -> None:
        """Until it has written this on stderr."""
        end = time.monotonic() + TIMEOUT
        while text not in self.err.read_text():
            assert time.monotonic() < end, f"{text!r} never came; it wrote: {self.err.read_text()}"
            time.sleep(0.01)


@dataclass
class Done:
    """How a command ended. `code` is as subprocess has it: negative for a signal."""

    code: int
    out: str
    err: str

    @property
    def values(self) -> dict[str, Any]:
        """The JSON line, which is the last one."""
        return json.loads(self.out.splitlines()[-1])


class Warm:
    """The forking process, seen from a test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.count = 0
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__))], cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        )  # fmt: skip

    def start(self, *arguments: str, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> Command:
        self.count += 1
        out, err = self.folder / f"{self.count}.out", self.folder / f"{self.count}.err"
        out.touch(), err.touch()
        where = {"cwd": str(cwd or self.folder), "out": str(out), "err": str(err)}
        return Command(self, self.ask(start={"argv": arguments, "env": env or {}, **where})["pid"], out, err)

    def run(self, *arguments: str, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> Done:
        return self.start(*arguments, cwd=cwd, env=env).wait()

    def ask(self, **request: Any) -> dict[str, Any]:
        assert self.process.stdin
        assert self.process.stdout
        print(json.dumps(request), file=self.process.stdin, flush=True)
        return json.loads(self.process.stdout.readline())

    def close(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()
        self.process.wait(timeout=TIMEOUT)


def serve(requests: IO[str]) -> None:
    """The forking process itself."""
    import hydra.core.plugins
    import pyarrow.parquet  # noqa: F401
    import rich.table  # noqa: F401
    import torch
    import torch._dynamo
    import transformers

    import lopa_bench.__main__
    import lopa_bench.engines.autoregressive
    import lopa_bench.engines.masked
    import lopa_bench.entry
    import lopa_bench.plan.identity
    import lopa_bench.run.runner

    assert transformers.PreTrainedTokenizerFast  # it is imported when it is first named
    hydra.core.plugins.Plugins.instance()
    lopa_bench.plan.identity.code_sha256()  # for all forks alike, while somebody edits the code
    torch.set_num_threads(1)
    for line in requests:
        request = json.loads(line)
        if "start" in request:
            print(json.dumps({"pid": _fork(request["start"])}), flush=True)
        else:
            _, status = os.waitpid(request["wait"], 0)
            print(json.dumps({"code": os.waitstatus_to_exitcode(status)}), flush=True)


def _fork(start: Mapping[str, Any]) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 70
    try:
        streams = [(os.devnull, os.O_RDONLY), (start["out"], os.O_WRONLY), (start["err"], os.O_WRONLY)]
        for number, (path, mode) in enumerate(streams):
            os.dup2(os.open(path, mode), number)
        sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w", buffering=1), open(2, "w", buffering=1)  # noqa: SIM115
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a background shell would have it ignored
        os.chdir(start["cwd"])
        os.environ.update(start["env"])
        if str(FAULTS) in os.environ.get("PYTHONPATH", ""):
            sys.path.insert(0, str(FAULTS))
            import sitecustomize  # noqa: F401  # as a fresh interpreter would
        sys.argv = ["lopa_bench", *start["argv"]]
        from lopa_bench.__main__ import main

        main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except BaseException:
        import traceback

        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    serve(sys.stdin)
