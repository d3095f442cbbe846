"""What a program can reach: its scratch folder and the interpreter, and nothing else of the machine."""

from __future__ import annotations

import shutil
import socket
import subprocess
import venv
from pathlib import Path

import pytest

import tasks
from tasks.sandbox import Verdict
from tests.sandbox_modes import MODES, job, judge_in
from tests.test_sandbox import RIGHT, function, judge, tri_area_job

WALLS = {"namespaces": (), "landlock": ("namespaces",)}


def judge_behind(wall: str, program: str) -> Verdict:
    verdict = judge(program, without=WALLS[wall])
    needed = "root" if wall == "namespaces" else "landlock"
    if needed not in verdict.layers:
        pytest.skip(f"this kernel gives no {needed}: {verdict.layers}")
    return verdict


@pytest.fixture(params=WALLS)
def wall(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_the_verdict_names_the_walls_that_stood() -> None:
    layers = judge(function(RIGHT)).layers
    assert {"session", "rlimits"} <= set(layers)
    assert set(layers) <= {
        "user", "root", "pid", "net", "ipc", "uts", "uid", "landlock", "seccomp", "scratch", "session", "rlimits"
    }  # fmt: skip


def test_deleting_every_file_in_reach_deletes_nothing_of_ours(wall: str, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("still here")
    victim.chmod(0o666)
    tmp_path.chmod(0o777)
    body = [
        "import os",
        f"for top in ({str(tmp_path)!r}, {str(Path(tasks.__file__).parent)!r}, '/dev/shm', '/scratch'):",
    ]
    body += ["    for folder, _, names in os.walk(top, topdown=False):", "        for name in names:"]
    body += ["            try: os.remove(os.path.join(folder, name))", "            except OSError: pass", RIGHT]
    before = sorted(path.name for path in Path(tasks.__file__).parent.iterdir())
    verdict = judge_behind(wall, function(*body))
    assert victim.read_text() == "still here"
    assert sorted(path.name for path in Path(tasks.__file__).parent.iterdir()) == before
    assert verdict.status == "pass"


def test_files_outside_cannot_be_read_or_written(wall: str, tmp_path: Path) -> None:
    answers = tmp_path / "answers"
    answers.write_text("6")
    answers.chmod(0o666)
    tmp_path.chmod(0o777)
    read = function(f"return int(open({str(answers)!r}).read())")
    write = function(f"open({str(answers)!r}, 'w').write('7')", RIGHT)
    assert judge_behind(wall, read).detail.startswith(("FileNotFoundError", "PermissionError"))
    assert judge_behind(wall, write).status == "error"
    assert answers.read_text() == "6"


def test_the_tests_of_the_data_sets_cannot_be_read(wall: str) -> None:
    assert judge_behind(wall, function("import tasks.embedded", "return 6")).status == "error"
    path = Path(tasks.__file__).parent / "embedded" / "mbpp_test.jsonl"
    assert judge_behind(wall, function(f"open({str(path)!r})")).status == "error"


def test_no_network(wall: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.2)
        port = server.getsockname()[1]
        body = ["import socket", f"socket.create_connection(('127.0.0.1', {port}), timeout=1)", RIGHT]
        assert judge_behind(wall, function(*body)).status == "error"
        with pytest.raises(TimeoutError):
            server.accept()


def test_the_environment_tells_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_TOKEN", "6")
    assert judge(function("import os", "return int(os.environ['SOME_TOKEN'])")).detail.startswith("KeyError")


def test_other_processes_are_not_seen() -> None:
    program = function(
        "import os", "seen = [n for n in os.listdir('/proc') if n.isdigit()]", "return 6 if len(seen) > 5 else 7"
    )
    assert judge_behind("namespaces", program).status in ("wrong", "error")


def test_no_wall_is_needed_for_a_verdict() -> None:
    bare = ("namespaces", "landlock", "seccomp", "uid")
    assert list(judge(function(RIGHT), without=bare).layers) == ["session", "rlimits", "scratch"]
    assert judge(function("return 7"), without=bare).status == "wrong"
    assert judge(function("while True: pass"), without=bare).status == "timeout"


def test_the_scratch_folder_is_gone_afterwards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    program = "import os\nos.mkdir('closed')\nopen('closed/file', 'w').close()\nos.chmod('closed', 0)\n"
    assert judge(program + function(RIGHT), without=("namespaces",)).status == "pass"
    assert list(tmp_path.iterdir()) == []


def test_nor_can_they_where_the_project_lies_beside_the_interpreters_packages(tmp_path: Path) -> None:
    """An installed project is inside the folder that the program needs for its imports."""
    venv.create(tmp_path / "env", symlinks=True, with_pip=False)
    (packages,) = (tmp_path / "env").glob("lib/python*/site-packages")
    shutil.copytree(Path(tasks.__file__).parent, packages / "tasks")
    job = tri_area_job(function("import os, tasks", "raise ValueError(os.listdir(tasks.__path__[0]))"))
    code = f"from tasks.sandbox import run_job\nv = run_job({job!r})\nprint(v.detail, *v.layers)"
    run = subprocess.run(
        [tmp_path / "env" / "bin" / "python", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    if "root" not in run.stdout.split():
        pytest.skip(f"this kernel gives no root: {run.stdout}")
    assert run.stdout.startswith("ValueError: []")


@pytest.mark.parametrize("mode", MODES)
def test_a_process_may_be_called_by_any_bytes(mode: str) -> None:
    program = (
        "import ctypes, time\nctypes.CDLL(None).prctl(15, b'\\xff\\xfe')\ndef f():\n    time.sleep(0.2)\n    return 1\n"
    )
    verdict = judge_in(mode, job(program, "assert f() == 1"))
    assert (verdict.status, verdict.detail) == ("pass", "")
