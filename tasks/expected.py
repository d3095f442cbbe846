"""Expected outputs and reference times of HumanEval+ and MBPP+, computed once from the canonical solutions and kept.

The cache is $LOPA_BENCH_CACHE, else $XDG_CACHE_HOME/lopa_bench, else ~/.cache/lopa_bench. One folder for each data
checksum, host and Python version: times of another machine, or sums of another Python, would judge wrongly.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tasks.base import TaskError
from tasks.code_plus_rows import PlusProblem
from tasks.sandbox import Limits, Verdict, run_job, run_jobs

FORMAT = 1  # raised when the files, the encoding or the derived inputs change
# The canonical solution of MBPP/255 builds lists of 1.4 GB.
RECORD_LIMITS = Limits(cpu_s=600, wall_s=1800, memory_mb=4096)


@dataclass(frozen=True)
class Reference:
    """`times` are CPU seconds, one for each input in the order of the parts; `rss_kb` is the peak memory."""

    path: Path
    times: tuple[float, ...]
    rss_kb: int


def references(problems: Sequence[PlusProblem], sha256: str) -> dict[str, Reference]:
    """What is known of each problem; missing and damaged entries are computed first, in parallel."""
    folder = cache_folder(sha256)
    found = {problem.key: _read(folder, problem) for problem in problems}
    missing = [problem for problem in problems if found[problem.key] is None]
    if missing:
        folder.mkdir(parents=True, exist_ok=True)
        verdicts = run_jobs([(_job(problem, folder), RECORD_LIMITS) for problem in missing], _record)
        for problem, verdict in zip(missing, verdicts, strict=True):
            if verdict.status != "pass":
                reason = f"{verdict.status} ({verdict.detail[:500]})"
                raise TaskError(f"{problem.key}: the canonical solution gave {reason}")
            found[problem.key] = _read(folder, problem)
    return {key: reference for key, reference in found.items() if reference is not None}


def cache_folder(sha256: str) -> Path:
    root = os.environ.get("LOPA_BENCH_CACHE") or Path(
        os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "lopa_bench"
    )
    host = re.sub(r"[^A-Za-z0-9.-]", "-", platform.node() or "host")
    version = f"py{sys.version_info[0]}.{sys.version_info[1]}"
    return Path(root) / "expected" / f"{sha256[:16]}-{host}-{version}-v{FORMAT}"


def _job(problem: PlusProblem, folder: Path) -> dict[str, Any]:
    return {
        "suite": "record",
        "program": problem.canonical,
        "entry_point": problem.entry_point,
        "parts": [{"name": name, "inputs": inputs} for name, inputs in problem.parts],
        "expected": str(folder / _stem(problem)) + ".gz",
        "skip_errors": problem.derived,
    }


def _stem(problem: PlusProblem) -> str:
    """Also keyed by what is run, so that a change of the inputs that are derived here is noticed."""
    content = json.dumps([problem.canonical, problem.entry_point, problem.parts])
    name = re.sub(r"[^A-Za-z0-9]+", "-", problem.key)
    return f"{name}-{hashlib.sha256(content.encode()).hexdigest()[:12]}"


def _record(job: dict[str, Any], limits: Limits) -> Verdict:
    """Each problem is kept as soon as it is done, so that a run that is stopped loses only what was under way."""
    verdict = run_job(job, limits)
    if verdict.status == "pass":
        outputs = Path(job["expected"])
        facts = {"times": verdict.times, "rss_kb": verdict.rss_kb or 0, "bytes": outputs.stat().st_size}
        part = outputs.with_suffix(f".{os.getpid()}.part")
        part.write_text(json.dumps(facts), "utf-8")
        os.replace(part, outputs.with_suffix(".json"))  # its presence says that the outputs are complete
    return verdict


def _read(folder: Path, problem: PlusProblem) -> Reference | None:
    outputs = folder / f"{_stem(problem)}.gz"
    try:
        facts = json.loads(outputs.with_suffix(".json").read_text("utf-8"))
        whole = outputs.stat().st_size == facts["bytes"]
        count = sum(len(inputs) for _, inputs in problem.parts)
        if whole and len(facts["times"]) == count:
            return Reference(outputs, tuple(facts["times"]), facts["rss_kb"])
    except (OSError, ValueError, KeyError, TypeError):
        pass
    return None
