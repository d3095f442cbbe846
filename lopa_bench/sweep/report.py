"""What a person and a program see at the end of a sweep: its runs side by side, its jobs, then the last line."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from lopa_bench.console.invariance import invariance_table
from lopa_bench.console.numbers import plain
from lopa_bench.console.paired import paired_table
from lopa_bench.console.report import console_on, from_here, json_values, last_line, show
from lopa_bench.console.side_by_side import side_by_side
from lopa_bench.metrics.paired import baseline_first
from lopa_bench.metrics.varied import Measured, settings_of, varied
from lopa_bench.records.schema import to_json
from lopa_bench.sweep.jobs import JobReport

if TYPE_CHECKING:
    from rich.console import RenderableType


def report_sweep(
    folder: Path,
    jobs: Sequence[JobReport],
    runs: Sequence[Measured],
    against: str | None = None,
    stream: TextIO | None = None,
    json: str = "auto",
    out: str = "outputs",
) -> None:
    """The end of a multirun on stdout: its runs side by side, perhaps paired with the one that `against` names, its
    jobs, then the last line (console/report).
    """
    stream = stream or sys.stdout
    console = console_on(stream)
    is_paired = False
    if against:
        runs, is_paired = baseline_first(runs, against)
    if runs:
        show(console, lambda: side_by_side(runs))
    if against:
        unpaired = plain(f"no run with {against} has finished with others beside it: nothing is paired")
        show(console, lambda: (paired_table(runs) if is_paired else None) or unpaired)
    show(console, lambda: invariance_table(runs) or "")
    show(console, lambda: job_table(jobs))
    failed = sum(job.status != "finished" for job in jobs)
    if failed:
        text = plain(f"{failed} of {len(jobs)} jobs did not finish; their logs: {folder}/<job>/job.log")
        print(f"\n{text}", file=stream)
    finished = [job for job in jobs if job.status == "finished"]
    kept = [job.path for job in finished if job.path] or [str(folder)]
    last_line(stream, json, lambda: _json_line(folder, jobs, runs), kept, out)


def _json_line(folder: Path, jobs: Sequence[JobReport], runs: Sequence[Measured]) -> str:
    """The sweep in one line of strict JSON, for programs."""
    ids = [job.run_id for job in jobs if job.status == "finished"]
    values = {"runs": ids, "jobs": len(jobs), "failed": len(jobs) - len(ids), "path": str(folder)}
    values["table"] = [
        json_values(one) | {"varied": settings_of(own, one.run)} for one, own in zip(runs, varied(runs), strict=True)
    ]
    return to_json(values)


def job_table(jobs: Sequence[JobReport]) -> RenderableType:
    """All jobs of a sweep; overrides that all of them share are said once, above."""
    from rich.console import Group
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    shared = [text for text in jobs[0].overrides if len(jobs) > 1 and all(text in job.overrides for job in jobs)]
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="underline")
    for name in ("job", "status"):
        table.add_column(name, no_wrap=True)
    table.add_column("seconds", justify="right", no_wrap=True)
    for name in ("overrides", "path"):
        table.add_column(name, overflow="fold")
    for job in jobs:
        own = plain(" ".join(text for text in job.overrides if text not in shared))
        seconds = "-" if job.seconds is None else f"{job.seconds:.1f}"
        where = plain(from_here(job.path or job.folder))
        table.add_row(
            str(job.job), job.status, seconds, Text(own), Text(f"{where}\n{plain(job.error)}" if job.error else where)
        )
    heading = Text(f"jobs, all with {plain(' '.join(shared))}" if shared else "jobs", style="bold")
    return Padding(Group(heading, table), (1, 0, 0, 0))
