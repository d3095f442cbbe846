"""Every way in which the sandbox can be built on this machine, so that a test can look at each.

A mode is a user that judges and the walls that are left out. Judging as another user takes an interpreter and a copy
of the sandbox that such a user can reach.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

import tasks
from tasks.sandbox import Limits, Verdict

NOBODY = 65534
USUAL = Limits()
JUDGE = """
import dataclasses, json, sys
from tasks.sandbox import Limits, run_job
job, limits, without = json.load(sys.stdin)
print(json.dumps(dataclasses.asdict(run_job(job, Limits(**limits), without))))
"""


@dataclass(frozen=True)
class Mode:
    """`needs` are the walls that make the mode what it is, `lacks` those that must be absent."""

    as_root: bool
    without: tuple[str, ...]
    needs: frozenset[str]
    lacks: frozenset[str]


def _mode(as_root: bool, without: str, needs: str, lacks: str) -> Mode:
    return Mode(as_root, tuple(without.split()), frozenset(needs.split()), frozenset(lacks.split()))


MODES = {
    "namespaces, root": _mode(True, "", "root pid net uid", "user"),
    "namespaces, user": _mode(False, "", "user root pid net", "uid"),
    "landlock, root": _mode(True, "namespaces", "uid landlock", "pid"),
    "landlock, user": _mode(False, "namespaces", "landlock", "pid uid"),
    "none, root": _mode(True, "namespaces landlock", "uid", "pid landlock"),
    "none, user": _mode(False, "namespaces landlock", "", "pid landlock uid"),
}
CONFINED = [name for name in MODES if not name.startswith("none")]
EXAMPLE = {"suite": "asserts", "setup": [], "gold": "", "names": ["f"], "optional_names": []}
FINE = {**EXAMPLE, "program": "def f(): return 1", "tests": ["assert f() == 1"]}


def job(program: str, *tests: str) -> dict[str, Any]:
    """Tests of a program that defines `f`."""
    return {**EXAMPLE, "program": program, "tests": list(tests)}


def judge_in(mode: str, job: Mapping[str, Any], limits: Limits = USUAL, without: tuple[str, ...] = ()) -> Verdict:
    """Judges a job in a mode and skips the test where this machine has no such mode."""
    reason = unavailable(mode)
    if reason:
        pytest.skip(reason)
    return _judge(mode, job, limits, without)


@lru_cache
def unavailable(mode: str) -> str:
    """Why this machine has no such mode; empty if it has."""
    wanted = MODES[mode]
    if wanted.as_root and os.geteuid() != 0:
        return "only root can judge as root"
    try:
        layers = set(_judge(mode, FINE, Limits(), ()).layers)
    except (OSError, LookupError, subprocess.CalledProcessError) as error:
        return f"no interpreter for another user: {error}"
    if wanted.needs <= layers and not wanted.lacks & layers:
        return ""
    return f"{mode} is not to be had here: {'+'.join(sorted(layers))}"


def command(mode: str, code: str) -> dict[str, Any]:
    """Arguments of subprocess.run for Python code that may import the sandbox, as the user of the mode."""
    wanted = MODES[mode]
    uid = os.geteuid() if wanted.as_root or os.geteuid() != 0 else NOBODY
    given: dict[str, Any] = {"args": [_interpreter(), "-c", code], "env": {"PYTHONPATH": _copy(), "PATH": os.defpath}}
    given["cwd"] = "/"
    return given if uid == os.geteuid() else {**given, "user": uid, "group": uid, "extra_groups": []}


def _judge(mode: str, job: Mapping[str, Any], limits: Limits, without: tuple[str, ...]) -> Verdict:
    request = json.dumps([job, asdict(limits), [*MODES[mode].without, *without]])
    run = subprocess.run(**command(mode, JUDGE), input=request, capture_output=True, text=True, check=True)
    return Verdict(**json.loads(run.stdout))


@lru_cache
def _interpreter() -> str:
    """One that any user can start; the sandbox needs the standard library only."""
    for path in (sys.executable, shutil.which("python3", path="/usr/local/bin:/usr/bin:/bin")):
        if path and _starts(path):
            return path
    raise LookupError("none that any user can start")


def _starts(path: str) -> bool:
    other = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}
    try:
        code = "import sys; sys.exit(sys.version_info < (3, 10))"
        return subprocess.run([path, "-I", "-S", "-c", code], cwd="/", capture_output=True, **other).returncode == 0
    except OSError:
        return False


@lru_cache
def _copy() -> str:
    """The sandbox where every user can read it; it goes with this process."""
    folder = tempfile.TemporaryDirectory(prefix="lopa_bench_sandbox_")
    _kept.append(folder)
    os.chmod(folder.name, 0o755)
    source = Path(tasks.__file__).parent
    (Path(folder.name) / "tasks").mkdir(mode=0o755)
    shutil.copy(source / "__init__.py", Path(folder.name) / "tasks")
    shutil.copytree(source / "sandbox", Path(folder.name) / "tasks" / "sandbox")
    return folder.name


_kept: list[tempfile.TemporaryDirectory[str]] = []


@contextmanager
def open_folder() -> Iterator[Path]:
    """A folder outside the sandbox in which every user may do anything."""
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o777)
        yield Path(name)
