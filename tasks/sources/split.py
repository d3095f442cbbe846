"""Where a split of a benchmark can be had, and what its rows hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tasks.sources.fields import Kind


@dataclass(frozen=True)
class HubSet:
    """Where a split lives on the Hub. `configs` are concatenated; `revision` is the commit that was pinned."""

    path: str
    split: str
    rows: int
    configs: tuple[str | None, ...] = (None,)
    revision: str | None = None

    @property
    def name(self) -> str:
        configs = [config for config in self.configs if config is not None]
        middle = configs[0] + "/" if len(configs) == 1 else f"({len(configs)} configs)/" if configs else ""
        return f"{self.path} {middle}{self.split}"


@dataclass(frozen=True)
class Split:
    """One split of a benchmark: what its rows hold and where it can be had.

    `title` is the benchmark's own name; only the original files (`originals`: sha256 -> number of rows) and the Hub
    set carry it. `fields` must have a value, of a kind if one is given; `optional` fields may be absent or null.
    `embedded` names a file in tasks/embedded (or, as a whole path, beside a task of one's own) and `embedded_title`
    what a table may call it.
    """

    title: str
    fields: Mapping[str, Kind] | tuple[str, ...]
    optional: Mapping[str, Kind] = field(default_factory=dict)
    hub: HubSet | None = None
    originals: Mapping[str, int] = field(default_factory=dict)
    embedded: str | None = None
    embedded_title: str = ""
