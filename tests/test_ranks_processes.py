"""Ranks as processes: a run on several of them has the rows of one; what ends a rank is told, and the run goes on."""

from __future__ import annotations

import os
import random
import re
import signal
import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from lopa_bench.records.reading import read_samples, read_steps
from tests.warm import Command, Done, Warm

OF_A_PROCESS = {
    "run_id", "prefill_s", "decode_s", "total_s", "wall_s", "machine", "workers", "branch_ranks", "seconds",
    "readout_bytes", "commit_bytes",
}  # fmt: skip
NEARLY = {"scores", "probs", "winner_score", "anchor_score", "fresh_probs", "bonus", "gain"}
PATIENT = "backend.rank_timeout_s=100"  # for a machine that does other things too


@dataclass
class Kept:
    """Samples and steps of a run without what differs from process to process, and its scores and probabilities."""

    samples: list[dict[str, Any]]
    steps: list[dict[str, Any]]
    measured: list[float]


def folder_of(out: Path) -> Path:
    (folder,) = (path for path in (out / "runs").iterdir() if path.is_dir() and path.name[0].isdigit())
    return folder


def rows_of(out: Path) -> Kept:
    folder = folder_of(out)
    samples = sorted(read_samples(folder).to_pylist(), key=lambda row: row["problem_index"])
    steps = sorted(read_steps(folder).to_pylist(), key=lambda row: (row["problem_id"], row["step"]))
    measured = [value for step in steps for value in (*step["scores"], *step["probs"])]
    drop = OF_A_PROCESS | NEARLY
    kept = [[{k: v for k, v in row.items() if k not in drop} for row in rows] for rows in (samples, steps)]
    return Kept(kept[0], kept[1], measured)


def check_same(out: Path, expected: Kept) -> None:
    found = rows_of(out)
    assert found.samples == expected.samples
    assert found.steps == expected.steps
    assert found.measured == pytest.approx(expected.measured, abs=1e-5)


def ended(warm: Warm, out: Path, *overrides: str) -> Done:
    return warm.start(*overrides, f"run.out={out}").wait()


@pytest.fixture(scope="module")
def shared() -> list[str]:
    """On the embedded model: a random one has too many confidences that are nearly equal."""
    return ["decoder.k=7", "task.limit=4", "run.warmup=0", "backend.device=cpu", "decoder.gen_length=64"]


@pytest.fixture(scope="module")
def alone(warm: Warm, shared: list[str], tmp_path_factory: pytest.TempPathFactory) -> Kept:
    out = tmp_path_factory.mktemp("alone")
    assert ended(warm, out, *shared).code == 0
    return rows_of(out)


def killed_after(command: Command, text: str, number: int, child: int = -1) -> tuple[Done, float]:
    """How a command ended of which a child got this signal, and how long that took."""
    command.wait_for(text)
    os.kill(command.children()[child], number)
    began = time.monotonic()
    return command.wait(), time.monotonic() - began


def test_two_ranks_have_the_rows_of_one_process_and_say_so(
    warm: Warm, shared: list[str], alone: Kept, tmp_path: Path
) -> None:
    done = ended(warm, tmp_path, *shared, "backend.branch_ranks=2", "backend.branch_check=true", PATIENT)
    assert done.code == 0, done.err
    check_same(tmp_path, alone)
    samples = read_samples(folder_of(tmp_path)).to_pylist()
    assert {row["branch_ranks"] for row in samples} == {2}
    assert all("2 branch ranks" in row["machine"] for row in samples)


@pytest.mark.slow
@pytest.mark.parametrize("overrides", [["decoder.attention=block_causal", "backend.branch_protocol=single_phase"], []])
def test_a_killed_rank_is_named_and_the_run_goes_on_with_another_number(
    warm: Warm, shared: list[str], alone: Kept, tmp_path: Path, overrides: Sequence[str]
) -> None:
    expected = alone
    if overrides:
        assert ended(warm, tmp_path / "alone", *shared, *overrides[:1]).code == 0
        expected = rows_of(tmp_path / "alone")
    out = tmp_path / "out"
    command = warm.start(*shared, *overrides, "backend.branch_ranks=4", PATIENT, f"run.out={out}")
    done, seconds = killed_after(command, "1/4", signal.SIGKILL, child=1)
    assert done.code == 2
    assert len(re.findall("^error: ", done.err, re.MULTILINE)) == 1
    assert re.search(
        r"error: rank 2 of 4 \(process \d+ on .*\) was killed by SIGKILL; what was decoded is kept", done.err
    )
    assert seconds < 30
    assert ended(warm, out, *shared, *overrides, "backend.branch_ranks=3", PATIENT).code == 0
    check_same(out, expected)
    used = {row["branch_ranks"] for row in read_samples(folder_of(out)).to_pylist()}
    assert used == {3, 4}


