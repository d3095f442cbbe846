"""Workers as real processes, killed in the middle of a run: the rows are those of a run that nobody disturbed."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.test_processes import gone, is_there
from tests.test_workers import recorded_in, rows, steps, workers
from tests.warm import ROOT, Command, Warm

pytestmark = pytest.mark.slow

SLOW_ENOUGH = ("decoder.gen_length=64", "decoder.k=8", "task.limit=48", "run.progress=true")
DONE = re.compile(r" (\d+)/48 \(")


@pytest.fixture(scope="module")
def undisturbed(warm: Warm, settings: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The rows of one process."""
    out = tmp_path_factory.mktemp("undisturbed")
    assert warm.run(*settings, *SLOW_ENOUGH, f"run.out={out}").code == 0
    return folder_of(out)


def folder_of(out: Path) -> Path:
    (folder,) = (path for path in (out / "runs").iterdir() if path.is_dir())
    return folder


def wait_for(command: Command, samples: int) -> None:
    end = time.monotonic() + 240
    while not any(int(done) >= samples for done in DONE.findall(command.err.read_text())):
        assert time.monotonic() < end, command.err.read_text()
        assert is_there(command.pid), command.err.read_text()
        time.sleep(0.01)


def same_rows(out: Path, undisturbed: Path) -> bool:
    found = folder_of(out)
    return rows(found) == rows(undisturbed) and steps(found) == steps(undisturbed)


@pytest.mark.parametrize(
    "more", [("run.devices=2",), ("run.devices=2", "backend.branch_ranks=2"), ("run.devices=3", "run.batch=2")]
)
def test_several_processes_give_the_rows_of_one(
    warm: Warm, settings: list[str], tmp_path: Path, undisturbed: Path, more: tuple[str, ...]
) -> None:
    done = warm.run(*settings, *SLOW_ENOUGH, *more, f"run.out={tmp_path}")
    assert done.code == 0, done.err
    if len(more) == 1:
        assert same_rows(tmp_path, undisturbed)
    else:  # a batch has no time for each, ranks have their own columns
        ids = [{key: row["token_ids"] for key, row in rows(one).items()} for one in (folder_of(tmp_path), undisturbed)]
        assert ids[0] == ids[1]


def test_one_of_three_is_killed(warm: Warm, settings: list[str], tmp_path: Path, undisturbed: Path) -> None:
    command = warm.start(*settings, *SLOW_ENOUGH, "run.devices=3", f"run.out={tmp_path}")
    wait_for(command, 5)
    os.kill(command.children()[1], signal.SIGKILL)
    done = command.wait()
    assert done.code == 0, done.err
    assert re.search(r"warning: worker \d \(cpu\) was killed by SIGKILL; what it was at is redone: gsm8k-", done.err)
    assert "2 of 3 workers go on" in done.err
    assert same_rows(tmp_path, undisturbed)
    assert set(workers(folder_of(tmp_path))) == {2, 3}


def test_one_of_three_is_stopped(warm: Warm, settings: list[str], tmp_path: Path, undisturbed: Path) -> None:
    """It lives and says nothing, so that no channel closes."""
    command = warm.start(*settings, *SLOW_ENOUGH, "run.devices=3", "run.stall_s=8", f"run.out={tmp_path}")
    wait_for(command, 5)
    stopped = command.children()[1]
    os.kill(stopped, signal.SIGSTOP)
    done = command.wait()
    assert done.code == 0, done.err
    assert re.search(
        r"warning: worker \d \(cpu\) gave no sign of life for 8 s \(run.stall_s\) and was killed; what it was at is "
        "redone: gsm8k-.*; 2 of 3 workers go on",
        done.err,
    )
    assert gone(stopped)
    assert same_rows(tmp_path, undisturbed)


def progress(command: Command) -> int:
    """Samples that are done, as far as it has said."""
    return max(map(int, DONE.findall(command.err.read_text())), default=0)


