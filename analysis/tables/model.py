"""What a table is: lines with labels, and columns that each read one measured and one published number."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from analysis.numbers import NOTHING, Value, preset_for
from analysis.runs import Run
from analysis.study import Study

Read = Callable[[Study, Run], Value]


@dataclass(frozen=True)
class Column:
    """One quantity. `key` is also the column of the published file."""

    key: str
    title: str
    digits: int
    read: Read


@dataclass(frozen=True)
class Line:
    """A row of the article, or one of a model that the article does not have (`published` is then empty).

    Published values are kept as printed: "1.0" is not "1".
    """

    labels: tuple[str, ...]
    published: Mapping[str, str]
    run: Run | None


@dataclass(frozen=True)
class Cell:
    measured: Value
    printed: str

    @property
    def published(self) -> float | None:
        return float(self.printed) if self.printed else None

    @property
    def difference(self) -> float | None:
        """Measured - published."""
        if self.measured.value is None or self.published is None:
            return None
        return self.measured.value - self.published


@dataclass(frozen=True)
class Table:
    name: str  # "table1"
    title: str
    headers: tuple[str, ...]  # of the labels
    columns: tuple[Column, ...]
    lines: Sequence[Line]
    preset: str | None
    notes: Sequence[str]
    study: Study = field(repr=False)

    def cells(self, line: Line) -> list[Cell]:
        return [Cell(self._measured(column, line), line.published.get(column.key, "")) for column in self.columns]

    def _measured(self, column: Column, line: Line) -> Value:
        return NOTHING if line.run is None else column.read(self.study, line.run)

    @property
    def runs(self) -> list[Run]:
        """The runs behind the cells, each once, in the order of the lines."""
        return list({line.run.id: line.run for line in self.lines if line.run is not None}.values())

    def preset_of(self, run: Run) -> str | None:
        """The counting rule of this line: a server's rows hold what the server counted."""
        return self.preset and preset_for(run, self.preset)

    def reference(self, run: Run) -> str:
        """The letter under which a run is described below the table: a, b, ..., z, aa, ab, ..."""
        index, letters = self.runs.index(run), ""
        while index >= 0:
            letters = chr(ord("a") + index % 26) + letters
            index = index // 26 - 1
        return letters


def quantity(name: str, preset: str | None = None, factor: float = 1.0) -> Read:
    return lambda study, run: study.value(run, name, preset).scaled(factor)


def setting(name: str, convert: Callable[[float], float] = float) -> Read:
    """A decoder setting of the run as a number."""

    def read(study: Study, run: Run) -> Value:
        value = run.settings.get(name)
        return Value(convert(value)) if isinstance(value, int | float) else NOTHING

    return read
