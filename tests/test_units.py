"""What a run has to decode: shards that are disjoint and complete, and the seed of each sample."""

from __future__ import annotations

import pytest

from lopa_bench.errors import ConfigError
from lopa_bench.plan.units import Unit, sample_seed, units_of
from lopa_bench.settings.shard import Shard


def test_shards_are_disjoint_and_complete() -> None:
    parts = [units_of(Shard.parse(f"{index}/3"), 10, 2) for index in range(3)]
    together = [unit for part in parts for unit in part]
    assert len(together) == len(set(together)) == 20
    assert set(together) == set(units_of(Shard.parse(None), 10, 2))
    assert parts[1][:3] == [Unit(1, 0), Unit(1, 1), Unit(4, 0)]


@pytest.mark.parametrize("text", ["8/8", "-1/2", "1", "a/b", "0/0", "1/2/3", ""])
def test_a_wrong_shard_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="0 <= i < n"):
        Shard.parse(text)


def test_the_seed_of_a_sample_depends_on_run_seed_problem_and_number_alone() -> None:
    seeds = {sample_seed(seed, problem, number) for seed in (0, 1) for problem in ("a", "b") for number in (0, 1)}
    assert len(seeds) == 8
    assert sample_seed(0, "gsm8k-test-0", 0) == 1_285_823_718_892_963_047  # for ever
