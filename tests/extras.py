"""Which optional parts are installed."""

from __future__ import annotations

import importlib.util


def has_plugin(name: str) -> bool:
    """Whether Hydra's plug-in of this name is there, e.g. `hydra_ray_launcher`; others may be without it."""
    found = importlib.util.find_spec("hydra_plugins")
    return found is not None and importlib.util.find_spec(f"hydra_plugins.{name}") is not None
