"""A run that was stopped goes on where it stopped, whatever stopped it; a finished one is not run again."""

from __future__ import annotations

import json
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from lopa_bench.records.reading import read_run, read_samples, read_steps
from lopa_bench.records.writing import RunStore
from tests.warm import FAULTS, ROOT, Done, Warm

KILLS = 20
SAMPLES = 128  # of the runs that are killed
SLOW_ENOUGH = ("decoder.gen_length=64", "decoder.k=8")  # some 0.1 s a sample: time to stop between two samples


def run_folder(out: Path) -> Path:
    """The only run there is."""
    (folder,) = (path for path in (out / "runs").iterdir() if path.is_dir())
    return folder


def rows(folder: Path) -> dict[tuple[str, int], dict[str, Any]]:
    return {(row["problem_id"], row["sample_index"]): row for row in read_samples(folder).to_pylist()}


def ids(folder: Path) -> dict[tuple[str, int], list[int]]:
    return {key: row["token_ids"] for key, row in rows(folder).items()}


def missing(done: Done) -> int:
    """How many samples a resumed run had to decode, in its own words."""
    match = re.search(r"going on in .*: (\d+) of \d+ samples are missing", done.err)
    return int(match[1]) if match else 0


def interrupt(warm: Warm, *arguments: str, number: int = signal.SIGINT, after: str = "2/10") -> Done:
    command = warm.start(*arguments)
    command.wait_for(after)
    command.kill(number)
    return command.wait()


def test_after_ctrl_c_only_the_missing_samples_are_decoded(warm: Warm, settings: list[str], tmp_path: Path) -> None:
    arguments = [*settings, *SLOW_ENOUGH, f"run.out={tmp_path}"]
    stopped = interrupt(warm, *arguments)
    before = rows(run_folder(tmp_path))
    assert stopped.code == 130
    assert 2 <= len(before) < 10
    assert f"stopped after {len(before)} of 10 samples, kept in {run_folder(tmp_path)}" in stopped.err
    assert "to go on: python -m lopa_bench model=dream" in stopped.err
    assert read_run(run_folder(tmp_path))["status"].to_pylist() == ["interrupted"]

    again = warm.run(*arguments)
    after = rows(run_folder(tmp_path))
    assert (again.code, missing(again)) == (0, 10 - len(before))
    assert len(after) == again.values["n"] == 10
    assert "machine" not in again.err + again.out  # it is the same one
    assert {key: after[key] for key in before} == before  # not only the ids: the times of the first attempt


def test_going_on_on_another_machine_is_said_at_once_and_stays_visible(
    warm: Warm, settings: list[str], tmp_path: Path
) -> None:
    arguments = [*settings, f"run.out={tmp_path}"]
    warm.run(*arguments)
    folder = run_folder(tmp_path)
    before = rows(folder)
    (here,) = {row["machine"] for row in before.values()}
    with RunStore(folder) as store:  # as if nine had been decoded elsewhere and the last one not at all
        for (problem, sample_index), row in before.items():
            lost = {"finish_reason": "error", "error": "lost", "token_ids": [], "correct": None}
            steps = read_steps(folder).to_pylist()
            own = [step for step in steps if (step["problem_id"], step["sample_index"]) == (problem, sample_index)]
            store.add(row | {"machine": "node7 (H100, 8 threads)"} | (lost if row["problem_index"] == 9 else {}), own)

    again = warm.run(*arguments)
    assert missing(again) == 1
    assert f"warning: this is {here}, earlier samples were decoded on node7 (H100, 8 threads)" in again.err
    assert [row["machine"] for row in rows(folder).values()] == ["node7 (H100, 8 threads)"] * 9 + [here]
    (aggregates,) = map(json.loads, read_run(folder)["aggregates"].to_pylist())
    assert aggregates["machines"] == {"node7 (H100, 8 threads)": 9, here: 1}
    assert "the times come from different machines (node7 (H100, 8 threads) 9" in " ".join(again.out.split())


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_batch_system_that_ends_the_job_loses_nothing(
    warm: Warm, settings: list[str], tmp_path: Path, number: int, code: int
) -> None:
    stopped = interrupt(warm, *settings, *SLOW_ENOUGH, f"run.out={tmp_path}", number=number)
    assert stopped.code == code
    assert len(rows(run_folder(tmp_path))) >= 2


