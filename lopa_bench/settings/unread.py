"""Settings that nothing would read beside the others: refused, with what would read them.

Those of decoders and tasks are judged where they are defined; here are those of the model, the backend and the run.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from decoders import UNMASKED
from lopa_bench.errors import ConfigError
from lopa_bench.settings.backend import LocalSettings, ServerSettings
from lopa_bench.settings.config import Config, ObjectiveSettings
from lopa_bench.settings.tracker import PACKAGES, TrackerConfig

SEVERAL_RANKS = "backend.branch_ranks or backend.tensor_ranks above 1"
# setting -> whether something reads it, and what would
CONDITIONS: dict[str, tuple[Callable[[Config], bool], str]] = {
    "model.revision": (lambda c: _is_of_the_hub(c.model.path), "a Hub id as model.path"),
    "model.lora_revision": (lambda c: _is_of_the_hub(c.model.lora), "a Hub id as model.lora"),
    "model.quantize": (lambda c: not isinstance(c.backend, ServerSettings), "backend=local"),
    "keep_model": (
        lambda c: _is_kept(c),
        "a model that one process loads (backend=local, no run.devices, no ranks), tracker=none and no "
        "code of your own (a target), which a process that goes on would not read again",
    ),
    "objective.accuracy": (lambda c: c.objective.maximise is not None, "objective.maximise"),
    "tracker.mode": (lambda c: c.tracker.name == "wandb", "tracker=wandb"),
    "tracker.project": (lambda c: c.tracker.name in ("wandb", "mlflow"), "tracker=wandb or tracker=mlflow"),
    "tracker.group": (lambda c: c.tracker.name != "none", "tracker=wandb, mlflow or tensorboard"),
    "tracker.uri": (lambda c: c.tracker.name in PACKAGES, "tracker=mlflow or tracker=tensorboard"),
}
OF_LOCAL: dict[str, tuple[Callable[[Config], bool], str]] = {
    "backend.attention": (
        lambda c: _backend(c, "compile") == "none" and c.decoder.name not in UNMASKED,
        "backend.compile=none and a decoder that fills masks",
    ),
    "backend.branch_protocol": (lambda c: _backend(c, "branch_ranks") > 1, "backend.branch_ranks above 1"),
    "backend.branch_check": (lambda c: _backend(c, "branch_ranks") > 1, "backend.branch_ranks above 1"),
    "backend.link": (lambda c: _backend(c, "ranks") > 1, SEVERAL_RANKS),
    "backend.rank_timeout_s": (lambda c: _backend(c, "ranks") > 1, SEVERAL_RANKS),
}
OF_SERVERS: dict[str, tuple[Callable[[Config], bool], str]] = {
    "backend.args": (lambda c: _backend(c, "launch"), "backend.launch=true"),
    "backend.env": (lambda c: _backend(c, "launch"), "backend.launch=true"),
    "backend.startup_s": (lambda c: _backend(c, "launch"), "backend.launch=true"),
    "backend.stream_usage": (lambda c: _backend(c, "stream"), "backend.stream=true"),
    "backend.backoff_s": (lambda c: _backend(c, "retries") > 0, "backend.retries above 0"),
    "backend.algorithm": (lambda c: c.decoder.name == "served", "decoder=served"),
}
OF_SWEEPS = ("fail_fast", "keep_model", "against", "objective.maximise")


def check_read(config: Config) -> None:
    """Raises ConfigError for the first setting that is not at its default and that nothing reads."""
    conditions = CONDITIONS | (OF_SERVERS if isinstance(config.backend, ServerSettings) else OF_LOCAL)
    defaults = Config(backend=type(config.backend)(), objective=ObjectiveSettings(), tracker=TrackerConfig())
    for name, (is_read, reader) in conditions.items():
        value = _value(config, name)
        if value != _value(defaults, name) and not is_read(config):
            raise ConfigError(f"{name}={_shown(value)} has no meaning here: it is read with {reader}")


def check_read_alone(config: Config) -> None:
    """The same for a run that is no job of a sweep."""
    for name in OF_SWEEPS:
        value = _value(config, name)
        if value != _value(Config(), name):
            raise ConfigError(f"{name}={_shown(value)} has no meaning for a single run: it is read by a sweep (-m)")


def _is_of_the_hub(path: str | None) -> bool:
    return path is not None and not path.startswith("embedded:") and not os.path.isdir(os.path.expanduser(path))


def _is_kept(config: Config) -> bool:
    backend = config.backend
    return (
        isinstance(backend, LocalSettings)
        and (backend.ranks, config.run.devices, config.tracker.name) == (1, None, "none")
        and (config.decoder.target, config.decoder.score.target, config.task.target) == (None, None, None)
    )


def _backend(config: Config, name: str) -> Any:
    return getattr(config.backend, name)


def _value(config: Config, dotted: str) -> Any:
    value: Any = config
    for part in dotted.split("."):
        value = getattr(value, part)
    return value


def _shown(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
