"""What a person and a program see at the end of a run or a sweep: tables, then one line of JSON (stdout)."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from lopa_bench.paired import baseline_first, paired_table
from lopa_bench.schema import to_json
from lopa_bench.side_by_side import Run, result_table, side_by_side
from lopa_bench.varied import settings_of, varied
from lopa_bench.words import plain

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from lopa_bench.jobs import JobReport

__all__ = ["Run", "console_on", "json_line", "report", "report_sweep", "result_table", "side_by_side"]

log = logging.getLogger(__name__)

WIDTH_WITHOUT_TERMINAL = 100


def report(run: Mapping[str, Any], aggregates: Mapping[str, Any], path: Any, stream: TextIO | None = None) -> None:
    """The end of a run on stdout: the table, then the JSON line, which is the last one."""
    stream = stream or sys.stdout
    _show(console_on(stream), lambda: result_table(run, aggregates))
    print(json_line(run, aggregates, path), file=stream, flush=True)  # not rich: it would break the line


def report_sweep(
    folder: Path,
    jobs: Sequence[JobReport],
    runs: Sequence[Run],
    against: str | None = None,
    stream: TextIO | None = None,
) -> None:
    """The end of a multirun on stdout: its runs side by side, perhaps paired with the one that `against` names, its
    jobs, then one JSON line.
    """
    stream = stream or sys.stdout
    console = console_on(stream)
    is_paired = False
    if against:
        runs, is_paired = baseline_first(runs, against)
    if runs:
        _show(console, lambda: side_by_side(runs))
    if against:
        unpaired = plain(f"no run with {against} has finished with others beside it: nothing is paired")
        _show(console, lambda: (paired_table(runs) if is_paired else None) or unpaired)
    _show(console, lambda: job_table(jobs))
    failed = sum(job.status != "finished" for job in jobs)
    if failed:
        text = plain(f"{failed} of {len(jobs)} jobs did not finish; their logs: {folder}/<job>/job.log")
        print(f"\n{text}", file=stream)
    ids = [job.run_id for job in jobs if job.status == "finished"]
    values = {"runs": ids, "jobs": len(jobs), "failed": failed, "path": str(folder)}
    values["table"] = [
        _json_values(run, numbers, run.get("folder")) | {"varied": settings_of(own, run)}
        for (run, numbers), own in zip(runs, varied(runs), strict=True)
    ]
    print(to_json(values), file=stream, flush=True)


def _show(console: Console, make: Callable[[], RenderableType]) -> None:
    """A table, which is for people: one that cannot be drawn costs a warning, never the JSON line or a verdict."""
    try:
        console.print(make())
    except Exception as error:
        log.warning("a table cannot be shown (%s: %s)", type(error).__name__, plain(error))


def console_on(stream: TextIO) -> Console:
    from rich.console import Console

    console = Console(file=stream, markup=False, emoji=False, highlight=False)  # what users name is text
    if not console.is_terminal:
        console.width = WIDTH_WITHOUT_TERMINAL
    return console


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
        where = plain(_near(job.path or job.folder))
        table.add_row(
            str(job.job), job.status, seconds, Text(own), Text(f"{where}\n{plain(job.error)}" if job.error else where)
        )
    heading = Text(f"jobs, all with {plain(' '.join(shared))}" if shared else "jobs", style="bold")
    return Padding(Group(heading, table), (1, 0, 0, 0))


def _near(path: str) -> str:
    """The path from here, if it is below."""
    relative = os.path.relpath(path)
    return path if relative.startswith("..") else relative


def json_line(run: Mapping[str, Any], aggregates: Mapping[str, Any], path: Any) -> str:
    """The run in one line of strict JSON, for programs."""
    return to_json(_json_values(run, aggregates, path))


def _json_values(run: Mapping[str, Any], aggregates: Mapping[str, Any], path: Any) -> dict[str, Any]:
    k = run.get("k")
    return {
        "run_id": run["run_id"],
        "status": run["status"],
        "task": run["task"],
        "source": run["source_name"],
        "model": run["model"],
        "model_is_toy": run["model_is_toy"],
        "decoder": run["decoder"],
        "k": int(k) if k is not None and k.isdecimal() else k,
        **{name: aggregates.get(name) for name in _JSON_NUMBERS},
        "path": str(path),
    }


_JSON_NUMBERS = (
    "preset", "n", "errors", "accuracy", "accuracy_ci95", "pass_at", "tpf", "tpf_ci95", "tpf_row",
    "tps", "tps_ci95", "latency_s", "forwards", "rows",
)  # fmt: skip