def test_a_finished_run_is_printed_and_a_changed_threshold_is_another_run(
    warm: Warm, settings: list[str], tmp_path: Path
) -> None:
    arguments = [*settings, "decoder.tau_conf=0.9", f"run.out={tmp_path}"]
    first = warm.run(*arguments)
    again = warm.run(*arguments)
    assert "finished at" in again.err
    assert again.values == first.values  # the same run with the same times
    changed = warm.run(*settings, "decoder.tau_conf=0.8", f"run.out={tmp_path}")
    assert changed.values["n"] == 10
    assert changed.values["run_id"] != first.values["run_id"]
    renewed = warm.run(*arguments, "resume=false")
    assert renewed.values["run_id"] != first.values["run_id"]
    assert ids(Path(renewed.values["path"])) == ids(Path(first.values["path"]))


def test_a_finished_run_is_printed_without_torch(warm: Warm, settings: list[str], tmp_path: Path) -> None:
    first = warm.run(*settings, f"run.out={tmp_path}")
    script = (
        "import atexit, sys; atexit.register(lambda: print('torch' in sys.modules, file=sys.stderr))\n"
        "from lopa_bench.__main__ import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, *settings, f"run.out={tmp_path}"], capture_output=True, text=True, cwd=ROOT
    )
    assert done.stderr.splitlines()[-1] == "False"
    assert done.stdout == first.out


def test_four_samples_a_problem_are_forty_rows_with_their_own_seeds(
    warm: Warm, settings: list[str], tmp_path: Path
) -> None:
    done = warm.run(*settings, "task.samples=4", f"run.out={tmp_path}")
    found = rows(run_folder(tmp_path))
    assert (done.values["n"], len(found)) == (40, 40)
    assert len({row["seed"] for row in found.values()}) == 40
    assert warm.run(*settings, "task.samples=4", f"run.out={tmp_path}").values == done.values


def test_rows_of_all_shards_together_are_the_unsharded_run(warm: Warm, settings: list[str], tmp_path: Path) -> None:
    whole = warm.run(*settings, "task.samples=2", f"run.out={tmp_path}/whole")
    union: dict[tuple[str, int], list[int]] = {}
    keys = set()
    for shard in range(3):
        done = warm.run(*settings, "task.samples=2", f"run.shard={shard}/3", f"run.out={tmp_path}/shards")
        part = ids(Path(done.values["path"]))
        assert not part.keys() & union.keys()
        union |= part
        keys.add(read_run(done.values["path"])["union_key"].to_pylist()[0])
    assert union == ids(Path(whole.values["path"]))
    assert keys == set(read_run(whole.values["path"])["union_key"].to_pylist())


def test_a_shard_without_problems_is_a_finished_run(warm: Warm, settings: list[str], tmp_path: Path) -> None:
    done = warm.run(*settings, "task.limit=2", "run.shard=3/4", f"run.out={tmp_path}")
    assert (done.code, done.values["n"], done.values["accuracy"]) == (0, 0, None)


def test_a_damaged_file_is_set_aside_and_its_rows_are_redone(warm: Warm, settings: list[str], tmp_path: Path) -> None:
    first = warm.run(*settings, f"run.out={tmp_path}")
    folder = run_folder(tmp_path)
    before = ids(folder)
    for table in ("samples", "steps"):
        (part,) = (folder / table).glob("part-*.parquet")
        part.write_bytes(part.read_bytes()[:-100])
        again = warm.run(*settings, f"run.out={tmp_path}")
        assert f"{part} cannot be used" in again.err
        assert part.with_name(part.name + ".broken").exists()
        assert (missing(again), again.values["run_id"]) == (10, first.values["run_id"])
        assert ids(folder) == before
        assert len(set(read_steps(folder)["problem_id"].to_pylist())) == 10


def test_a_damaged_run_row_costs_no_sample(warm: Warm, settings: list[str], tmp_path: Path) -> None:
    first = warm.run(*settings, f"run.out={tmp_path}")
    before = rows(run_folder(tmp_path))
    (run_folder(tmp_path) / "run.parquet").write_bytes(b"PAR1")
    again = warm.run(*settings, f"run.out={tmp_path}")
    assert again.values == first.values
    assert rows(run_folder(tmp_path)) == before


def test_failed_rows_are_redone(warm: Warm, settings: list[str], tmp_path: Path) -> None:
    warm.run(*settings, f"run.out={tmp_path}")
    folder = run_folder(tmp_path)
    before = ids(folder)
    row = rows(folder)[("gsm8k-test-3", 0)]
    with RunStore(folder) as store:
        store.add(row | {"finish_reason": "error", "error": "HTTP 500", "token_ids": [], "correct": None})
    again = warm.run(*settings, f"run.out={tmp_path}")
    assert (missing(again), again.values["errors"]) == (1, 0)
    assert ids(folder) == before


