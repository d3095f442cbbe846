"""The harness's side: hands jobs to judge processes, several at a time. No program runs in this process."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

ROOT = str(Path(__file__).parents[2])
JUDGE = f"import sys; sys.path.insert(0, {ROOT!r}); from tasks.sandbox.judge import main; main()"
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
                out, err = process.communicate(json.dumps(request).encode(), timeout=BACKSTOP_S + 4 * limits.wall_s)
            except subprocess.TimeoutExpired:
                process.kill()
                return Verdict("sandbox", "the judge did not answer")
            except BaseException:
                process.kill()
                raise
    if process.returncode == -signal.SIGXCPU:
        return Verdict("timeout", "comparing the results took too long")
    try:
        return Verdict(**json.loads(out.decode().encode("utf-8", "replace")))
    except (ValueError, TypeError):
        return Verdict("sandbox", f"the judge failed: {err.decode(errors='replace')[-2000:]}")


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
        if verdicts[index].status == "sandbox":
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
        shutil.rmtree(folder, onerror=_make_writable_and_retry)


def _make_writable_and_retry(function: Callable[[str], object], path: str, _error: object) -> None:
    with contextlib.suppress(OSError):
        os.chmod(os.path.dirname(path), 0o700)
        os.chmod(path, 0o700, follow_symlinks=False) if os.chmod in os.supports_follow_symlinks else None
        shutil.rmtree(path) if os.path.isdir(path) and not os.path.islink(path) else function(path)
