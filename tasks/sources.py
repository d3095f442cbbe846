"""Rows of a benchmark from the embedded sets, the Hugging Face Hub or a file, with a checksum and checks."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tasks.base import Source, TaskError
from tasks.files import Row, read_rows

EMBEDDED_DIR = Path(__file__).parent / "embedded"


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
    set carry it. `embedded` names a file in tasks/embedded and `embedded_title` what a table may call it.
    """

    title: str
    fields: tuple[str, ...]
    hub: HubSet | None = None
    originals: Mapping[str, int] = field(default_factory=dict)
    embedded: str | None = None
    embedded_title: str = ""


def load_split(
    split: Split, source: str, revision: str | None = None, embedded_default: bool = False
) -> tuple[list[Row], Source]:
    """Loads the rows that `source` ("auto", "embedded", "hub" or a path) names. A relative path starts at the cwd."""
    kind = resolve_source(source, embedded_default)
    if revision is not None and kind != "hub":
        raise TaskError(f"revision={revision!r} is for source=hub only; this run takes {split.title} from {kind!r}")
    if kind == "embedded":
        return _load_embedded(split)
    if kind == "hub":
        return _load_hub(split, revision)
    return load_file(split, Path(kind).expanduser())


def resolve_source(source: str, embedded_default: bool) -> str:
    """What "auto" means for this model: the embedded sets for the embedded models, the Hub for all others."""
    if source == "auto":
        return "embedded" if embedded_default else "hub"
    return source


def load_file(split: Split, path: Path) -> tuple[list[Row], Source]:
    """Rows of a user's file. It gets the benchmark's name only if its bytes are those of the original."""
    rows, sha256 = _read_checked(split, path)
    if sha256 in split.originals:
        name = f"{split.title} (original file)"
    else:
        name = f"file {path.name} ({len(rows)} rows in the format of {split.title})"
    return rows, Source("file", name, sha256, len(rows))


def _load_embedded(split: Split) -> tuple[list[Row], Source]:
    if split.embedded is None:
        raise TaskError(f"there is no embedded set for {split.title}: give source=hub or source=<path to a file>")
    rows, sha256 = _read_checked(split, EMBEDDED_DIR / split.embedded)
    return rows, Source("embedded", split.embedded_title, sha256, len(rows))


def _load_hub(split: Split, revision: str | None) -> tuple[list[Row], Source]:
    from tasks.hub import fetch_rows  # it needs `datasets`, which the other sources do not

    if split.hub is None:
        raise TaskError(f"{split.title} has no source on the Hub: give source=<path to a file>")
    wanted = revision or split.hub.revision
    rows, found = fetch_rows(split, wanted)
    where = f"{split.hub.name} (revision {found})"
    check_rows(rows, split.fields, where)
    if len(rows) != split.hub.rows:
        raise TaskError(f"{where} has {len(rows)} rows, expected {split.hub.rows}")
    return rows, Source("hub", split.hub.name, canonical_sha256(rows), len(rows), found)


def canonical_sha256(rows: Iterable[Row]) -> str:
    """Checksum of rows that have no file of their own: sorted keys, compact JSON, one row a line, UTF-8."""
    digest = hashlib.sha256()
    for row in rows:
        line = json.dumps(row, sort_keys=True, ensure_ascii=False, separators=(",", ":"), default=str)
        digest.update(line.encode() + b"\n")
    return digest.hexdigest()


def check_rows(rows: list[Row], fields: tuple[str, ...], where: str) -> None:
    """Every row is an object that holds the fields; the first one that does not is named."""
    if not rows:
        raise TaskError(f"{where} has no rows")
    for number, row in enumerate(rows, start=1):
        if not isinstance(row, dict):
            raise TaskError(f"{where}, row {number}: expected an object, found {type(row).__name__}")
        missing = [name for name in fields if row.get(name) is None]
        if missing:
            raise TaskError(
                f"{where}, row {number}: no value for {', '.join(missing)}; "
                f"found the fields {', '.join(map(str, row)) or '(none)'}, expected {', '.join(fields)}"
            )


def _read_checked(split: Split, path: Path) -> tuple[list[Row], str]:
    rows, sha256 = read_rows(path, split.title)
    check_rows(rows, split.fields, str(path))
    expected = split.originals.get(sha256)
    if expected is not None and len(rows) != expected:
        raise TaskError(f"{path} has the checksum of {split.title} but {len(rows)} rows, expected {expected}")
    return rows, sha256