def test_of_two_processes_that_start_the_same_run_at_once_one_refuses(
    warm: Warm, settings: list[str], tmp_path: Path
) -> None:
    arguments = [*settings, *SLOW_ENOUGH, f"run.out={tmp_path}"]
    commands = [warm.start(*arguments) for _ in range(2)]
    ends = [command.wait() for command in commands]
    assert sorted(done.code for done in ends) == [0, 2]
    refused = next(done for done in ends if done.code == 2)
    holder = next(command.pid for command, done in zip(commands, ends) if done.code == 0)
    lock = run_folder(tmp_path) / ".lock"
    assert f"error: {lock} is held by process {holder} on " in refused.err
    assert len(rows(run_folder(tmp_path))) == 10


def test_slow_scoring_happens_in_chunks_outside_the_time_of_any_decode(
    warm: Warm, settings: list[str], tmp_path: Path
) -> None:
    arguments = [*settings, "task.name=faulty", "task.shots_style=slow", "task.limit=40", f"run.out={tmp_path}"]
    done = warm.run(*arguments, env={"PYTHONPATH": f"{FAULTS}"})
    assert re.findall(r"scoring (\d+) together", done.err) == ["16", "16", "8"]
    found = rows(run_folder(tmp_path)).values()
    assert len(found) == 40
    assert max(row["wall_s"] - row["total_s"] for row in found) < 0.4  # a chunk is scored in no less than 0.5


def _kill_and_resume(start: Any, wait: Any, out: Path, longest: float) -> list[int]:
    """Kills the run again and again, then lets it end; returns how many rows there were after each kill.

    Every fifth kill comes at any time after the start, the others after the first sign of the run. It lives longer
    after a kill before the first new row and shorter after a later one, so that the kills fall into the
    middle of the run on a machine of any speed.
    """
    chance, progress = random.Random(5), [0]
    for number in range(KILLS):
        started = time.time_ns()
        process = start()
        if number % 5 and progress[-1] < SAMPLES:
            _wait_for_a_sign(out, started)
        time.sleep(chance.uniform(0.0, longest))
        process.kill()
        wait(process)
        folders = [path for path in (out / "runs").glob("*") if path.is_dir()]
        progress.append(len(rows(folders[0])) if folders else 0)
        if progress[-1] < SAMPLES:
            longest *= 1.5 if progress[-1] == progress[-2] else 0.5
    wait(start())
    assert len(set(progress)) > 3, progress  # else the kills tried nothing
    return progress


def _wait_for_a_sign(out: Path, started: int) -> None:
    """Until the run has written its own row, which it does when the model is loaded."""
    while not any(path.stat().st_mtime_ns >= started for path in out.glob("runs/*/run.parquet")):
        time.sleep(0.005)


def _check_survived(out: Path, reference: Path) -> None:
    folder = run_folder(out)  # one folder: never a second run
    table = read_samples(folder)
    assert table.num_rows == len(rows(folder)) == SAMPLES
    assert ids(folder) == ids(run_folder(reference))
    assert set(read_steps(folder)["problem_id"].to_pylist()) == set(table["problem_id"].to_pylist())
    assert read_run(folder)["status"].to_pylist() == ["finished"]
    left = sorted(path.name for path in folder.rglob("*") if path.is_file() and not path.name.startswith("part-"))
    assert left == [".lock", "run.parquet"]  # nothing half written, nothing broken


@pytest.mark.slow
def test_a_run_killed_20_times_is_equal_to_one_that_was_not(warm: Warm, settings: list[str], tmp_path: Path) -> None:
    arguments = [*settings, f"task.limit={SAMPLES}", "decoder.gen_length=32"]
    began = time.monotonic()
    warm.run(*arguments, f"run.out={tmp_path}/whole")
    longest = (time.monotonic() - began) / 5
    progress = _kill_and_resume(
        lambda: warm.start(*arguments, f"run.out={tmp_path}/killed"), lambda command: command.wait(),
        tmp_path / "killed", longest,
    )  # fmt: skip
    print("rows at the start and after each kill:", progress)
    assert progress == sorted(progress)  # what was on disk stays there
    _check_survived(tmp_path / "killed", tmp_path / "whole")


@pytest.mark.slow
def test_a_fresh_process_killed_20_times_is_equal_to_one_that_was_not(settings: list[str], tmp_path: Path) -> None:
    """The same with `python -m lopa_bench` itself, imports and all. Last run: see docs/sweeps.md."""
    command = [sys.executable, "-m", "lopa_bench", *settings, f"task.limit={SAMPLES}"]

    def start(out: str = "killed") -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [*command, f"run.out={tmp_path}/{out}"], cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    began = time.monotonic()
    assert start("whole").wait() == 0
    longest = (time.monotonic() - began) / 20
    progress = _kill_and_resume(start, lambda process: process.wait(), tmp_path / "killed", longest)
    print("rows at the start and after each kill:", progress)
    _check_survived(tmp_path / "killed", tmp_path / "whole")
