"""What settings there are, by dotted name, and what each of them takes, in words for a message."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

from lopa_bench import ROOT

PLACES = ("*/*.yaml", "*/*/*.yaml", "*/*/*/*.yaml")  # of choices; --config-dir may name a large folder
WORDS = {
    int: "an integer",
    float: "a finite number",
    bool: "true or false",
    str: "text",
    dict: "a mapping",
    list: "a list",
}


@lru_cache
def known() -> Mapping[str, Any]:
    """Every setting with its type, those of all backends together; a group such as `decoder` is in it too."""
    from lopa_bench.settings.backend import SETTINGS
    from lopa_bench.settings.config import Config

    found = _flat(Config)
    for settings in SETTINGS.values():
        found |= _flat(settings, "backend.")
    return found


def _flat(owner: Any, prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, kind in get_type_hints(owner).items():
        found[prefix + name] = kind
        if dataclasses.is_dataclass(kind):
            found |= _flat(kind, f"{prefix}{name}.")
    return found


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
    """What a setting may be: its choices, its range, or the kind of value."""
    from decoders.config import CHOICES as DECODER_CHOICES
    from decoders.config import RANGES as DECODER_RANGES
    from lopa_bench.metrics.presets import PRESETS
    from lopa_bench.settings.config import CHOICES, RANGES

    choices = {**CHOICES, **{f"decoder.{name}": value for name, value in DECODER_CHOICES.items()}}
    choices["run.preset"] = tuple(PRESETS)
    key, sign, _ = key.partition("[")  # an item of a list
    if sign:
        return "integers of 0 and above" if key == "model.end_ids" else "text"
    kind = known().get(key)
    parts = get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)
    plain = [part for part in parts if part is not type(None)]
    if key == "decoder.k":
        text = "an integer from 0 to 1024, or auto"
    elif key in choices:
        text = ", ".join(str(choice) for choice in choices[key] if choice is not None)
    elif dataclasses.is_dataclass(kind):
        names = ", ".join(f"{key}.{field.name}" for field in dataclasses.fields(kind))
        text = f"settings below it ({names})"
    else:
        text = " or ".join(WORDS.get(get_origin(part) or part, "a value") for part in plain)
        bounds = RANGES.get(key) or DECODER_RANGES.get(key.removeprefix("decoder."), ())[:2]
        if bounds:
            text += f" from {bounds[0]:g} to {_shown(bounds[1])}"
    return text + (", or null" if type(None) in parts else "")


def _shown(bound: float) -> str:
    return str(bound) if isinstance(bound, int) else f"{bound:g}"


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
