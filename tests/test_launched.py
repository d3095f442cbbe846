"""Processes that were launched together: who they are, which device is theirs, and how they find each other."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

from decoders.config import DecoderConfig
from lopa_bench.errors import ConfigError
from lopa_bench.run.workers.door import Door, knock
from lopa_bench.run.workers.launched import Rank, rank_of
from lopa_bench.settings.backend import LocalSettings, ServerSettings
from lopa_bench.settings.config import Config, RunSettings
from lopa_bench.settings.model import ModelSettings

CONFIG = Config(
    decoder=DecoderConfig(name="d2f"), model=ModelSettings(path="embedded:mini", toy=True), backend=LocalSettings()
)
TORCHRUN = {"RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2"}
SRUN = {
    "SLURM_STEP_ID": "0",
    "SLURM_PROCID": "3",
    "SLURM_LOCALID": "1",
    "SLURM_NTASKS": "4",
    "SLURM_JOB_NUM_NODES": "2",
}
ARRAY = {"SLURM_ARRAY_TASK_ID": "7", "SLURM_ARRAY_TASK_COUNT": "8", "SLURM_PROCID": "0", "SLURM_NTASKS": "1"}


@pytest.mark.parametrize(
    ("environment", "rank"),
    [
        ({}, None),
        (TORCHRUN, Rank("rank", 3, 1, True)),
        (TORCHRUN | {"LOCAL_WORLD_SIZE": "4"}, Rank("rank", 3, 1, False)),
        ({"RANK": "0", "WORLD_SIZE": "1"}, None),
        ({"RANK": "", "WORLD_SIZE": "4"}, None),
        (SRUN, Rank("srun task", 3, 1, True)),
        (SRUN | {"SLURM_JOB_NUM_NODES": "1"}, Rank("srun task", 3, 1, False)),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "4"}, None),  # a batch script before any srun
        (SRUN | {"SLURM_STEP_NUM_TASKS": "1"}, None),  # one task of a step in a job of four
        (ARRAY, Rank("array task", 7, 0, True)),
        (ARRAY | SRUN, Rank("srun task", 3, 1, True)),
        ({"SLURM_ARRAY_TASK_ID": "7"}, None),
        ({"SLURM_ARRAY_TASK_ID": "7", "SLURM_ARRAY_TASK_MIN": "2", "SLURM_ARRAY_TASK_MAX": "9"},
         Rank("array task", 7, 0, True)),
    ],
)  # fmt: skip
def test_who_a_launched_process_is(environment: dict[str, str], rank: Rank | None) -> None:
    assert rank_of(environment, CONFIG, is_alone=True) == rank


@pytest.mark.parametrize(
    ("environment", "changes", "is_alone", "message"),
    [
        (TORCHRUN | {"RANK": "x"}, {}, True, "the environment variable RANK=x is not allowed; allowed: numbers from 0"),
        (TORCHRUN | {"WORLD_SIZE": "-4"}, {}, True, "WORLD_SIZE=-4 is not allowed"),
        (TORCHRUN, {"run": RunSettings(devices="2")}, True, "run.devices=2 is not allowed as rank 3, one of several"),
        (TORCHRUN, {"resume": False}, True, "resume=false is not allowed as rank 3"),
        (TORCHRUN, {"backend": LocalSettings(prefix_reuse="approximate")}, True, "backend.prefix_reuse=approximate"),
        (SRUN, {}, False, "srun task 3 would make a whole sweep beside the others"),
    ],
)
def test_what_cannot_be_shared_is_refused(
    environment: dict[str, str], changes: dict[str, Any], is_alone: bool, message: str
) -> None:
    with pytest.raises(ConfigError, match=message.replace("(", r"\(")):
        rank_of(environment, replace(CONFIG, **changes), is_alone)


def test_a_job_of_a_sweep_in_an_array_and_a_served_run_are_processes_like_any_other() -> None:
    assert rank_of(ARRAY, CONFIG, is_alone=False) is None
    served = replace(CONFIG, backend=ServerSettings(name="openai", url="http://127.0.0.1:1"))
    assert rank_of(TORCHRUN, served, is_alone=True) is None


# --- the door


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs" / ".workers.1.json"


@pytest.fixture
def guests(path: Path) -> Iterator[SimpleQueue[Any]]:
    queue: SimpleQueue[Any] = SimpleQueue()
    with Door(path, lambda words, channel: queue.put((words, channel)), is_spread=False):
        yield queue


def test_who_knocks_gets_a_channel(path: Path, guests: SimpleQueue[Any]) -> None:
    assert path.stat().st_mode & 0o777 == 0o600
    channel = knock(path, rank="rank 3")
    assert channel is not None
    words, other = guests.get(timeout=20)
    other.send(do=[1, 0])
    assert (words, channel.receive()) == ({"rank": "rank 3"}, {"do": [1, 0]})


def test_who_does_not_know_the_secret_stays_outside(path: Path, guests: SimpleQueue[Any]) -> None:
    text = path.read_text()
    path.write_text(text.replace('"secret": "', '"secret": "00'))
    assert knock(path) is None
    path.write_text(text)
    port = int(text.split('"port": ')[1].split(",")[0])
    for words in (b"", b"GET / HTTP/1.1\r\n\r\n", b"\x7f\xff\xff\xff", os.urandom(99)):
        with socket.create_connection(("127.0.0.1", port)) as stranger:
            stranger.sendall(words)
    assert knock(path, rank="a friend") is not None
    assert guests.get(timeout=20)[0] == {"rank": "a friend"}
    assert guests.empty()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"host": "here"}', '{"host": 1, "port": "x", "secret": "zz"}'])
def test_behind_a_damaged_or_an_old_file_is_nobody(path: Path, text: str) -> None:
    path.parent.mkdir()
    path.write_text(text)
    assert knock(path) is None


def test_a_door_that_is_closed_is_known_at_once_and_leaves_no_file(path: Path) -> None:
    with Door(path, lambda words, channel: None, is_spread=False):
        left = path.read_text()
    assert not path.exists()
    path.write_text(left)  # of a leader that was killed
    began = time.monotonic()
    assert knock(path) is None
    assert time.monotonic() - began < 5
    with Door(path, lambda words, channel: None, is_spread=False):
        pass
