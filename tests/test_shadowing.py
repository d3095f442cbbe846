"""The packages of this distribution are found whatever the folder holds in which a command is started."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tasks.math.grader import Worker
from tests.test_sweep import start
from tests.warm import ROOT

NAMES = ("conf", "decoders", "tasks", "analysis")
IMPORTS = (
    "import conf, decoders, tasks, analysis; "
    "print(*(module.__file__ for module in (conf, decoders, tasks, analysis)), sep='\\n')"
)


def occupied(folder: Path, how: str) -> Path:
    """A folder of a user with things of their own under our names."""
    for name in NAMES:
        if how == "files":
            (folder / f"{name}.py").write_text("raise SystemExit('the wrong module')")
        else:
            (folder / name).mkdir()
        if how == "packages":
            (folder / name / "__init__.py").write_text("raise SystemExit('the wrong package')")
    if how == "plain files":
        for name in NAMES:
            (folder / name).rmdir()
            (folder / name).touch()
    (folder / "lopa_bench.yaml").touch()
    return folder


@pytest.mark.parametrize("how", ["folders", "packages", "files", "plain files"])
def test_our_packages_are_those_beside_the_application(how: str, tmp_path: Path) -> None:
    code = f"import sys; sys.path[:0] = ['.', {str(ROOT)!r}]; import lopa_bench; {IMPORTS}"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=occupied(tmp_path, how), capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == [str(ROOT / name / "__init__.py") for name in NAMES]


def test_a_run_starts_beside_packages_with_our_names(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "lopa_bench", "decoder=d2f", "--cfg", "job"]
    done = subprocess.run(command, cwd=occupied(tmp_path, "packages"), capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert "name: d2f" in done.stdout


@pytest.mark.parametrize("how", ["folders", "packages"])
def test_choices_of_ones_own_are_found_in_a_folder_conf_beside_them(how: str, tmp_path: Path) -> None:
    folder = occupied(tmp_path, how)
    (folder / "conf" / "decoder").mkdir()
    (folder / "conf" / "decoder" / "mine.yaml").write_text("name: greedy\ntau_conf: 0.125\n")
    command = [sys.executable, "-m", "lopa_bench", "--config-dir", "conf", "decoder=mine", "--cfg", "job"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert "tau_conf: 0.125" in done.stdout


@pytest.mark.slow
def test_the_jobs_of_a_sweep_start_there_too(settings: list[str], tmp_path: Path) -> None:
    folder = occupied(tmp_path, "packages")
    (folder / "lopa_bench").mkdir()  # a clone has this name
    process = start("-m", *settings, "task.limit=1", "decoder.k=0,1", cwd=folder)
    out, err = process.communicate(timeout=600)
    assert process.returncode == 0, err
    assert '"failed": 0' in out.splitlines()[-1]


def test_the_grader_of_mathematics_starts_there_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(occupied(tmp_path, "packages"))
    monkeypatch.syspath_prepend(str(tmp_path))
    worker = Worker(seconds=30, memory_bytes=2 * 1024**3)
    assert worker.compare(r"\frac{1}{2}", "0.5").correct is True
    worker.stop()
