"""The end of a multirun: all its runs side by side."""

from __future__ import annotations

from typing import Any

from hydra.core.utils import JobReturn, JobStatus
from hydra.experimental.callback import Callback
from omegaconf import DictConfig


class SweepTable(Callback):
    """Collects the run rows of a multirun's jobs and prints them in one table, then as one JSON line."""

    def __init__(self) -> None:
        self.runs: list[dict[str, Any]] = []
        self.failed = 0

    def on_job_end(self, config: DictConfig, job_return: JobReturn, **_: Any) -> None:
        if job_return.status == JobStatus.COMPLETED and isinstance(job_return.return_value, dict):
            self.runs.append(job_return.return_value)
        else:
            self.failed += 1

    def on_multirun_end(self, config: DictConfig, **_: Any) -> None:
        if not self.runs:
            return
        from lopa_bench.console import report_sweep

        report_sweep(self.runs, self.failed)
