"""What settings there are, by dotted name, and what each of them takes, in words for a message."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, get_origin

from decoders.allowed import Setting, settings_of
from lopa_bench import ROOT

PLACES = ("*/*.yaml", "*/*/*.yaml", "*/*/*/*.yaml")  # of choices; --config-dir may name a large folder


@lru_cache
def _settings() -> Mapping[str, Setting]:
    """Every setting, those of all backends together; a group such as `decoder` is in it too."""
    from lopa_bench.settings.backend import SETTINGS
    from lopa_bench.settings.config import Config

    found = _flat(Config)
    for settings in SETTINGS.values():
        found |= _flat(settings, "backend.")
    return found


def _flat(owner: Any, prefix: str = "") -> dict[str, Setting]:
    found: dict[str, Setting] = {}
    for name, setting in settings_of(owner).items():
        found[prefix + name] = setting
        if dataclasses.is_dataclass(setting.kind):
            found |= _flat(setting.kind, f"{prefix}{name}.")
    return found


@lru_cache
def known() -> Mapping[str, Any]:
    """Every setting with its type."""
    return {key: setting.kind for key, setting in _settings().items()}


def is_setting(key: str) -> bool:
    """Whether a command line may name it: a setting, or an entry of one that is a mapping."""
    if key in known():
        return True
    parts = key.split(".")
    heads = (".".join(parts[:size]) for size in range(1, len(parts)))
    return any(map(is_mapping, heads))


def is_mapping(key: str) -> bool:
    """Whether it takes entries of any name."""
    return get_origin(known().get(key)) is dict


def takes(key: str) -> str:
    """What a setting takes, or an item of one that is a list, in words for a message."""
    key, sign, _ = key.partition("[")
    if sign:
        return "integers of 0 and above" if key == "model.end_ids" else "text"
    return _settings()[key].takes if key in _settings() else "a value"


@lru_cache
def groups(*further: Path) -> dict[str, list[str]]:
    """The choices of each group of conf/ and of the folders of `--config-dir`; `experiment` has paths such as
    ablation/k.
    """
    found: dict[str, set[str]] = {}
    for root in (ROOT / "conf", *further):
        for path in (path for pattern in PLACES for path in root.glob(pattern)):
            parts = path.relative_to(root).with_suffix("").parts
            for depth in range(1, len(parts)):
                found.setdefault("/".join(parts[:depth]), set()).add("/".join(parts[depth:]))
    return {group: sorted(choices) for group, choices in found.items()}
