"""The runs on disk: which there are, what they were, and their rows.

`lopa_bench.records.reading` reads one run carefully, row by row. A report reads a hundred runs, so this module reads
only the columns it needs, whole parts at a time, and takes the careful way where a run was resumed or is damaged.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lopa_bench.metrics.comparable import key
from lopa_bench.records.integrity import shortfall
from lopa_bench.records.reading import Key, keys_of, read_run, read_samples, read_steps
from lopa_bench.records.schema import COLUMNS, ERROR_REASONS, schema

if TYPE_CHECKING:
    import pyarrow as pa

# The texts of a sample are long and are read only for a replay; numbers are made of all the other columns.
TEXTS = ("prompt", "completion", "answer_text", "token_ids", "stop", "score_details", "error", "extracted")
SAMPLE_COLUMNS = tuple(name for name in COLUMNS["samples"] if name not in TEXTS)

# Settings that labels say anyway, or that change no row.
SAID_BESIDE = ("task.name", "model.name", "backend.name", "run.out", "run.progress", "run.preset", "run.shard")

log = logging.getLogger(__name__)


class RunError(ValueError):
    """A run that is not there, or cannot answer; the message says what can be done."""


@dataclass(frozen=True)
class Run:
    """One run: its folder and the row of run.parquet. A run that was decoded in shards has a folder for each."""

    folders: tuple[Path, ...]
    row: Mapping[str, Any]

    @property
    def id(self) -> str:
        return str(self.row["run_id"])

    @property
    def model(self) -> str:
        return str(self.row["model"])

    @property
    def toy(self) -> bool:
        return bool(self.row["model_is_toy"])

    @property
    def task(self) -> str:
        return str(self.row["task"])

    @property
    def base(self) -> str:
        """The decoder without its lookahead."""
        return str(self.row["base"] or self.row["decoder"])

    @property
    def is_server(self) -> bool:
        """Whether something outside decoded: its rows hold what it told, often without calls and never with steps."""
        return self.row["backend"] != "local"

    @property
    def is_autoregressive(self) -> bool:
        """One token a call, left to right: it has no lookahead, no threshold and often no steps."""
        return self.row["decoder"] == "ar"

    @property
    def k(self) -> int | None:
        """Lookahead branches; None where the number is not fixed."""
        text = self.row["k"]
        if text is None:
            return 0
        return int(text) if str(text).isdecimal() else None

    @property
    def lookahead(self) -> bool:
        return self.row["decoder"] == "lopa" and self.k != 0

    @property
    def device(self) -> str:
        return str(self.row["device"])

    @cached_property
    def config(self) -> Mapping[str, Any]:
        return json.loads(self.row["config"])

    @cached_property
    def host(self) -> Mapping[str, Any]:
        return json.loads(self.row["host"] or "{}")

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
        return json.loads(self.row["aggregates"] or "{}").get("wall_s")

    @cached_property
    def samples(self) -> pa.Table:
        """The samples' numbers (all but TEXTS), in the order of the source."""
        import pyarrow as pa

        table = pa.concat_tables([_samples(folder) for folder in self.folders])
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
    def place(self) -> tuple[str, ...]:
        """All that two runs must share to stand side by side, but the problems of a source."""
        return key(self.row)

    @cached_property
    def damage(self) -> str | None:
        """What the files of a finished run lack of what it says of itself; None for a whole one."""
        return shortfall(self.folders[0], dict(self.row)) if len(self.folders) == 1 else None

    def steps(self, columns: Sequence[str]) -> pa.Table:
        """Columns of the steps, without an order across samples; the steps of a sample are in their own order."""
        import pyarrow as pa

        names = list(dict.fromkeys(["problem_id", "sample_index", "step", *columns]))
        return pa.concat_tables([_steps(folder, names) for folder in self.folders])

    def whole_rows(self, problem_id: str, sample_index: int) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Everything about one sample: its rows of samples and of steps, texts included."""
        import pyarrow.compute as pc

        wanted = (pc.field("problem_id") == problem_id) & (pc.field("sample_index") == sample_index)
        samples = [row for folder in self.folders for row in read_samples(folder).filter(wanted).to_pylist()]
        steps = [row for folder in self.folders for row in read_steps(folder).filter(wanted).to_pylist()]
        return samples, sorted(steps, key=lambda step: step["step"])


def flat(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Nested settings by dotted name."""
    found: dict[str, Any] = {}
    for name, value in settings.items():
        nested = flat(value) if isinstance(value, Mapping) and value else {"": value}
        found |= {f"{name}.{below}" if below else name: one for below, one in nested.items()}
    return found


