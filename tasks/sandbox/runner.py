"""The harness's side: hands jobs to judge processes, several at a time. No program runs in this process."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tasks.sandbox.walls import scratch

ROOT = str(Path(__file__).parents[2])
JUDGE = f"import sys; sys.path.insert(0, {ROOT!r}); from tasks.sandbox.judge import main; main()"
STARTED = b"started\n"  # the judge says so before the program can do anything
STOP_S = 5.0
BACKSTOP_S = 75.0  # the judge keeps the limits itself; this is for a judge that does not answer


@dataclass(frozen=True)
class Limits:
    """What one program may use. Time counts from the moment it is loaded.

    CPU time is the limit that decides, since it does not depend on how busy the machine is; the wall clock limit is
    for programs that sleep. One that is running when it strikes goes on until its CPU time is used up.
    """

    cpu_s: float = 5.0
    wall_s: float = 15.0
    memory_mb: int = 1024
    processes: int = 64
    file_mb: int = 32
    output_kb: int = 1024


@dataclass(frozen=True)
class Verdict:
    """`status`: pass, wrong, error, timeout, memory, syntax, missing (no entry point), exit; sandbox: not judged."""

    status: str
    detail: str = ""
    passed: int = 0
    total: int | None = None
    parts: Mapping[str, str] = field(default_factory=dict)
    layers: Sequence[str] = ()
    output_bytes: int = 0
    output_capped: bool = False
    cpu_s: float | None = None
    rss_kb: int | None = None
    wall_s: float = 0.0
    times: Sequence[float] = ()
    judge_failed: bool = False  # by this program, or by another that ran at the same time


def run_job(job: Mapping[str, Any], limits: Limits = Limits(), without: Sequence[str] = ()) -> Verdict:
    """Judges one program in processes of its own. `job` is what tasks/sandbox/suites.py describes."""
    with _scratch_folder() as folder:
        request = {**job, "limits": asdict(limits), "folder": folder, "without": list(without)}
        request["prefixes"] = [sys.prefix, sys.base_prefix]  # the judge runs without its site, so it cannot know them
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-B", "-c", JUDGE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=folder,
            env={"LANG": "C.UTF-8"},
            start_new_session=True,
        )
        with process:
            try:
                said = _converse(process, json.dumps(request).encode(), BACKSTOP_S + 4 * limits.wall_s)
            except BaseException:
                _stop(process)
                raise
    return _verdict(process, *said)


def _converse(process: subprocess.Popen[bytes], request: bytes, seconds: float) -> tuple[bytes, bytes, bool]:
    """What the judge wrote, what it complained of, and whether it had to be stopped."""
    try:
        return *process.communicate(request, timeout=seconds), False
    except subprocess.TimeoutExpired:
        process.kill()
        return *process.communicate(), True


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Asks a judge to end its sandbox, which it does in a moment, and then to end."""
    process.terminate()
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()


def _verdict(process: subprocess.Popen[bytes], out: bytes, err: bytes, stopped: bool) -> Verdict:
    """What a judge said. If it failed after the program had begun, the program made it fail, and so has not passed."""
    before, started, answer = out.partition(STARTED)
    if stopped:
        return Verdict("timeout" if started else "sandbox", "the judge did not answer")
    if started and process.returncode == -signal.SIGXCPU:
        return Verdict("timeout", "comparing the results took too long")
    try:
        return Verdict(**json.loads((answer if started else before).decode().encode("utf-8", "replace")))
    except (ValueError, TypeError):
        reason = f"the judge failed ({process.returncode}): {err.decode(errors='replace')[-2000:]}"
        return Verdict("error" if started else "sandbox", reason, judge_failed=True)


def run_jobs(
    jobs: Sequence[tuple[Mapping[str, Any], Limits]], judge: Callable[..., Verdict] = run_job
) -> list[Verdict]:
    """Judges many, one at a time for each core there is; what the harness failed to judge gets a second try, alone."""
    pool = ThreadPoolExecutor(max_workers=cores())
    try:
        verdicts = list(pool.map(lambda pair: judge(*pair), jobs))
    finally:
        pool.shutdown(cancel_futures=True)  # at Ctrl-C the jobs that have not begun never will
    for index, (job, limits) in enumerate(jobs):
        if verdicts[index].status == "sandbox" or verdicts[index].judge_failed:
            verdicts[index] = judge(job, limits)
    return verdicts


def cores() -> int:
    return len(os.sched_getaffinity(0))


@contextlib.contextmanager
def _scratch_folder() -> Iterator[str]:
    """A folder that goes away whatever was done to it (a program without a root of its own can write there)."""
    folder = tempfile.mkdtemp(prefix="lopa_bench_")
    try:
        yield folder
    finally:
        scratch.remove(folder)
