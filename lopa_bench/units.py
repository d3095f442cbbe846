"""What a run has to decode: which problems (a shard of them), how many samples each, and the seed of each sample."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

from lopa_bench.config import ConfigError


@dataclass(frozen=True)
class Unit:
    """One decode: the n-th sample of a problem, which is known by its position in the source."""

    index: int
    sample_index: int


@dataclass(frozen=True)
class Shard:
    """The problems whose index leaves `index` when divided by `count`."""

    index: int = 0
    count: int = 1

    @classmethod
    def parse(cls, text: str | None) -> Shard:
        """From "i/n" with 0 <= i < n, or None for everything. Raises ConfigError."""
        if text is None:
            return cls()
        match = re.fullmatch(r"(\d+)/(\d+)", text)
        if match is None or int(match[1]) >= int(match[2]):
            raise ConfigError(f"run.shard={text} is not allowed; allowed: i/n with 0 <= i < n, such as 0/8, or null")
        return cls(int(match[1]), int(match[2]))

    def units(self, problems: int, samples: int) -> list[Unit]:
        """All decodes of this shard, the samples of a problem one after the other."""
        return [Unit(index, sample) for index in range(self.index, problems, self.count) for sample in range(samples)]


def sample_seed(run_seed: int, problem_id: str, sample_index: int) -> int:
    """The seed of one decode. It depends on nothing that shards, a resumed run or another limit would change."""
    digest = hashlib.sha256(f"{run_seed}\0{problem_id}\0{sample_index}".encode("utf-8", "backslashreplace"))
    return int.from_bytes(digest.digest()[:8], "big") >> 1  # 63 bits, which every generator takes