def find_runs(root: Path | str) -> list[Run]:
    """All runs under an output folder, oldest first; `root` may also be the folder of runs or a single run.

    A folder whose run.parquet cannot be read is named in a warning.
    """
    root = Path(root).expanduser()
    if not root.is_dir():
        raise RunError(f"{root} is no folder")
    rows = {path for pattern in ("run.parquet", "*/run.parquet", "runs/*/run.parquet") for path in root.glob(pattern)}
    runs = []
    for path in sorted(rows):
        try:
            runs.append(open_run(path.parent))
        except (RunError, OSError) as error:
            log.warning("%s", error)
    return sorted(runs, key=lambda run: (run.row["created"], run.id))


def find_run(name: str, root: Path | str = "outputs") -> Run:
    """A run by folder, by id, or by the beginning of its id if only one has it."""
    if (Path(name) / "run.parquet").exists():
        return open_run(Path(name))
    matching = [path for path in (Path(root) / "runs").glob("*/run.parquet") if path.parent.name.startswith(name)]
    exact = [path for path in matching if path.parent.name == name]
    if len(exact or matching) != 1:
        found = ", ".join(sorted(path.parent.name for path in matching)) or "none"
        raise RunError(f"{name!r} names no single run under {root}/runs (found: {found}); give a run id or a folder")
    return open_run((exact or matching)[0].parent)


def open_run(folder: Path) -> Run:
    """Raises RunError when the folder's run.parquet does not hold a run, FileNotFoundError when there is none."""
    run = Run((folder,), read_run(folder).to_pylist()[0])
    for column in ("config", "host", "aggregates"):
        try:
            json.loads(run.row[column] or "{}")
        except ValueError as error:
            raise RunError(f"{folder / 'run.parquet'}: {column} is not JSON ({error})") from None
    return run


def usable(runs: Iterable[Run]) -> list[Run]:
    """What tables and figures are made of: finished runs, and the unions of shards of which none is missing.

    A run that stopped early, a lone shard, or a run with damaged files holds some of the problems only; the damaged
    ones are named in a warning each time.
    """
    whole, shards = [], dict[tuple[str, str], dict[str, Run]]()
    for run in runs:
        if run.row["status"] != "finished":
            continue
        if run.damage:
            log.warning("%s is left out: %s", run.folders[0], run.damage)
            continue
        if run.row["shard"] is None:
            whole.append(run)
        else:
            shard = str(run.row["shard"])
            shards.setdefault((str(run.row["union_key"]), shard.rpartition("/")[2]), {})[shard] = run
    return whole + [_union(list(group.values())) for (_, count), group in shards.items() if len(group) == int(count)]


def _union(group: list[Run]) -> Run:
    first = group[0].row
    name = f"{group[0].id} and {len(group) - 1} other shards"
    facts = {"run_id": name, "shard": None, "n": sum(run.row["n"] or 0 for run in group), "aggregates": None}
    return Run(tuple(folder for run in group for folder in run.folders), {**first, **facts})


def _samples(folder: Path) -> pa.Table:
    table = _fast(folder, "samples", SAMPLE_COLUMNS)
    return read_samples(folder).select(SAMPLE_COLUMNS) if table is None or _repeats(table) else table


def _steps(folder: Path, names: Sequence[str]) -> pa.Table:
    """The fast way needs every part of the steps to belong to the part of the samples of the same name."""
    if _names(folder, "steps") == _names(folder, "samples"):
        keys = _fast(folder, "samples", ("problem_id", "sample_index"))
        table = None if keys is None or _repeats(keys) else _fast(folder, "steps", names)
        if table is not None:
            return table
    return read_steps(folder).select(names)


def _names(folder: Path, table: str) -> list[str]:
    return sorted(path.name for path in (folder / table).glob("part-*.parquet"))


def _fast(folder: Path, table: str, columns: Sequence[str]) -> pa.Table | None:
    """All parts of a table at once, in today's schema; None if a part is not readable."""
    import pyarrow as pa
    import pyarrow.dataset as ds

    paths = [str(folder / table / name) for name in _names(folder, table)]
    wanted = pa.schema([schema(table).field(name) for name in columns])
    if not paths:
        return wanted.empty_table()
    try:
        return ds.dataset(paths, schema=wanted, format="parquet").to_table()
    except (pa.ArrowException, OSError):
        return None


def _repeats(samples: pa.Table) -> bool:
    """Whether a sample was done twice, so that the older row must go."""
    keys = samples.select(["problem_id", "sample_index"])
    return keys.group_by(["problem_id", "sample_index"]).aggregate([]).num_rows < samples.num_rows
