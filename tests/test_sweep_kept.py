"""keep_model=true: a job that has finished hands its process and its model to the next, and nothing else.

That a process loads the same model once, and what counts as the same, is in test_kept_network.py.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.test_sweep import FAULTY, record, start
from tests.test_workers import rows
from tests.test_workers_killed import folder_of
from tests.warm import FAULTS, Warm


@pytest.mark.parametrize(
    ("faults", "statuses", "processes"),
    [
        (["fine", "2nd", "early-raise", "4th"], ["finished", "finished", "failed", "finished"], [0, 0, 0, 1]),
        pytest.param(
            ["fine", "early-kill", "3rd", "early-_exit", "5th", "early-exit", "7th"],
            ["finished", "killed", "finished", "vanished", "finished", "exited", "finished"],
            [0, 0, 1, 1, 2, 2, 3],
            marks=pytest.mark.slow,
        ),
    ],
)
def test_the_rows_are_those_of_processes_of_their_own_and_no_job_harms_another(
    faults: list[str], statuses: list[str], processes: list[int], warm: Warm, settings: list[str], tmp_path: Path
) -> None:
    process = start(
        "-m", *settings, *FAULTY, f"task.shots_style={','.join(faults)}", "keep_model=true", f"run.out={tmp_path}"
    )
    _, err = process.communicate(timeout=600)
    assert process.returncode == 1, err
    jobs = record(tmp_path)
    assert [job["status"] for job in jobs] == statuses
    logs = [(Path(job["folder"]) / "job.log").read_text() for job in jobs]
    pids = [re.search(r"made by process (\d+)", log)[1] for log in logs]
    assert [list(dict.fromkeys(pids)).index(pid) for pid in pids] == processes
    assert [len(re.findall("made by process", log)) for log in logs] == [1] * len(jobs)
    for number, fault in enumerate(faults):
        assert (f"[{number}] RuntimeError: this fault was asked for" in err) == (fault == "early-raise")
        is_first = processes[number] not in processes[:number]
        assert (f"[{number}] loading" in err) == (statuses[number] == "finished" and is_first)

    alone = warm.run(
        *settings, *FAULTY, "task.shots_style=fine", f"run.out={tmp_path / 'alone'}", env={"PYTHONPATH": str(FAULTS)}
    )
    assert alone.code == 0, alone.err
    expected = rows(folder_of(tmp_path / "alone"))
    for job in jobs:
        if job["status"] == "finished":
            assert rows(Path(job["path"])) == expected
