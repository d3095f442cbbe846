"""Where a run is followed beside its records."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec

from decoders.allowed import choice
from lopa_bench.errors import ConfigError
from lopa_bench.settings.values import check_values

PACKAGES = ("mlflow", "tensorboard")  # trackers that need a package of the same name, which is an extra of this one


@dataclass
class TrackerConfig:
    """Settings of a tracker (one YAML each in conf/tracker). `mode` is W&B's own; `project` is MLflow's experiment too.

    `group`: of W&B; a tag in MLflow; a folder below TensorBoard's. `uri`: MLflow's tracking URI (null:
    MLFLOW_TRACKING_URI, else mlflow.db in run.out), or TensorBoard's folder (null: tensorboard in run.out).
    `varied`: what a run differs in from the others of its sweep, as NAME=VALUE words; the sweep fills it in.
    """

    name: str = choice("none", "none", "wandb", "mlflow", "tensorboard")
    mode: str = choice("offline", "offline", "online", "disabled")
    project: str = "lopa_bench"
    group: str | None = None
    varied: str | None = None
    uri: str | None = None

    def check(self) -> None:
        """Raises ConfigError for a value that is not allowed, or a tracker whose package is not installed."""
        check_values("tracker", self)
        if self.name in PACKAGES and find_spec(self.name) is None:
            raise ConfigError(
                f"tracker={self.name} needs the package {self.name}, which is not installed; allowed: "
                f"pip install 'lopa-bench[{self.name}]', or another tracker"
            )
