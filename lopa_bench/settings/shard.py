"""Which part of the problems a run takes, and on which devices it works at once."""

from __future__ import annotations

import re
from dataclasses import dataclass

from decoders.allowed import refused
from lopa_bench.errors import ConfigError

DEVICES = (
    "all, a number of devices from 1, their numbers such as 0,1 (each once), cpu:N for N workers on the CPU, or null "
    "for this process alone (one device of a number: backend.device=cuda:1)"
)
OF_DEVICES = ("run.devices", "backend.device")  # the settings that say who decodes; a run's key has their kind alone


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
        match = re.fullmatch(r"([0-9]+)/([0-9]+)", text)
        if match is None or int(match[1]) >= int(match[2]):
            raise ConfigError(f"run.shard={text} is not allowed; allowed: i/n with 0 <= i < n, such as 0/8, or null")
        return cls(int(match[1]), int(match[2]))


@dataclass(frozen=True)
class Devices:
    """`count`: so many, None for all there are; or `numbers`: these. `kind`: of which kind, None if not said."""

    text: str
    count: int | None = None
    numbers: tuple[int, ...] = ()
    kind: str | None = None

    @classmethod
    def parse(cls, text: str) -> Devices:
        """From all, N, 0,1,... or cpu:N. Raises ConfigError."""
        plain = text.strip()
        if plain == "all":
            return cls(text)
        if re.fullmatch(r"[0-9]+( *, *[0-9]+)+", plain):
            numbers = tuple(map(int, plain.split(",")))
            if len(set(numbers)) == len(numbers):
                return cls(text, len(numbers), numbers)
        elif match := re.fullmatch(r"(cpu:)?0*([1-9][0-9]{0,8})", plain):
            return cls(text, int(match[2]), kind="cpu" if match[1] else None)
        raise ConfigError(refused("run.devices", text, DEVICES))
