"""Reading a published settings file key by key: each value is checked where it is read, and none is passed over."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, NoReturn

from lopa_bench.errors import CheckpointError

SIZES = 10_000_000  # no dense network has a larger side; a damaged number must not be allocated
SHOWN = 80  # characters of a value in a message
_REQUIRED: Any = object()


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object in UTF-8, as the standard has it: one value a key, no NaN.

    Raises CheckpointError for a file that is missing, unreadable or broken.
    """
    try:
        value = json.loads(path.read_bytes().decode(), object_pairs_hook=_unique, parse_constant=_no_number)
    except FileNotFoundError:
        raise CheckpointError(f"{path} is missing") from None
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}") from None
    except RecursionError:
        raise CheckpointError(f"{path} is not valid JSON: brackets are nested too deeply") from None
    except ValueError as error:  # JSON, UTF-8, and integers of thousands of digits
        raise CheckpointError(f"{path} is not valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise CheckpointError(f"{path} holds {shown(value)}; allowed: a JSON object")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"the key {next(name for name in names if names.count(name) > 1)!r} is there twice")
    return value


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON value")


def shown(value: Any) -> str:
    """A value as it stands in the file, cut to a readable length."""
    text = json.dumps(value, ensure_ascii=True)
    return text if len(text) <= SHOWN else text[: SHOWN - 3] + "..."


class Keys:
    """The keys of one settings file. `read` are those that were looked at; `finish` refuses those that were not, and
    may not be ignored.
    """

    def __init__(self, raw: Mapping[str, Any], where: str):
        self.raw = raw
        self.where = where
        self.read: set[str] = set()

    def refuse(self, key: str, allowed: str) -> NoReturn:
        """Raises CheckpointError for the value of a key."""
        if key not in self.raw:
            raise CheckpointError(f"{self.where} lacks {key}; allowed: {allowed}")
        raise CheckpointError(f"{self.where}: {key}={shown(self.raw[key])} is not allowed; allowed: {allowed}")

    def get(self, key: str, default: Any = None) -> Any:
        """The value as it is, which counts as read."""
        self.read.add(key)
        return self.raw.get(key, default)

    def count(self, key: str, default: Any = _REQUIRED, most: int = SIZES) -> int:
        """An integer from 1 to `most`."""
        value = self.get(key, default)
        if not _is_integer(value) or not 1 <= value <= most:
            self.refuse(key, f"an integer from 1 to {most}")
        return value

    def count_or_none(self, key: str, default: int | None = None, most: int = SIZES) -> int | None:
        """The same, or null."""
        return None if self.get(key, default) is None else self.count(key, default, most)

    def above_zero(self, key: str, default: float) -> float:
        """A finite number above 0."""
        value = self.get(key, default)
        if not _is_number(value) or not 0 < value < math.inf:
            self.refuse(key, "a number above 0")
        return float(value)

    def flag(self, key: str, default: bool) -> bool:
        """true or false, spelled so: 0, "false" and null are refused."""
        value = self.get(key, default)
        if not isinstance(value, bool):
            self.refuse(key, "true or false")
        return value

    def only(self, key: str, allowed: tuple[Any, ...], default: Any) -> None:
        """Refuses every value that would make another network than the `allowed` ones do."""
        value = self.get(key, default)
        if any(_same(value, one) for one in allowed):
            return
        absent = "" if key in self.raw else f", which an absent key does not mean ({shown(default)})"
        self.refuse(key, " or ".join(map(shown, allowed)) + absent)

    def token(self, key: str, size: int) -> int:
        """The id of a token of a vocabulary of `size`."""
        value = self.get(key)
        if not _is_integer(value) or not 0 <= value < size:
            self.refuse(key, f"a token id from 0 to {size - 1}")
        return value

    def token_or_none(self, key: str, size: int) -> int | None:
        """The same, or null."""
        return None if self.get(key) is None else self.token(key, size)

    def tokens(self, key: str, size: int) -> tuple[int, ...]:
        """One id, a list of ids, or null for none."""
        value = self.get(key)
        ids = [] if value is None else value if isinstance(value, list) else [value]
        if not all(_is_integer(one) and 0 <= one < size for one in ids):
            self.refuse(key, f"a token id from 0 to {size - 1}, a list of them, or null")
        return tuple(dict.fromkeys(ids))

    def finish(self, ignored: Collection[str], why: str) -> None:
        """Refuses the first key that is set, was not read, and is not among those that change nothing."""
        for key, value in self.raw.items():
            if key not in self.read and key not in ignored and value is not None:
                raise CheckpointError(f"{self.where}: {key}={shown(value)} is not understood; {why}")


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _same(value: Any, other: Any) -> bool:
    if _is_number(value) and _is_number(other):
        return value == other
    return type(value) is type(other) and value == other
