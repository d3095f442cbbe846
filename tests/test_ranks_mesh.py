"""Which process of a decode is which, and what carries its tensors."""

from __future__ import annotations

import pytest
import torch

from lopa_bench.backends.ranks.mesh import Place, link_of, placed
from lopa_bench.errors import BackendError

CPU = torch.device("cpu")


def test_tensor_ranks_of_a_branch_stand_side_by_side() -> None:
    places = [Place(rank, branch_ranks=3, tensor_ranks=2) for rank in range(6)]
    assert [(place.branch, place.tensor) for place in places] == [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1)]
    assert [place.leads for place in places] == [True, False, False, False, False, False]


def test_a_launcher_gives_each_process_its_place_and_more_of_them_are_decodes_beside_each_other() -> None:
    assert placed(4, 1, {}) is None
    assert placed(4, 1, {"RANK": "0", "WORLD_SIZE": "1"}) is None  # one process of a launcher starts the others
    assert placed(1, 1, {"RANK": "3", "WORLD_SIZE": "8"}) is None
    assert placed(4, 1, {"RANK": "2", "WORLD_SIZE": "4"}) == Place(2, 4)
    assert placed(2, 2, {"RANK": "5", "WORLD_SIZE": "8"}) == Place(1, 2, 2, data=1, data_ranks=2)


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


def test_tensors_of_the_cpu_go_by_gloo_alone() -> None:
    assert link_of(CPU) == link_of(CPU, "gloo") == "gloo"
    with pytest.raises(BackendError, match=r"backend\.link=nccl is not allowed on cpu; allowed: auto, gloo"):
        link_of(CPU, "nccl")
