"""Tables that set measured numbers beside the article's: lines with labels, and columns that each read one quantity."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from analysis.labels import describe, hardware, source_of
from analysis.study import Study, preset_for
from analysis.tables.model import Head, Table
from analysis.tables.notes import mark, notes_of
from analysis.text import Ours, typeset
from lopa_bench.console.numbers import UNKNOWN, fixed, signed
from lopa_bench.metrics.statistics import Estimate
from lopa_bench.records.runs import Run

Read = Callable[[Study, Run, Sequence[Run]], Estimate]  # of a run, on the samples that it shares with others

NO_RUN = "no run"
NOTHING = typeset(UNKNOWN)
PARTS = ("measured", "published", "difference")
_RECORD_PARTS = ("", "_low", "_high", "_published", "_difference")
_RUN_KEYS = ("n", "source", "run_model", "run_model_is_toy", "hardware", "preset", "run_id")


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


@dataclass(frozen=True, kw_only=True)
class ArticleTable(Table):
    headers: tuple[str, ...]  # of the labels
    columns: tuple[Column, ...]
    lines: Sequence[Line]
    study: Study = field(repr=False)

    def cells(self, line: Line) -> list[Cell]:
        return _cells(self.study, self.columns, line)

    def n(self, line: Line) -> int | None:
        return _n(self.study, line)


def article_table(
    study: Study,
    name: str,
    title: str,
    headers: tuple[str, ...],
    columns: tuple[Column, ...],
    lines: Sequence[Line],
    preset: str | None,
    free: Sequence[str] = (),
) -> ArticleTable:
    """`preset`: the article's counting rule. `free`: facts of lopa_bench.metrics.comparable in which rows of this table
    differ by intention.
    """
    runs = list({line.run.id: line.run for line in lines if line.run is not None}.values())
    letters = {run.id: _letters(index) for index, run in enumerate(runs)}
    apart = [_stands_apart(study, lines, line, free) for line in lines]
    ends = [_end(study, line, letters, preset) for line in lines]
    return ArticleTable(
        name=name,
        caption=f"Table {name.removeprefix('table')}. {title}" + (f" (counting preset {preset})" if preset else ""),
        heads=[
            *(Head(text, is_words=True) for text in headers),
            *(Head(column.title, PARTS) for column in columns),
            Head("n"),
            Head("run", is_words=True),
        ],
        rows=[
            [*line.labels, *_texts(study, columns, line), n, Ours(reference + "‡" * is_apart)]
            for line, (n, reference), is_apart in zip(lines, ends, apart)
        ],
        keys=[*headers, *(column.key + part for column in columns for part in _RECORD_PARTS), *_RUN_KEYS],
        records=[_record(study, columns, line, preset) for line in lines],
        notes=notes_of(name, runs, preset, any(apart)),
        labels=len(headers),
        kinds=["none" if line.run is None else "both" if line.published else "own" for line in lines],
        sources=[
            (letters[run.id], describe(run, study.numbers(run).n, preset and preset_for(run, preset))) for run in runs
        ],
        headers=headers,
        columns=columns,
        lines=lines,
        study=study,
    )


def quantity(name: str, preset: str | None = None, factor: float = 1.0) -> Read:
    return lambda study, run, among: study.value(run, name, preset, among).scaled(factor)


def setting(name: str, convert: Callable[[float], float] = float) -> Read:
    """A decoder setting of the run as a number."""

    def read(study: Study, run: Run, among: Sequence[Run]) -> Estimate:
        value = run.settings.get(name)
        return Estimate(convert(value)) if isinstance(value, int | float) else Estimate()

    return read


def _cells(study: Study, columns: Sequence[Column], line: Line) -> list[Cell]:
    return [
        Cell(
            Estimate() if line.run is None else column.read(study, line.run, line.among),
            line.published.get(column.key, ""),
        )
        for column in columns
    ]


def _n(study: Study, line: Line) -> int | None:
    return None if line.run is None else study.numbers(line.run, line.among).decoded


def _texts(study: Study, columns: Sequence[Column], line: Line) -> Iterator[str]:
    for column, cell in zip(columns, _cells(study, columns, line)):
        value = fixed(cell.measured.value, column.digits, cell.measured.interval)
        yield NO_RUN if line.run is None else typeset(value)
        yield cell.printed or NOTHING
        yield typeset(signed(cell.difference, column.digits))


def _end(study: Study, line: Line, letters: Mapping[str, str], preset: str | None) -> tuple[str, str]:
    """n, and the letter under which the run is described below the table, with the mark of how it is counted."""
    if line.run is None:
        return NOTHING, ""
    return str(_n(study, line)), f"[{letters[line.run.id]}]{mark(line.run, preset)}"


def _record(study: Study, columns: Sequence[Column], line: Line, preset: str | None) -> list[Any]:
    record: list[Any] = [Ours(label) if line.published else label for label in line.labels]
    for cell in _cells(study, columns, line):
        low, high = cell.measured.interval or (None, None)
        record += [cell.measured.value, low, high, cell.published, cell.difference]
    run = line.run
    if run is None:
        return [*record, None, None, None, None, None, preset, NO_RUN]
    rule = preset and preset_for(run, preset)
    return [*record, _n(study, line), source_of(run), run.model, run.toy, hardware(run), rule, run.id]


def _letters(index: int) -> str:
    """a, b, ..., z, aa, ab, ..."""
    letters = ""
    while index >= 0:
        letters = chr(ord("a") + index % 26) + letters
        index = index // 26 - 1
    return letters


def _stands_apart(study: Study, lines: Sequence[Line], line: Line, free: Sequence[str]) -> bool:
    """Whether a line is on other problems, another device or otherwise asked than the first of its task: then the two
    say nothing of each other.
    """
    run = line.run
    if run is None:
        return False
    rows = [one.run for one in lines if one.run and one.run.task == run.task and _are_kin(one, line)]
    first = max(rows, key=lambda one: len(one.attempted))
    return bool(study.standing(first, run, ("model", *free)).differences) or first.attempted != run.attempted


def _are_kin(one: Line, line: Line) -> bool:
    """Rows of the article are read together; below them, those of one model."""
    if one.published or line.published:
        return bool(one.published) == bool(line.published)
    return one.run is not None and line.run is not None and one.run.model == line.run.model
