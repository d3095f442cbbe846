"""A run as it is read from disk: its folder, its row by name and type, and its tables when they are asked for."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from lopa_bench.errors import RunError
from lopa_bench.records.integrity import Key, keys_of, shortfall
from lopa_bench.records.reading import read_run, read_samples, read_steps
from lopa_bench.records.schema import COLUMNS, ERROR_REASONS

if TYPE_CHECKING:
    import pyarrow as pa

# The texts of a sample are long and are read only for a replay; numbers are made of all the other columns.
TEXTS = ("prompt", "completion", "answer_text", "token_ids", "stop", "score_details", "error", "extracted")
SAMPLE_COLUMNS = tuple(name for name in COLUMNS["samples"] if name not in TEXTS)
OBJECTS = ("config", "host", "aggregates")  # columns of JSON that readers look into
KINDS: Mapping[str, Mapping[str, type]] = {  # of what they find there, if it is there
    "config": dict.fromkeys(("backend", "decoder", "imported", "model", "run", "task"), dict),
    "host": {"ranks": dict, "workers": list},
}
IMPORTED = "imported"  # the backend of a run that another tool made (analysis/imported)
# Settings that a run's name says anyway, or that change no row.
SAID_BESIDE = (
    *("task.name", "model.name", "backend.name", "run.out", "run.progress", "run.preset", "run.shard"),
    *("run.same_devices", "run.json"),
)

Value = TypeVar("Value")


class Column(Generic[Value]):
    """A column of the row, as a typed attribute. One without a kind is as it was read."""

    def __init__(self, name: str, kind: Callable[[Any], Value] = lambda value: value) -> None:
        self.name, self.kind = name, kind

    def __get__(self, run: Run, owner: type[Run]) -> Value:
        return self.kind(run.row[self.name])


@dataclass(frozen=True)
class Run:
    """One run: its folder and the row of run.parquet, whose OBJECTS are parsed. A run that was decoded in shards has a
    folder for each, and one of which only the row is known has none.
    """

    folders: tuple[Path, ...]
    row: Mapping[str, Any]

    id = Column("run_id", str)
    status = Column("status", str)
    created = Column("created", str)
    model = Column("model", str)
    toy = Column("model_is_toy", bool)
    task = Column("task", str)
    source_kind = Column("source_kind", str)
    source_name = Column("source_name", str)
    decoder = Column("decoder", str)
    backend = Column("backend", str)
    device = Column("device", str)
    dtype = Column("dtype", str)
    seed = Column("seed", int)
    scorer = Column("scorer", str)
    batch = Column("batch", int)
    n = Column("n", lambda n: int(n or 0))  # samples; 0 where the run did not come to its end
    limit = Column[int | None]("limit")
    wraps = Column[str | None]("base")  # the decoder that lookahead stands on
    k_as_set = Column[str | None]("k")  # a number, or a word
    shard = Column[str | None]("shard")
    union_key = Column[str | None]("union_key")
    source_sha256 = Column[str | None]("source_sha256")
    model_sha256 = Column[str | None]("model_sha256")
    argv = Column[Sequence[str]]("argv")
    config = Column[Mapping[str, Any]]("config")
    host = Column[Mapping[str, Any]]("host")
    aggregates = Column[Mapping[str, Any]]("aggregates")

    @property
    def folder(self) -> Path:
        """Of a union of shards the first."""
        return self.folders[0]

    @property
    def base(self) -> str:
        """The decoder without its lookahead."""
        return self.wraps or self.decoder

    @property
    def is_server(self) -> bool:
        """Whether something outside decoded: its rows hold what it told, often without calls and never with steps."""
        return self.backend != "local"

    @property
    def is_imported(self) -> bool:
        """Whether another tool decoded and its files were read: its columns are what these hold, the others null."""
        return self.backend == IMPORTED

    @property
    def is_autoregressive(self) -> bool:
        """One token a call, left to right: it has no lookahead, no threshold and often no steps."""
        return self.decoder == "ar"

    @property
    def k(self) -> int | None:
        """Lookahead branches; None where the number is not fixed."""
        if self.k_as_set is None:
            return 0
        return int(self.k_as_set) if self.k_as_set.isdecimal() else None

    @property
    def lookahead(self) -> bool:
        return self.decoder == "lopa" and self.k != 0

    @property
    def select(self) -> str:
        """How a branch is chosen; runs from before there was a choice went by the score, as the article does."""
        return str(self.settings.get("select") or "score")

    @property
    def is_lopa(self) -> bool:
        """The article's lookahead."""
        return self.lookahead and self.select == "score"

    @cached_property
    def settings(self) -> Mapping[str, Any]:
        """The decoder's resolved settings by dotted name, nested ones included."""
        return flat(self.config.get("decoder") or {})

    @cached_property
    def overrides(self) -> Mapping[str, Any]:
        """All settings that can tell two runs of a decoder apart, by the names under which they are set."""
        groups = {name: self.config.get(name) or {} for name in ("task", "model", "backend", "run")}
        found = flat({name: group for name, group in groups.items() if isinstance(group, Mapping)})
        decoder = {name: value for name, value in self.settings.items() if name not in ("name", "base", "k")}
        return decoder | {name: value for name, value in found.items() if name not in SAID_BESIDE}

    @property
    def wall_s(self) -> float | None:
        """Seconds that decoding took as a whole, where samples were decoded together."""
        return self.aggregates.get("wall_s")

    @cached_property
    def samples(self) -> pa.Table:
        """The samples' numbers (all but TEXTS), in the order of the source."""
        table = read_samples(self.folders, SAMPLE_COLUMNS)
        return table.sort_by([("problem_index", "ascending"), ("sample_index", "ascending")])

    @cached_property
    def attempted(self) -> frozenset[Key]:
        """The samples that it was asked for, decoded or not."""
        return frozenset(keys_of(self.samples))

    @cached_property
    def decoded(self) -> frozenset[Key]:
        """The samples of which there is a text."""
        reasons = self.samples["finish_reason"].to_pylist()
        return frozenset(key for key, reason in zip(keys_of(self.samples), reasons) if reason not in ERROR_REASONS)

    @cached_property
    def damage(self) -> str | None:
        """What the files of a finished run lack of what it says of itself; None for a whole one."""
        return shortfall(self.folder, self.row) if len(self.folders) == 1 else None

    def check_whole(self) -> None:
        """Raises RunError for a finished run that is damaged."""
        if self.damage:
            raise RunError(
                f"{self.folder} is damaged: {self.damage}; the command that made it, started again, does what is lost "
                "anew"
            )

    def steps(self, columns: Sequence[str]) -> pa.Table:
        """Columns of the steps, without an order across samples; the steps of a sample are in their own order."""
        import pyarrow as pa

        names = list(dict.fromkeys(["problem_id", "sample_index", "step", *columns]))
        return pa.concat_tables([read_steps(folder, names, in_order=False) for folder in self.folders])

    def whole_rows(self, problem_id: str, sample_index: int) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Everything about one sample: its rows of samples and of steps, texts included."""
        import pyarrow.compute as pc

        wanted = (pc.field("problem_id") == problem_id) & (pc.field("sample_index") == sample_index)
        samples = read_samples(self.folders).filter(wanted).to_pylist()
        steps = [
            row for folder in self.folders for row in read_steps(folder, in_order=False).filter(wanted).to_pylist()
        ]
        return samples, sorted(steps, key=lambda step: step["step"])


def open_run(folder: Path) -> Run:
    """Raises RunError where there is no run, or one whose row cannot be read."""
    try:
        row = read_run(folder).to_pylist()[0]
    except FileNotFoundError as error:
        raise RunError(str(error)) from error
    return as_run(row, folder)


def as_run(row: Mapping[str, Any], *folders: Path) -> Run:
    """A row as it was read, or as it is to be written. Raises RunError for OBJECTS that are none."""
    known = {name: row.get(name) for name in COLUMNS["run"]}
    return Run(folders, known | {column: _parsed(folders, row, column) for column in OBJECTS})


def _parsed(folders: Sequence[Path], row: Mapping[str, Any], column: str) -> Mapping[str, Any]:
    value = row.get(column) or {}
    where = folders[0] / "run.parquet" if folders else "a run's row"
    try:
        value = json.loads(value) if isinstance(value, str) else value
    except ValueError as error:
        raise RunError(f"{where}: {column} is not JSON ({error})") from None
    if not isinstance(value, Mapping):
        raise RunError(f"{where}: {column} is no object of JSON but {type(value).__name__}")
    for name, kind in KINDS.get(column, {}).items():
        if not isinstance(value.get(name), kind | None):
            raise RunError(
                f"{where}: {column}.{name} is {type(value[name]).__name__}; allowed: {kind.__name__} or null"
            )
    return value


def flat(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Nested settings by dotted name."""
    found: dict[str, Any] = {}
    for name, value in settings.items():
        nested = flat(value) if isinstance(value, Mapping) and value else {"": value}
        found |= {f"{name}.{below}" if below else name: one for below, one in nested.items()}
    return found
