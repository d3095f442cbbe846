"""A sweep in which every entrant has a grid of its own."""

from __future__ import annotations

from typing import Any

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser

from lopa_bench.errors import ConfigError
from lopa_bench.sweep.entrants import jobs_of


def jobs(entrants: Any, *common: str) -> list[list[str]]:
    return jobs_of(entrants, OverridesParser.create().parse_overrides(list(common)))


def test_every_entrant_has_its_own_grid_and_the_common_values() -> None:
    entrants = {"a": "decoder=greedy decoder.tokens_per_step=1,2", "b": ["decoder=d2f"]}
    assert jobs(entrants, "task.rows=1-2,3-4", "run.batch=16") == [
        ["decoder=greedy", "decoder.tokens_per_step=1", "task.rows=1-2", "run.batch=16"],
        ["decoder=greedy", "decoder.tokens_per_step=1", "task.rows=3-4", "run.batch=16"],
        ["decoder=greedy", "decoder.tokens_per_step=2", "task.rows=1-2", "run.batch=16"],
        ["decoder=greedy", "decoder.tokens_per_step=2", "task.rows=3-4", "run.batch=16"],
        ["decoder=d2f", "task.rows=1-2", "run.batch=16"],
        ["decoder=d2f", "task.rows=3-4", "run.batch=16"],
    ]


@pytest.mark.parametrize(
    ("entrants", "message"),
    [
        (None, "entrants=None holds no entrant"),
        ({}, "holds no entrant"),
        ("decoder=d2f", "holds no entrant"),
        ({"a": ""}, "entrants.a= is not allowed; allowed: overrides as on a command line"),
        ({"a": 3}, "entrants.a=3 is not allowed"),
        ({"a": [3]}, r"entrants.a=\[3\] is not allowed"),
        ({"a": "decoder"}, "entrants.a=decoder is not allowed"),
        ({"a": "decoder.k=[1"}, r"entrants.a=decoder.k=\[1 cannot be read"),
    ],
)
def test_what_is_no_entrant_is_named(entrants: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        jobs(entrants)


def test_what_an_entrant_sets_is_not_set_for_all() -> None:
    with pytest.raises(ConfigError, match=r"decoder.k is set by hydra.sweeper.entrants.a and cannot be set for all"):
        jobs({"a": "+decoder.k=2,4"}, "decoder.k=8")
