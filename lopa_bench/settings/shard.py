"""Which part of the problems a run takes."""

from __future__ import annotations

import re
from dataclasses import dataclass

from lopa_bench.errors import ConfigError


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
