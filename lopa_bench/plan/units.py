"""What a run has to decode: which problems (a shard of them), how many samples each, and the seed of each sample."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from lopa_bench.settings.shard import Shard


@dataclass(frozen=True)
class Unit:
    """One decode: the n-th sample of a problem, which is known by its position in the source."""

    index: int
    sample_index: int


def units_of(shard: Shard, problems: int, samples: int) -> list[Unit]:
    """All decodes of a shard, the samples of a problem one after the other."""
    return [Unit(index, sample) for index in range(shard.index, problems, shard.count) for sample in range(samples)]


def sample_seed(run_seed: int, problem_id: str, sample_index: int) -> int:
    """The seed of one decode. It depends on nothing that shards, a resumed run or another limit would change."""
    digest = hashlib.sha256(f"{run_seed}\0{problem_id}\0{sample_index}".encode("utf-8", "backslashreplace"))
    return int.from_bytes(digest.digest()[:8], "big") >> 1  # 63 bits, which every generator takes
