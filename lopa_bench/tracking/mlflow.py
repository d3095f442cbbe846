"""A run in MLflow: its settings as parameters, its numbers as metrics, its samples as a file."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lopa_bench.metrics.aggregate import Running
from lopa_bench.records.runs import flat
from lopa_bench.tracking.tracker import TABLE_COLUMNS, Guarded, config_of, live_numbers, sample_rows

if TYPE_CHECKING:
    import pyarrow as pa

RUN_TAG = "lopa_bench.run_id"
BATCH = 16  # samples whose metrics are sent together
VALUE_CHARACTERS, NAME_CHARACTERS = 500, 250  # MLflow's limits; the first is that of its older servers
AT_ONCE = 100  # parameters of one call


class MlflowTracker(Guarded):
    """One MLflow run for one run of ours, with its id as a tag; without a URI in mlflow.db of the output folder."""

    service = "MLflow"

    def __init__(
        self,
        uri: str | None,
        out: Path,
        project: str = "lopa_bench",
        group: str | None = None,
        varied: str | None = None,
        patience: float | None = None,
    ) -> None:
        super().__init__(patience)
        self.uri = uri or f"sqlite:///{out / 'mlflow.db'}"
        self.files = None if uri else (out / "mlflow").as_uri()
        self.out, self.project, self.group, self.varied = out, project, group, varied
        self.running = Running()
        self.waiting: list[tuple[str, float, int]] = []
        self.place = f"{self.uri}, experiment {project}"

    def sample(self, row: Mapping[str, Any]) -> None:
        self.running.add(row)
        self.waiting += [(name, value, self.running.n) for name, value in live_numbers(self.running, row).items()]
        if self.running.n % BATCH == 0:
            self._on_run("log", self._send)

    def fail(self, reason: str) -> None:
        self._on_run("mark as failed", lambda run: self._end(run, "FAILED", {"failed": reason[:VALUE_CHARACTERS]}))

    def sent_before(self, run_id: str) -> str | None:
        """The MLflow run that holds this run whole, if there is one; None too where MLflow cannot be asked."""
        return self._guarded("be asked", lambda: self._found(run_id))

    def _found(self, run_id: str) -> str | None:
        client = self._client()
        experiment = client.get_experiment_by_name(self.project)
        if experiment is None:
            return None
        wanted = f"tags.`{RUN_TAG}` = '{run_id}' and attributes.status = 'FINISHED'"
        found = client.search_runs([experiment.experiment_id], wanted)
        return found[0].info.run_id if found else None

    def _client(self) -> Any:
        for name, value in (("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1"), ("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")):
            os.environ.setdefault(name, value)  # else an absent server is asked for minutes
        from mlflow import MlflowClient

        if self.files:
            self.out.mkdir(parents=True, exist_ok=True)
        return MlflowClient(tracking_uri=self.uri)

    def _started(self, run: Mapping[str, Any]) -> Any:
        client = self._client()
        experiment = client.get_experiment_by_name(self.project)
        number = experiment.experiment_id if experiment else client.create_experiment(self.project, self.files)
        tags = {RUN_TAG: str(run["run_id"]), "group": self.group, "varied": self.varied}
        tags = {name: value for name, value in tags.items() if value}
        name = " ".join(filter(None, (self.varied, str(run["run_id"]))))
        made = client.create_run(number, tags=tags, run_name=name[:NAME_CHARACTERS])
        self._log_params(client, made.info.run_id, run)
        return client, made.info.run_id

    def _log_params(self, client: Any, id: str, run: Mapping[str, Any]) -> None:
        from mlflow.entities import Param

        params = [Param(name, text) for name, text in _texts(config_of(run))]
        for begin in range(0, len(params), AT_ONCE):
            client.log_batch(id, params=params[begin : begin + AT_ONCE])

    def _send(self, run: Any) -> None:
        from mlflow.entities import Metric

        client, id = run
        sent, self.waiting = self.waiting, []
        now = int(time.time() * 1000)
        for begin in range(0, len(sent), 10 * AT_ONCE):
            part = sent[begin : begin + 10 * AT_ONCE]
            client.log_batch(id, metrics=[Metric(name, float(value), now, step) for name, value, step in part])

    def _finish(self, run: Any, aggregates: Mapping[str, Any], tables: Mapping[str, pa.Table]) -> None:
        self.waiting += [(name, value, self.running.n) for name, value in numbers_of(aggregates)]
        self._send(run)
        client, id = run
        if "samples" in tables and not self._given_up.is_set():
            rows = [dict(zip(TABLE_COLUMNS, row, strict=True)) for row in sample_rows(tables["samples"])]
            client.log_dict(id, {"samples": rows}, "samples.json")
        self._end(run, "FINISHED", {})

    def _end(self, run: Any, status: str, tags: Mapping[str, str]) -> None:
        if self._given_up.is_set():
            return
        client, id = run
        for name, value in tags.items():
            client.set_tag(id, name, value)
        client.set_terminated(id, status)
        self._run = None

    def _close_as_failed(self, run: Any) -> None:
        if run is not None:
            client, id = run
            client.set_terminated(id, "FAILED")


def numbers_of(aggregates: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """The aggregates that are numbers; an interval is two of them."""
    for name, value in aggregates.items():
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            yield name, float(value)
        elif isinstance(value, Sequence) and len(value) == 2 and not isinstance(value, str):
            low, high = value
            yield from ((f"{name}_low", float(low)), (f"{name}_high", float(high)))


def _texts(config: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Every setting and fact of a run by dotted name, in the letters and lengths that MLflow takes."""
    named = flat(config)
    return [
        (re.sub(r"[^\w./ -]", "_", name)[:NAME_CHARACTERS], str(value)[:VALUE_CHARACTERS])
        for name, value in named.items()
        if value is not None
    ]
