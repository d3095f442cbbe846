"""What a table is: lines with labels, and columns that each read one measured and one published number."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from analysis.study import Study, preset_for
from lopa_bench.metrics.statistics import Estimate
from lopa_bench.records.runs import Run

Read = Callable[[Study, Run, Sequence[Run]], Estimate]  # of a run, on the samples that it shares with others


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

    Published values are kept as printed: "1.0" is not "1". `among`: the runs with which this one stands side by side,
    so that only samples count that all of them decoded.
    """

    labels: tuple[str, ...]
    published: Mapping[str, str]
    run: Run | None
    among: Sequence[Run] = ()


@dataclass(frozen=True)
class Cell:
    measured: Estimate
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
    free: tuple[str, ...] = ()  # facts of lopa_bench.metrics.comparable in which rows of this table differ by intention

    def cells(self, line: Line) -> list[Cell]:
        return [Cell(self._measured(column, line), line.published.get(column.key, "")) for column in self.columns]

    def _measured(self, column: Column, line: Line) -> Estimate:
        return Estimate() if line.run is None else column.read(self.study, line.run, line.among)

    def n(self, line: Line) -> int | None:
        return None if line.run is None else self.study.numbers(line.run, line.among).decoded

    def stands_apart(self, line: Line) -> bool:
        """Whether a line is on other problems, another device or otherwise asked than the first of its task: then the
        two say nothing of each other.
        """
        if line.run is None:
            return False
        run = line.run
        rows = [one.run for one in self.lines if one.run and one.run.task == run.task and self._is_kin(one, line)]
        first = max(rows, key=lambda one: len(one.attempted))
        return bool(self.study.standing(first, run, ("model", *self.free)).differences) or (
            first.attempted != run.attempted
        )

    def _is_kin(self, one: Line, line: Line) -> bool:
        """Rows of the article are read together; below them, those of one model."""
        if one.published or line.published:
            return bool(one.published) == bool(line.published)
        return one.run is not None and line.run is not None and one.run.model == line.run.model

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
    return lambda study, run, among: study.value(run, name, preset, among).scaled(factor)


def setting(name: str, convert: Callable[[float], float] = float) -> Read:
    """A decoder setting of the run as a number."""

    def read(study: Study, run: Run, among: Sequence[Run]) -> Estimate:
        value = run.settings.get(name)
        return Estimate(convert(value)) if isinstance(value, int | float) else Estimate()

    return read
