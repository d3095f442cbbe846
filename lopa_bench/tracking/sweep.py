"""A sweep in the tracker: one more W&B run in the group of its jobs, with branch-scaling curves over k."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lopa_bench.metrics.varied import as_text, varied
from lopa_bench.settings.tracker import TrackerConfig
from lopa_bench.tracking.tracker import WandbTracker

if TYPE_CHECKING:
    from lopa_bench.metrics.varied import Measured

IN_LABEL = ("task", "model", "decoder", "decoder.base", "decoder.k")  # k is the axis
CURVES = ("tpf", "tps", "accuracy")
COLUMNS = ("task", "model", "decoder", "base", "k", "varied", "n", "accuracy", "tpf", "tpf_row", "tps", "latency_s")


def track_sweep(config: TrackerConfig, folder: Path, runs: Sequence[Measured]) -> None:
    """Nothing here can fail a sweep or hold it up for long."""
    if config.name != "wandb" or not runs:
        return
    tracker = WandbTracker(config.mode, config.project, folder, config.group or folder.name)
    tracker.start({"run_id": folder.name, "runs": [one.run.id for one in runs]})
    tracker.finish_with(lambda: _charts(runs))


def _charts(runs: Sequence[Measured]) -> dict[str, Any]:
    import wandb

    names = [{"varied": as_text(own)} for own in varied(runs)]
    rows = [
        [{**one.run.row, **one.numbers, **name}.get(column) for column in COLUMNS]
        for one, name in zip(runs, names, strict=True)
    ]
    charts: dict[str, Any] = {"runs": wandb.Table(list(COLUMNS), rows)}
    for name in CURVES:
        curves = branch_scaling(runs, name)
        if curves:
            keys = list(curves)
            xs = [[k for k, _ in curves[key]] for key in keys]
            ys = [[value for _, value in curves[key]] for key in keys]
            charts[f"{name}_over_k"] = wandb.plot.line_series(xs, ys, keys, f"{name} over k", "k")
    return charts


def branch_scaling(runs: Sequence[Measured], name: str) -> dict[str, list[tuple[int, float]]]:
    """For each task, model, base decoder and whatever else was varied the points (k, value), by k; a curve has two
    points at least.
    """
    curves: dict[str, list[tuple[int, float]]] = {}
    for one, own in zip(runs, varied(runs), strict=True):
        run, value = one.run, one.numbers.get(name)
        if run.k_as_set is not None and run.k is not None and value is not None:
            others = as_text({name: value for name, value in own.items() if name not in IN_LABEL})
            label = f"{run.task} {run.model} {run.base} {others}".rstrip()
            curves.setdefault(label, []).append((run.k, value))
    return {label: sorted(points) for label, points in curves.items() if len({k for k, _ in points}) > 1}
