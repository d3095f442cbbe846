"""What a table is, whatever it shows and in whatever format it is written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Head:
    """The head of a column, or of a group of columns with `parts` below it. `is_words`: they hold no numbers."""

    text: str
    parts: tuple[str, ...] = ()
    is_words: bool = False


@dataclass(frozen=True, kw_only=True)
class Table:
    """`rows` are what a person reads, a cell for each part of each head; `records` the same with every digit, for
    programs.

    `labels`: how many columns name the row. `kinds`: of each row, for its looks. `sources`: what the letters of the
    rows stand for.
    """

    name: str
    caption: str
    heads: Sequence[Head]
    rows: Sequence[Sequence[str]]
    keys: Sequence[str]  # of the records
    records: Sequence[Sequence[Any]]
    notes: Sequence[str] = ()
    labels: int = 1
    kinds: Sequence[str] = ()
    sources: Sequence[tuple[str, str]] = ()

    @property
    def values(self) -> list[dict[str, Any]]:
        """The records by key."""
        return [dict(zip(self.keys, record, strict=True)) for record in self.records]
