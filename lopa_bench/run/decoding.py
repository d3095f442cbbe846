"""Where the rows of a run come from: an engine in this process, or workers (workers/pool.py)."""

from __future__ import annotations

import json
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lopa_bench.errors import CheckpointError
from lopa_bench.plan.identity import check_unchanged
from lopa_bench.plan.plan import Plan
from lopa_bench.plan.units import Unit
from lopa_bench.run.missing import REDONE
from lopa_bench.run.rows import Rows as Maker
from lopa_bench.system.clock import now

if TYPE_CHECKING:
    import pyarrow as pa

    from lopa_bench.engines.base import Engine

Rows = Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]  # a sample row and its step rows


class Decoding(ABC):
    """What a run asks of whatever decodes it. `machine` as in the rows, `workers`: processes that decode at once."""

    machine: str
    workers: int = 1

    @abstractmethod
    def rows(self, units: Sequence[Unit]) -> Rows:
        """The rows of all units, as they finish."""

    @abstractmethod
    def run_row(self, status: str, started: str) -> dict[str, Any]:
        """The run's own row, without its aggregates."""

    def beside(self) -> str:
        """What the line of progress says of who decodes; empty for one process."""
        return ""


class Here(Decoding):
    """An engine in this process."""

    def __init__(self, engine: Engine, plan: Plan, run_id: str) -> None:
        self._engine = engine
        self._maker = Maker(run_id, plan, engine)
        self.machine = self._maker.machine

    def rows(self, units: Sequence[Unit]) -> Rows:
        for sample in self._engine.samples(units):
            yield self._maker.sample(sample), self._maker.steps(sample)

    def run_row(self, status: str, started: str) -> dict[str, Any]:
        return self._maker.run(status, started)


class Before(Decoding):
    """Nothing is left to decode: the facts are those of the process that decoded."""

    machine, workers = "", 0

    def __init__(self, row: Mapping[str, Any]) -> None:
        self._row = row

    def rows(self, units: Sequence[Unit]) -> Rows:
        return iter(())

    def run_row(self, status: str, started: str) -> dict[str, Any]:
        unknown = dict.fromkeys(("n", "errors", "accuracy", "tpf", "tps", "latency_s", "aggregates"))
        return {**self._row, **unknown, "status": status, "finished": None if status == "running" else now()}


@contextmanager
def here(plan: Plan, folder: Path, run_id: str) -> Iterator[Here]:
    """Loads the model in this process. Raises CheckpointError or BackendError."""
    from lopa_bench.engines.opening import open_engine

    with open_engine(plan, folder) as engine:
        try:
            check_unchanged(plan.config, plan.identity)
        except CheckpointError:
            if plan.kept is not None:
                plan.kept.drop()
            raise
        yield Here(engine, plan, run_id)


def with_workers(
    row: Mapping[str, Any], samples: Iterable[Mapping[str, Any]], decoding: Decoding | None = None
) -> dict[str, Any]:
    """A run row whose `host` says how many workers its samples were decoded by, in its life: [1], [2], or [1, 2]."""
    host = row["host"]
    counts = {sample["workers"] or 1 for sample in samples} | ({decoding.workers} if decoding else set())
    return {**row, "host": (json.loads(host) if isinstance(host, str) else host) | {"workers": sorted(counts - {0})}}


def warn_of_other_times(rows: pa.Table, decoding: Decoding) -> None:
    """Says that earlier samples of a run were decoded elsewhere, or by another number of workers."""
    seen = [row for row in rows.to_pylist() if row["finish_reason"] not in REDONE]
    names = sorted({row["machine"] for row in seen if row["machine"] is not None} - {decoding.machine})
    counts = sorted({row["workers"] or 1 for row in seen} - {decoding.workers})
    if names:
        _warn(f"this is {decoding.machine}, earlier samples were decoded on {', '.join(names)}", "different machines")
    if counts:
        before = " and ".join(map(str, counts))
        _warn(f"workers at once: {decoding.workers}, for earlier samples {before}", "different numbers of workers")


def _warn(what: str, where: str) -> None:
    print(
        f"warning: {what}: the times of this run come from {where}, so its TPS and latency are of neither",
        file=sys.stderr,
        flush=True,
    )
