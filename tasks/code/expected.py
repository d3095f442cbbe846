"""Expected outputs and reference times of HumanEval+ and MBPP+, computed once from the canonical solutions and kept.

Where they are kept, and what may be wrong there, is said in tasks/remembered.py. They hold for one host and one Python:
times of another machine, or sums of another Python, would judge wrongly.
"""

from __future__ import annotations

import hashlib
import json
import platform
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any
from uuid import uuid4

from tasks.code.plus_rows import PlusProblem
from tasks.remembered import cache_folder, keep, recall, said_if_slow
from tasks.sandbox import Limits, Verdict, run_job, run_jobs
from tasks.types import TaskError

KIND = "expected"
CODE = Path(__file__).parents[1] / "sandbox"
# The canonical solution of MBPP/255 builds lists of 1.4 GB.
RECORD_LIMITS = Limits(cpu_s=600, wall_s=1800, memory_mb=4096)


@dataclass(frozen=True)
class Reference:
    """`times` are CPU seconds, one for each input in the order of the parts; `rss_kb` is the peak memory."""

    path: Path
    times: tuple[float, ...]
    rss_kb: int


def references(problems: Sequence[PlusProblem]) -> dict[str, Reference]:
    """What is known of each problem; missing and damaged entries are computed first, in parallel. Raises TaskError."""
    facts = {problem.key: _facts(problem) for problem in problems}
    with said_if_slow(f"reading the outputs of {len(problems)} canonical solutions"):
        found = {key: _kept(known) for key, known in facts.items()}
    missing = [problem for problem in problems if found[problem.key] is None]
    if missing:
        with said_if_slow(f"running {len(missing)} canonical solutions once, for their outputs"):
            found |= _record(missing, facts)
    return {key: reference for key, reference in found.items() if reference is not None}


def _record(problems: Sequence[PlusProblem], facts: Mapping[str, Any]) -> dict[str, Reference]:
    """Each problem is kept as soon as it is done, so that a run that is stopped loses only what was under way."""
    folder = _folder()
    jobs = [_job(problem, folder / f"{uuid4().hex}.gz") for problem in problems]
    keys = {job["expected"]: problem.key for job, problem in zip(jobs, problems, strict=True)}
    found: dict[str, Reference] = {}

    def record(job: dict[str, Any], limits: Limits) -> Verdict:
        verdict = run_job(job, limits)
        if verdict.status == "pass":
            key, written = keys[job["expected"]], Path(job["expected"])
            sha256 = _sha256(written)
            found[key] = Reference(written.replace(folder / f"{sha256}.gz"), tuple(verdict.times), verdict.rss_kb or 0)
            if folder == _kept_in():
                value = {"outputs": sha256, "times": list(verdict.times), "rss_kb": verdict.rss_kb or 0}
                keep(KIND, facts[key], value)
        return verdict

    verdicts = run_jobs([(job, RECORD_LIMITS) for job in jobs], record)
    for problem, verdict in zip(problems, verdicts, strict=True):
        if verdict.status != "pass":
            raise TaskError(
                f"{problem.key}: the canonical solution gave {verdict.status} ({verdict.detail[:500]}), "
                f"its outputs were to be in {folder}"
            )
    return found


def _kept(facts: Any) -> Reference | None:
    """What is known of a problem, if its outputs are there byte by byte."""
    known, folder = recall(KIND, facts), _kept_in()
    if known is None or folder is None:
        return None
    path = folder / f"{known['outputs']}.gz"
    with suppress(OSError):
        if _sha256(path) == known["outputs"]:
            return Reference(path, tuple(known["times"]), known["rss_kb"])
    return None


def _kept_in() -> Path | None:
    cache = cache_folder()
    return None if cache is None else cache.absolute() / KIND


def _folder() -> Path:
    """Where outputs are written: beside what is remembered of them, else in a folder that this process leaves with."""
    folder = _kept_in()
    if folder is not None:
        with suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=folder).close()
            return folder
    return Path(_temporary().name)


@lru_cache
def _temporary() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="lopa_bench_")


def _facts(problem: PlusProblem) -> dict[str, Any]:
    content = json.dumps([problem.canonical, problem.entry_point, problem.parts, problem.derived])
    return {
        "problem": problem.key,
        "content": hashlib.sha256(content.encode()).hexdigest(),
        "host": platform.node(),
        "python": platform.python_version(),
        "code": _code_sha256(),
    }


@lru_cache
def _code_sha256() -> str:
    """Of what runs a program and writes what it gives."""
    digest = hashlib.sha256()
    for path in sorted(CODE.rglob("*.py")):
        digest.update(f"{path.name}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        digest = hashlib.sha256()
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def _job(problem: PlusProblem, path: Path) -> dict[str, Any]:
    return {
        "suite": "record",
        "program": problem.canonical,
        "entry_point": problem.entry_point,
        "parts": [{"name": name, "inputs": inputs} for name, inputs in problem.parts],
        "expected": str(path),
        "skip_errors": problem.derived,
    }
