"""Plants small faults one at a time and counts how many of them the tests see: `python -m tests.mutation`.

The faults are data, `tests/mutation/<area>.yaml`: a text that stands exactly once in a file, what replaces it, why that
is wrong, and the test files that ought to notice. Faults are planted in a copy of the project with nothing beside it;
the checkout itself is never touched. A fault that no input can show is marked `equivalent`, with the reason.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import Queue

import yaml

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
LEFT_OUT = shutil.ignore_patterns(".git", ".venv", "outputs", "wandb", "__pycache__", ".*_cache", ".hypothesis")
QUICK = ("-m", "not slow and not alone and not gpu and not network")
MINUTES = 15  # a run of the tests that takes longer has met an endless loop


@dataclass(frozen=True)
class Fault:
    area: str
    file: str
    old: str
    new: str
    why: str
    tests: tuple[str, ...]
    equivalent: str | None = None

    def __str__(self) -> str:
        return f"{self.file}: {self.why}"


def faults(areas: Sequence[str]) -> list[Fault]:
    """The faults of these areas, or of all. Raises SystemExit for an area without a list."""
    lists = {path.stem: path for path in sorted(HERE.glob("*.yaml"))}
    unknown = [area for area in areas if area not in lists]
    if unknown:
        sys.exit(f"no faults for {', '.join(unknown)}; there are {', '.join(lists)}")
    return [
        Fault(area, **{**row, "tests": tuple(row["tests"])})
        for area in areas or lists
        for row in yaml.safe_load(lists[area].read_text())
    ]


def stale(fault: Fault) -> str | None:
    """Why a fault cannot be planted in the code as it is, or None."""
    text = (ROOT / fault.file).read_text()
    if text.count(fault.old) != 1:
        return f"{fault.old!r} stands {text.count(fault.old)} times in {fault.file}"
    missing = [test for test in fault.tests if not (ROOT / test.partition("::")[0]).exists()]
    if missing or not fault.tests:
        return f"no such test file: {', '.join(missing) or 'none is named'}"
    try:
        compile(text.replace(fault.old, fault.new), fault.file, "exec")
    except SyntaxError as error:
        return f"does not compile: {error}"
    return None


@contextmanager
def planted(copy: Path, fault: Fault) -> Iterator[None]:
    path = copy / fault.file
    text = path.read_text()
    path.write_text(text.replace(fault.old, fault.new))
    try:
        yield
    finally:
        path.write_text(text)


def notice(copy: Path, tests: Sequence[str]) -> str | None:
    """What the tests say of the project in `copy`: the first failure, or None if all pass."""
    command = [sys.executable, "-B", "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *QUICK, *tests]
    env: Mapping[str, str] = os.environ | {"PYTHONPATH": str(copy), "OMP_NUM_THREADS": "1"}
    try:
        done = subprocess.run(command, cwd=copy, env=env, capture_output=True, text=True, timeout=60 * MINUTES)
    except subprocess.TimeoutExpired:
        return "it does not end"
    if done.returncode == 0:
        return None
    lines = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return lines[0] if lines else f"pytest ended with {done.returncode}: {(done.stdout + done.stderr)[-300:]}"


def judge(copies: Queue[Path], fault: Fault, everything: bool) -> str | None:
    copy = copies.get()
    try:
        with planted(copy, fault):
            return notice(copy, fault.tests) or (notice(copy, ["tests"]) if everything else None)
    finally:
        copies.put(copy)


def main() -> None:
    """Prints a line a fault and the rate. Exits with 1 if fewer than 90 % are seen or a fault is stale."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("areas", nargs="*", help="which lists; all by default")
    parser.add_argument("--jobs", type=int, default=1, help="how many at a time")
    parser.add_argument("--all", action="store_true", help="what the named tests miss goes through all quick tests")
    chosen = parser.parse_args()

    listed = faults(chosen.areas)
    wrong = [(fault, reason) for fault in listed if (reason := stale(fault))]
    for fault, reason in wrong:
        print(f"stale     {fault.area}: {fault.why}: {reason}", flush=True)
    planned = [fault for fault in listed if not stale(fault) and not fault.equivalent]
    with tempfile.TemporaryDirectory() as folder:
        copies: Queue[Path] = Queue()
        for number in range(chosen.jobs):
            copies.put(Path(shutil.copytree(ROOT, Path(folder) / str(number) / "project", ignore=LEFT_OUT)))
        named = sorted({test for fault in planned for test in fault.tests})
        copy = copies.get()
        if before := notice(copy, named):
            sys.exit(f"the tests fail before anything is planted: {before}")
        copies.put(copy)
        began = time.monotonic()
        with ThreadPoolExecutor(chosen.jobs) as pool:
            seen = 0
            for fault, said in zip(planned, pool.map(lambda f: judge(copies, f, chosen.all), planned), strict=True):
                seen += said is not None
                print(f"{'seen' if said else 'NOT SEEN':9} {fault.area}: {fault}  [{said or 'all passed'}]", flush=True)
    share = seen / len(planned) if planned else 1.0
    print(f"{seen} of {len(planned)} faults seen ({share:.1%}) in {time.monotonic() - began:.0f} s; {len(wrong)} stale")
    sys.exit(share < 0.9 or bool(wrong))


if __name__ == "__main__":
    main()