def test_ten_random_kills(warm: Warm, settings: list[str], tmp_path: Path, undisturbed: Path) -> None:
    """Of workers and of the process that leads them, while samples are decoded."""
    draw = random.Random(15)
    kills: list[str] = []
    for _ in range(40):
        command = warm.start(*settings, *SLOW_ENOUGH, f"run.devices={draw.choice([2, 3])}", f"run.out={tmp_path}")
        seen = 0
        while len(kills) < 10 and is_there(command.pid):
            seen = seen + draw.randint(1, 3)
            while progress(command) < seen and is_there(command.pid):
                time.sleep(0.01)
            below = command.children()
            if not below or not is_there(command.pid):
                continue
            target = draw.choice([*below, command.pid])
            os.kill(target, signal.SIGKILL)
            kills.append("leader" if target == command.pid else "worker")
            if target == command.pid:
                assert gone(*below)
        if command.wait().code == 0:
            break
    print(f"kills: {', '.join(kills)}; workers {recorded_in(folder_of(tmp_path))}")
    assert same_rows(tmp_path, undisturbed)
    assert len(kills) == 10


def test_ctrl_c_and_a_killed_run_leave_no_worker(warm: Warm, settings: list[str], tmp_path: Path) -> None:
    for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)):
        command = warm.start(*settings, *SLOW_ENOUGH, "run.devices=2", f"run.out={tmp_path / str(code)}")
        wait_for(command, 2)
        below = command.children()
        assert len(below) == 2
        command.kill(number)
        assert command.wait().code == code
        assert gone(*below)


def rank(number: int, count: int) -> Mapping[str, str]:
    world = {"WORLD_SIZE": str(count), "LOCAL_WORLD_SIZE": str(count)}
    return {"RANK": str(number), "LOCAL_RANK": str(number), **world}


def test_launched_processes_share_a_run_and_one_takes_over_when_the_leader_is_killed(
    warm: Warm, settings: list[str], tmp_path: Path, undisturbed: Path
) -> None:
    arguments = (*settings, *SLOW_ENOUGH, f"run.out={tmp_path}")
    commands = [warm.start(*arguments, env=rank(number, 3)) for number in range(3)]
    end = time.monotonic() + 240
    while not (leaders := [one for one in commands if DONE.search(one.err.read_text())]):
        assert time.monotonic() < end
        time.sleep(0.01)
    wait_for(leaders[0], 20)
    leaders[0].kill()
    dones = [one.wait() for one in commands if one is not leaders[0]]
    assert [done.code for done in dones] == [0, 0], [done.err for done in dones]
    assert sum("going on in" in done.err for done in dones) == 1
    assert same_rows(tmp_path, undisturbed)
    assert not list((tmp_path / "runs").glob(".workers.*"))


def test_the_array_script_of_the_page(settings: list[str], tmp_path: Path, undisturbed: Path) -> None:
    """Two tasks of an array, the second half a run later; a third that comes when all is done."""
    page = (ROOT / "docs" / "parallel.md").read_text("utf-8")
    script = tmp_path / "array.sh"
    script.write_text(re.search(r"```bash\n(#!/bin/bash\n#SBATCH.*?)```", page, re.DOTALL)[1])

    def task(number: int) -> subprocess.Popen[str]:
        array = {"SLURM_ARRAY_TASK_ID": str(number), "SLURM_ARRAY_TASK_COUNT": "3", "SLURM_ARRAY_JOB_ID": "4711"}
        place = {"SLURM_SUBMIT_DIR": str(tmp_path), "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
        return subprocess.Popen(
            ["bash", str(script), *settings, *SLOW_ENOUGH], cwd=ROOT, env=os.environ | array | place,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    first = task(0)
    time.sleep(1)
    second = task(1)
    said: list[Any] = [one.communicate(timeout=300) for one in (first, second)]
    assert (first.returncode, second.returncode) == (0, 0), said
    assert any("joining" in err for _, err in said)
    late = task(2)
    assert "0 samples decoded here" in late.communicate(timeout=300)[1]
    assert late.returncode == 0
    assert same_rows(tmp_path / "outputs", undisturbed)
