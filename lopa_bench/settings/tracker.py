"""Where a run is followed beside its records."""

from __future__ import annotations

from dataclasses import dataclass

from decoders.allowed import choice


@dataclass
class TrackerConfig:
    """Settings of a tracker (one YAML each in conf/tracker). `mode`, `project` and `group` are W&B's own.

    `varied`: what a run differs in from the others of its sweep, as NAME=VALUE words; the sweep fills it in.
    """

    name: str = choice("none", "none", "wandb")
    mode: str = choice("offline", "offline", "online", "disabled")
    project: str = "lopa_bench"
    group: str | None = None
    varied: str | None = None
