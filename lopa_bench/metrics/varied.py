"""The runs of a sweep as they are measured, and what they differ in: the overrides that not all of them have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lopa_bench.records.runs import Run


@dataclass(frozen=True)
class Measured:
    """A run with its aggregates, by the names of docs/metrics.md, and the overrides that it was given in a sweep."""

    run: Run
    numbers: Mapping[str, Any]
    overrides: Sequence[str] = ()

    @property
    def preset(self) -> str:
        """The rule that it was counted by."""
        return self.numbers.get("preset", "effective")


# Settings that change no number; shards are parts of one run.
NO_MATTER = (
    "run.out", "run.progress", "run.json", "run.shard", "run.stall_s", "resume", "fail_fast", "keep_model", "against",
)  # fmt: skip


def by_name(overrides: Iterable[str]) -> dict[str, str]:
    """Overrides as name and value; options and settings that change nothing are left out."""
    found = {}
    for text in overrides:
        name, sign, value = text.partition("=")
        if sign and not name.startswith("-") and not name.startswith(("hydra", "tracker")) and name not in NO_MATTER:
            found[name.lstrip("+")] = value
    return found


def differing(all_overrides: Sequence[Iterable[str]]) -> list[dict[str, str]]:
    """Of each run's overrides those that not all runs have with the same value."""
    named = [by_name(overrides) for overrides in all_overrides]
    return [
        {name: value for name, value in own.items() if any(other.get(name) != value for other in named)}
        for own in named
    ]


def varied(runs: Sequence[Measured]) -> list[dict[str, str]]:
    """What each run of a sweep was given that others were not."""
    return differing([one.overrides for one in runs])


def settings_of(own: Mapping[str, str], run: Run) -> dict[str, Any]:
    """For programs: values as the run's configuration holds them, where it has the name, else as they were given."""
    return {name: _looked_up(run.config, name, value) for name, value in own.items()}


def _looked_up(config: Any, name: str, given: str) -> Any:
    value = config
    for part in name.split("."):
        if not isinstance(value, Mapping) or part not in value:
            return given
        value = value[part]
    return given if isinstance(value, Mapping) else value


def as_text(own: Mapping[str, str]) -> str:
    return " ".join(f"{name}={value}" for name, value in own.items())
