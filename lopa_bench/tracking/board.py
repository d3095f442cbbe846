"""A run for TensorBoard: a folder of events below the output folder, written with TensorBoard's own package alone."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lopa_bench.metrics.aggregate import Running
from lopa_bench.tracking.mlflow import numbers_of
from lopa_bench.tracking.tracker import Guarded, config_of, histogram_of, live_numbers, step_histogram

if TYPE_CHECKING:
    import pyarrow as pa


class TensorboardTracker(Guarded):
    """A folder with the run's id, in `folder`; with a number if there is one already."""

    service = "TensorBoard"
    draws_steps = True

    def __init__(self, folder: Path, varied: str | None = None, patience: float | None = None) -> None:
        super().__init__(patience)
        self.folder, self.varied = folder, varied
        self.running = Running()
        self.place = str(folder)

    def sample(self, row: Mapping[str, Any]) -> None:
        self.running.add(row)
        numbers, step = live_numbers(self.running, row), self.running.n
        self._on_run("log", lambda run: self._numbers(run, numbers, step))

    def fail(self, reason: str) -> None:
        self._on_run("mark as failed", lambda run: self._end(run, "failed", reason))

    def _started(self, run: Mapping[str, Any]) -> Any:
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        name = re.sub(r"[^\w.-]+", "-", str(run["run_id"]))
        number = next(count for count in range(1, 10**6) if not (self.folder / _numbered(name, count)).exists())
        writer = EventFileWriter(str(self.folder / _numbered(name, number)))
        settings = json.dumps(config_of(run), indent=1, default=str)
        self._text(writer, "settings", f"{self.varied or ''}\n\n```json\n{settings}\n```")
        return writer

    def _numbers(self, writer: Any, numbers: Mapping[str, float], step: int) -> None:
        from tensorboard.plugins.scalar.summary_v2 import scalar_pb

        for name, value in numbers.items():
            self._add(writer, scalar_pb(name, value), step)

    def _text(self, writer: Any, name: str, text: str) -> None:
        from tensorboard.plugins.text.summary_v2 import text_pb

        self._add(writer, text_pb(name, text), 0)

    def _add(self, writer: Any, summary: Any, step: int) -> None:
        import time

        from tensorboard.compat.proto.event_pb2 import Event

        if not self._given_up.is_set():
            writer.add_event(Event(wall_time=time.time(), step=step, summary=summary))

    def _finish(self, writer: Any, aggregates: Mapping[str, Any], tables: Mapping[str, pa.Table]) -> None:
        from tensorboard.plugins.histogram.summary_v2 import histogram_pb

        self._numbers(writer, {f"run/{name}": value for name, value in numbers_of(aggregates)}, self.running.n)
        steps = tables.get("steps")
        if steps is not None and steps.num_rows:
            drawn = {
                "tokens_per_step": step_histogram(steps),
                "winning_branch": histogram_of(steps["winner"].to_numpy()),
            }
            for name, (counts, edges) in drawn.items():
                values = [edge + 0.5 for edge, count in zip(edges[:-1], counts) for _ in range(int(count))]
                self._add(writer, histogram_pb(name, values, buckets=len(counts)), self.running.n)
        self._end(writer, "finished", "")

    def _end(self, writer: Any, word: str, reason: str) -> None:
        self._text(writer, "status", f"{word} {reason}".strip())
        writer.close()
        self._run = None

    def _close_as_failed(self, run: Any) -> None:
        if run is not None:
            run.close()


def _numbered(name: str, count: int) -> str:
    return name if count == 1 else f"{name}-{count}"
