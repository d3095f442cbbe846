"""What a recorded run says of its steps: tokens a forward pass, and what a step fed on average."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from lopa_bench.cost.step import Workload
from lopa_bench.errors import RunError
from lopa_bench.metrics.aggregate import aggregate
from lopa_bench.records.finding import find_run
from lopa_bench.records.runs import Run

COLUMNS = ("window_width", "cached", "masks_left")


@dataclass(frozen=True)
class Recorded:
    """TPF under a counting preset, and the mean step behind the first of each sample, which is the prompt's."""

    run: Run
    k: int
    tpf: float
    work: Workload


def recorded(name: str, preset: str, outputs: Path | str = "outputs") -> Recorded:
    """The numbers of a finished run, by its folder or id. Raises RunError for one that cannot say them."""
    run = find_run(name, outputs)
    if run.is_server or run.is_autoregressive or run.k is None:
        raise RunError(
            f"{run.folder} has no steps of a fixed number of branches (decoder={run.decoder}, backend={run.backend}); "
            "allowed: a run of a decoder of masks on backend=local"
        )
    if run.status != "finished":
        raise RunError(f"{run.folder} is {run.status}; allowed: a finished run, which the same command makes of it")
    run.check_whole()
    numbers = aggregate(run.samples, preset)
    tpf = numbers["tpf"]
    if not tpf:
        raise RunError(f"{run.folder} has no TPF under preset={preset}; allowed: a run that decoded something")
    return Recorded(run, run.k, tpf, _work(run, numbers["tpf_window"]))


def _work(run: Run, filled: float) -> Workload:
    """`filled`: positions a step, all of which enter the cache in the end. Rows count masks after the step."""
    import pyarrow.compute as pc

    table = run.steps(COLUMNS)
    table = table.filter(pc.greater(table["step"], pc.min(table["step"])))
    if not table.num_rows:
        raise RunError(f"{run.folder} has no step behind the first; allowed: a run of more than one step a sample")
    width, cached, left = (pc.mean(table[name]).as_py() for name in ("window_width", "cached", "masks_left"))
    return Workload(
        rows=(run.k or 0) + 1, window=width, masked=min(width, left + filled), cached=cached, committed=filled
    )
