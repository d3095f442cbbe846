"""Rows of a benchmark from the embedded sets, the Hugging Face Hub or a file, with a checksum and checks."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from tasks.sources.fields import ANY, shown
from tasks.sources.files import Row, read_rows
from tasks.sources.split import Split
from tasks.types import Source, TaskError

EMBEDDED_DIR = Path(__file__).parents[1] / "embedded"


def load_split(
    split: Split, source: str, revision: str | None = None, embedded_default: bool = False
) -> tuple[list[Row], Source]:
    """Loads the rows that `source` ("auto", "embedded", "hub" or a path) names. A relative path starts at the cwd."""
    kind = resolve_source(source, embedded_default)
    if revision is not None and kind != "hub":
        raise TaskError(
            f"task.revision={revision!r} is for task.source=hub only; this run takes {split.title} from {kind!r}"
        )
    if kind == "embedded":
        return _load_embedded(split)
    if kind == "hub":
        return _load_hub(split, revision)
    return load_file(split, user_path(kind))


def user_path(text: str) -> Path:
    """A path as a user writes it."""
    try:
        return Path(text).expanduser()
    except RuntimeError as error:
        raise TaskError(f"task.source={text} is no path here: {error}") from None


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
    return rows, Source("file", name, sha256, len(rows), path=str(path))


def _load_embedded(split: Split) -> tuple[list[Row], Source]:
    if split.embedded is None:
        hub = "task.source=hub or " if split.hub else ""
        raise TaskError(f"there is no embedded set for {split.title}: give {hub}task.source=<path to a file>")
    path = EMBEDDED_DIR / split.embedded
    rows, sha256 = _read_checked(split, path)
    return rows, Source("embedded", split.embedded_title or split.title, sha256, len(rows), path=str(path))


def _load_hub(split: Split, revision: str | None) -> tuple[list[Row], Source]:
    from tasks.sources.hub import fetch_rows  # it needs `datasets`, which the other sources do not

    if split.hub is None:
        raise TaskError(f"{split.title} has no source on the Hub: give task.source=<path to a file>")
    wanted = revision or split.hub.revision
    rows, found = fetch_rows(split, wanted)
    where = f"{split.hub.name} (revision {found})"
    if len(rows) != split.hub.rows:
        raise TaskError(f"{where} has {len(rows)} rows, expected {split.hub.rows}")
    check_rows(rows, split, where)
    return rows, Source("hub", split.hub.name, canonical_sha256(rows), len(rows), found)


def canonical_sha256(rows: Iterable[Row]) -> str:
    """Checksum of rows that have no file of their own: sorted keys, compact JSON, one row a line, UTF-8."""
    digest = hashlib.sha256()
    for row in rows:
        line = json.dumps(row, sort_keys=True, ensure_ascii=False, separators=(",", ":"), default=str)
        digest.update(line.encode() + b"\n")
    return digest.hexdigest()


def check_rows(rows: list[Row], split: Split, where: str) -> None:
    """Every row is an object whose fields hold what they should; the first one that does not is named."""
    if not rows:
        raise TaskError(f"{where} has no rows; a file with {split.title} is wanted")
    fields = split.fields if isinstance(split.fields, Mapping) else dict.fromkeys(split.fields, ANY)
    for number, row in enumerate(rows, start=1):
        if not isinstance(row, dict):
            raise TaskError(f"{where}, row {number}: expected an object, found {shown(row)}")
        missing = [name for name in fields if row.get(name) is None]
        if missing:
            raise TaskError(
                f"{where}, row {number}: no value for {', '.join(missing)}; "
                f"found the fields {', '.join(map(str, row)) or '(none)'}, expected {', '.join(fields)}"
            )
        for name, kind in {**fields, **split.optional}.items():
            value = row.get(name)
            if value is not None and (fault := kind.fault(value)) is not None:
                raise TaskError(f"{where}, row {number}: {name} is {shown(value)}; {fault}")


def _read_checked(split: Split, path: Path) -> tuple[list[Row], str]:
    rows, sha256 = read_rows(path, split.title)
    check_rows(rows, split, str(path))
    expected = split.originals.get(sha256)
    if expected is not None and len(rows) != expected:
        raise TaskError(f"{path} has the checksum of {split.title} but {len(rows)} rows, expected {expected}")
    return rows, sha256