@pytest.mark.slow
def test_a_rank_that_stands_still_is_named_within_half_a_minute(warm: Warm, shared: list[str], tmp_path: Path) -> None:
    command = warm.start(*shared, "backend.branch_ranks=2", f"run.out={tmp_path}")
    done, seconds = killed_after(command, "1/4", signal.SIGSTOP)
    assert done.code == 2
    assert re.search(
        r"error: rank 1 of 2 \(process \d+ on .*\) (gives no sign of life|has given no sign|stands still)", done.err
    )
    assert seconds < 30


@pytest.mark.slow
def test_ten_random_kills_leave_the_rows_of_an_undisturbed_run(
    warm: Warm, shared: list[str], alone: Kept, tmp_path: Path
) -> None:
    draw, kills = random.Random(7), 0
    while kills < 10:
        command = warm.start(*shared, f"backend.branch_ranks={draw.choice([2, 3, 4])}", PATIENT, f"run.out={tmp_path}")
        end = time.monotonic() + draw.uniform(1, 9)
        while time.monotonic() < end and "4/4" not in command.err.read_text():
            time.sleep(0.02)
        victim = draw.choice([*command.children(), command.pid])
        with suppress(ProcessLookupError):
            os.kill(victim, signal.SIGKILL)
        kills += 1
        done = command.wait()
        assert done.code in (0, 2, -9), done.err
        assert "Traceback" not in done.err
    assert ended(warm, tmp_path, *shared, "backend.branch_ranks=2", PATIENT).code == 0
    check_same(tmp_path, alone)


def launched(
    warm: Warm, out: Path, world: int, *overrides: str, of: Sequence[Sequence[str]] = ((), ())
) -> list[Command]:
    """These processes as a launcher starts them, each with further settings `of` its own."""
    address = {"WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    common = (*overrides, "backend.branch_ranks=2", f"run.out={out}")
    return [
        warm.start(*common, *own, env=address | {"RANK": str(rank), "LOCAL_RANK": str(rank)})
        for rank, own in enumerate(of)
    ]


@pytest.mark.slow
def test_ranks_of_a_launcher_run_the_same_command(warm: Warm, shared: list[str], alone: Kept, tmp_path: Path) -> None:
    """Rank 0 has the run; a second start finds it finished, and both processes end well."""
    for _ in range(2):
        first, second = (command.wait() for command in launched(warm, tmp_path, 2, *shared, PATIENT))
        assert (first.code, second.code) == (0, 0), (first, second)
        assert "accuracy" in first.out
        assert (second.out, second.err) == ("", "")
        check_same(tmp_path, alone)


@pytest.mark.slow
def test_twice_as_many_launched_processes_are_two_workers_of_two_ranks(
    warm: Warm, shared: list[str], alone: Kept, tmp_path: Path
) -> None:
    """The first of each pair starts the other rank itself."""
    dones = [command.wait() for command in launched(warm, tmp_path, 4, *shared, PATIENT, of=[()] * 4)]
    assert [done.code for done in dones] == [0] * 4, dones
    assert sum("joining" in done.err for done in dones) == 1
    assert ["this one has nothing to do" in done.err for done in dones] == [False, True, False, True]
    check_same(tmp_path, alone)
    assert {row["branch_ranks"] for row in read_samples(folder_of(tmp_path)).to_pylist()} == {2}


@pytest.mark.slow
@pytest.mark.parametrize("victim", [0, 1])
def test_a_launched_rank_that_stands_still_is_named_by_the_other(
    warm: Warm, shared: list[str], tmp_path: Path, victim: int
) -> None:
    """Also rank 0, with which the store of torch stands still that the ranks keep their words in."""
    both = launched(warm, tmp_path, 2, *shared)
    both[0].wait_for("1/4")
    both[victim].kill(signal.SIGSTOP)
    began = time.monotonic()
    done = both[1 - victim].wait()
    seconds = time.monotonic() - began
    both[victim].kill()
    both[victim].wait()
    assert done.code == 2
    assert re.search(rf"^error: rank {victim} of 2 \(process {both[victim].pid} on .*\) .*\n$", done.err, re.MULTILINE)
    assert seconds < 30


@pytest.mark.slow
def test_launched_ranks_with_other_settings_end_before_weights_are_read(
    warm: Warm, shared: list[str], tmp_path: Path
) -> None:
    both = launched(warm, tmp_path, 2, *shared, PATIENT, of=[["decoder.k=7"], ["decoder.k=6"]])
    first, second = (command.wait() for command in both)
    assert (first.code, second.code) == (2, 2), (first, second)
    assert re.search(r"error: rank 1 of 2 .* is unlike rank 0: settings differ \(decoder\.k=6, there 7\)", first.err)


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
