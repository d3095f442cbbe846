"""Which process of a decode is which, and what carries its tensors."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from lopa_bench.backends.ranks.mesh import link_of
from lopa_bench.backends.ranks.place import Place, placed
from lopa_bench.errors import BackendError, ConfigError
from lopa_bench.run.workers.launched import Rank, rank_of
from lopa_bench.settings.backend import LocalSettings
from lopa_bench.settings.config import RunSettings
from tests.test_launched import ARRAY, CONFIG, SRUN, TORCHRUN

CPU = torch.device("cpu")


def test_tensor_ranks_of_a_branch_stand_side_by_side() -> None:
    places = [Place(rank, branch_ranks=3, tensor_ranks=2) for rank in range(6)]
    assert [(place.branch, place.tensor) for place in places] == [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1)]
    assert [place.leads for place in places] == [True, False, False, False, False, False]


def test_a_launcher_gives_each_process_its_place_and_several_times_as_many_are_workers() -> None:
    assert placed(4, 1, {}) is None
    assert placed(4, 1, {"RANK": "0", "WORLD_SIZE": "1"}) is None  # one process of a launcher starts the others
    assert placed(1, 1, {"RANK": "3", "WORLD_SIZE": "8"}) is None
    assert placed(4, 1, {"RANK": "2", "WORLD_SIZE": "4"}) == Place(2, 4)
    assert placed(2, 2, {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1"}) == Place(3, 2, 2, local=1)
    assert placed(2, 2, {"RANK": "4", "WORLD_SIZE": "8"}) is None  # each of the two workers starts its ranks


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({"RANK": "0", "WORLD_SIZE": "6"}, "WORLD_SIZE=6 processes .*branch_ranks=4 .*allowed: 4 or a multiple of it"),
        ({"RANK": "4", "WORLD_SIZE": "4"}, "RANK=4 WORLD_SIZE=4 in the environment; allowed: 0 <= RANK < WORLD_SIZE"),
        ({"RANK": "x", "WORLD_SIZE": "4"}, "RANK=x WORLD_SIZE=4"),
        ({"RANK": "-1", "WORLD_SIZE": "4"}, "RANK=-1 WORLD_SIZE=4"),
    ],
)
def test_a_wrong_number_of_processes_is_named(environment: dict[str, str], said: str) -> None:
    with pytest.raises(BackendError, match=said):
        placed(4, 1, environment)


def test_a_launcher_counts_ranks_and_slurm_counts_workers() -> None:
    """Of several times as many processes as a decode takes, the first of each group starts the ranks of its worker."""
    two = replace(CONFIG, backend=LocalSettings(branch_ranks=2))

    def torchrun(number: int, world: int) -> dict[str, str]:
        local = {"LOCAL_RANK": str(number), "LOCAL_WORLD_SIZE": str(world)}
        return {"RANK": str(number), "WORLD_SIZE": str(world)} | local

    assert [rank_of(torchrun(number, 4), two, is_alone=True) for number in range(4)] == [
        Rank("rank", 0, 0, False), Rank("rank", 1, 0, False, is_spare=True),
        Rank("rank", 2, 1, False), Rank("rank", 3, 1, False, is_spare=True),
    ]  # fmt: skip
    assert rank_of(torchrun(1, 2), two, is_alone=True) is None  # one of the two ranks of one decode
    assert rank_of(SRUN, two, is_alone=True) == Rank("srun task", 3, 1, True)
    assert rank_of(ARRAY, two, is_alone=True) == Rank("array task", 7, 0, True)


@pytest.mark.parametrize(
    ("environment", "ranks", "changes", "is_alone", "message"),
    [
        (TORCHRUN, 3, {}, True, r"WORLD_SIZE=4 processes .*branch_ranks=3 x .*tensor_ranks=1; allowed: 3 or "),
        (TORCHRUN | {"WORLD_SIZE": "8"}, 4, {}, True, r"LOCAL_WORLD_SIZE=2 processes .* this machine for .* of 4"),
        (TORCHRUN, 4, {"run": RunSettings(devices="2")}, True, r"run\.devices=2 is not allowed as rank 3"),
        (TORCHRUN, 4, {}, False, "rank 3 would make a whole sweep beside the others"),
    ],
)  # fmt: skip
def test_launched_ranks_that_cannot_be_are_refused(
    environment: dict[str, str], ranks: int, changes: dict[str, Any], is_alone: bool, message: str
) -> None:
    config = replace(CONFIG, backend=LocalSettings(branch_ranks=ranks), **changes)
    with pytest.raises((ConfigError, BackendError), match=message):
        rank_of(environment, config, is_alone)


def test_tensors_of_the_cpu_go_by_gloo_alone() -> None:
    assert link_of(CPU) == link_of(CPU, "gloo") == "gloo"
    with pytest.raises(BackendError, match=r"backend\.link=nccl is not allowed on cpu; allowed: auto, gloo"):
        link_of(CPU, "nccl")
