"""The values of a group of settings, held against what its fields declare (decoders/allowed.py)."""

from __future__ import annotations

from typing import Any

from decoders.allowed import refused, shown, wrong_values
from lopa_bench.errors import ConfigError
from lopa_bench.settings.spelling import meant, nearest

LARGEST = 2**63 - 1  # what a record holds


def check_values(group: str, settings: Any, error: type[Exception] = ConfigError) -> None:
    """Raises `error` for the first setting of a group with a value that it does not take."""
    for name, value, setting in wrong_values(settings):
        key = f"{group}.{name}"
        near = [f"{key}={one}" for one in nearest(shown(value), setting.declared.get("choices", ()))]
        raise error(refused(key, value, setting.takes) + meant(near))
