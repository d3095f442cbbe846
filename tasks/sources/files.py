"""Reading rows from a file: .jsonl, .jsonl.gz, .json (a list of objects) and .parquet."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tasks.sources.fields import shown
from tasks.types import TaskError

Row = dict[str, Any]


def read_rows(path: Path, title: str) -> tuple[list[Row], str]:
    """The rows of a file and the sha256 of its bytes. `title` says in errors what the file was wanted for."""
    try:
        reader = _reader(path)
        if not path.is_file():
            raise TaskError(_not_a_file(path, title))
        data = path.read_bytes()
    except OSError as error:
        raise TaskError(f"{path} cannot be read: {error.strerror}") from None
    return reader(data, path), hashlib.sha256(data).hexdigest()


class _Object(dict[str, Any]):
    """A JSON object that may have had a key more than once: then `twice` is the first of them."""

    twice: str | None = None


def _parsed(pairs: list[tuple[str, Any]], keys: list[str]) -> dict[str, Any]:
    """An object from its pairs; a key that stands in it twice is added to `keys`."""
    plain = dict(pairs)
    if len(plain) == len(pairs):
        return plain
    found, names = _Object(plain), [name for name, _ in pairs]
    found.twice = next(name for name in names if names.count(name) > 1)
    keys.append(found.twice)
    return found


def _twice_in(value: Any) -> str | None:
    """The first such key anywhere in a value."""
    if isinstance(value, _Object):
        return value.twice
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return next((key for part in inner if (key := _twice_in(part)) is not None), None)


def _without_repetition(rows: list[Row], keys: list[str], path: Path) -> list[Row]:
    """Readers differ in which value of a key they take that stands twice; `keys` are those that were met."""
    for number, row in enumerate(rows if keys else (), start=1):
        if (key := _twice_in(row)) is not None:
            raise TaskError(f"{path}, row {number}: the key {shown(key)} stands twice in one object; allowed: once")
    return rows


def _reader(path: Path) -> Callable[[bytes, Path], list[Row]]:
    for ending, reader in READERS.items():
        if path.name.lower().endswith(ending):
            return reader
    if path.suffix or path.exists():
        raise TaskError(f"{path}: unknown format, expected a file that ends in {', '.join(READERS)}")
    raise TaskError(
        f"task.source={str(path)!r} is neither auto, embedded nor hub, and no such file is in {Path.cwd()} "
        f"(files end in {', '.join(READERS)})"
    )


def _not_a_file(path: Path, title: str) -> str:
    state = "is a folder" if path.is_dir() else "does not exist"
    return f"{path} {state} (looked at {path.absolute()}); a file with {title} is wanted"


def _read_jsonl(data: bytes, path: Path) -> list[Row]:
    rows, keys = [], list[str]()
    for number, line in enumerate(_decode(data, path).split("\n"), start=1):
        if line.strip():
            rows.append(_parse_line(line, number, path, keys))
    return _without_repetition(rows, keys, path)


class _Damaged(ValueError):
    """Text that is no JSON which can be read; `line` counts from 1."""

    def __init__(self, reason: str, line: int = 1) -> None:
        super().__init__(reason)
        self.line = line


def _parse(text: str, keys: list[str]) -> Any:
    try:
        return json.loads(text, object_pairs_hook=lambda pairs: _parsed(pairs, keys))
    except json.JSONDecodeError as error:
        raise _Damaged(error.msg, error.lineno) from None
    except RecursionError:
        raise _Damaged("brackets in brackets, too deep") from None
    except ValueError:
        raise _Damaged(f"a number of more than {sys.get_int_max_str_digits()} digits") from None


def _parse_line(line: str, number: int, path: Path, keys: list[str]) -> Row:
    try:
        row = _parse(line, keys)
    except _Damaged as error:
        raise TaskError(
            f"{path}, line {number}: expected one JSON object a line, found {line[:60]!r} ({error})"
        ) from None
    if isinstance(row, list) and number == 1:
        raise TaskError(
            f"{path}, line 1: expected one JSON object a line, found a list; a file that is one list ends in .json"
        )
    return row


def _read_jsonl_gz(data: bytes, path: Path) -> list[Row]:
    try:
        return _read_jsonl(gzip.decompress(data), path)
    except (OSError, EOFError, zlib.error) as error:
        raise TaskError(f"{path}: damaged or truncated gzip file of {len(data)} bytes ({error})") from None


def _read_json(data: bytes, path: Path) -> list[Row]:
    keys: list[str] = []
    try:
        rows = _parse(_decode(data, path), keys)
    except _Damaged as error:
        raise TaskError(f"{path}: damaged JSON at line {error.line} ({error})") from None
    if not isinstance(rows, list):
        raise TaskError(f"{path}: expected a JSON list of objects, found {type(rows).__name__}")
    return _without_repetition(rows, keys, path)


def _read_parquet(data: bytes, path: Path) -> list[Row]:
    import pyarrow.parquet

    try:
        return pyarrow.parquet.read_table(io.BytesIO(data)).to_pylist()
    except (pyarrow.ArrowException, OSError, ValueError, OverflowError) as error:  # also columns or fields of one name
        reason = " ".join(str(error).split())[:200]
        raise TaskError(f"{path}: damaged parquet file of {len(data)} bytes ({reason})") from None


def _decode(data: bytes, path: Path) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise TaskError(f"{path}, line {line}: not UTF-8 ({error.reason})") from None


READERS: dict[str, Callable[[bytes, Path], list[Row]]] = {
    ".jsonl.gz": _read_jsonl_gz,
    ".jsonl": _read_jsonl,
    ".json": _read_json,
    ".parquet": _read_parquet,
}
