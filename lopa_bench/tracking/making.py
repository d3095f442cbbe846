"""The tracker that a configuration names."""

from __future__ import annotations

import os
from pathlib import Path

from lopa_bench.settings.tracker import TrackerConfig
from lopa_bench.tracking.board import TensorboardTracker
from lopa_bench.tracking.mlflow import MlflowTracker
from lopa_bench.tracking.tracker import Tracker, WandbTracker


def make_tracker(config: TrackerConfig, folder: Path | str, patience: float | None = None) -> Tracker:
    """The tracker that `config` names, for the run in `folder`; W&B writes below it, the others into the output folder.
    `patience` as in Guarded. Raises ConfigError for a name or mode that there is not, or a package that is missing.
    """
    config.check()
    if config.name == "none":
        return Tracker()
    if config.name == "wandb":
        return WandbTracker(config.mode, config.project, folder, config.group, config.varied, patience)
    out = outputs_of(Path(folder))
    if config.name == "mlflow":
        uri = config.uri or os.environ.get("MLFLOW_TRACKING_URI")
        return MlflowTracker(uri, out, config.project, config.group, config.varied, patience)
    board = Path(config.uri).expanduser() if config.uri else out / "tensorboard"
    return TensorboardTracker(board / (config.group or ""), config.varied, patience)


def outputs_of(folder: Path) -> Path:
    """The output folder of a run's folder, which is <out>/runs/<id> unless somebody moved it."""
    parent = folder.absolute().parent
    return parent.parent if parent.name == "runs" else parent
