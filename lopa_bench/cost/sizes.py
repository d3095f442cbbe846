"""The sizes of a configured model: of a folder here from its config.json, of a published one from sizes.yaml."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from lopa_bench import ROOT
from lopa_bench.errors import ConfigError
from lopa_bench.models.checkpoint.families.reading import model_config
from lopa_bench.models.checkpoint.folders import is_embedded, locate
from lopa_bench.models.checkpoint.layouts import LAYOUTS, read_config
from lopa_bench.models.config import ModelConfig
from lopa_bench.settings.spelling import meant, nearest

FILE = Path(__file__).with_name("sizes.yaml")
MODELS = ROOT / "conf" / "model"
ANY_ID = 3  # of a mask, which no size depends on


@dataclass(frozen=True)
class Sized:
    """A model, its network and where the sizes come from; `block_size` and `attention` as decoders take them."""

    name: str
    config: ModelConfig
    block_size: int
    attention: str
    source: str


@lru_cache
def _published() -> Mapping[str, tuple[Mapping[str, Any], str]]:
    """config.json and source by the names of conf/model."""
    entries = _yaml(FILE)
    return {name: (entry["config"], entry["source"]) for entry in entries.values() for name in entry["names"]}


def sized(model: str) -> Sized:
    """A name of conf/model, or a checkpoint folder. Raises ConfigError, or CheckpointError for a folder that cannot be
    read.
    """
    choices = sorted(path.stem for path in MODELS.glob("*.yaml"))
    own = os.path.expanduser(model)
    if model not in choices and os.path.isdir(own):
        config = read_config(Path(own))[1]
        return Sized(
            model, config, config.block_size or 32, "block_causal" if config.block_size else "full", "its config.json"
        )
    if model not in choices:
        near = meant(f"model={one}" for one in nearest(model, choices))
        raise ConfigError(f"model={model} is not allowed; allowed: a checkpoint folder, or {', '.join(choices)}{near}")
    row = _yaml(MODELS / f"{model}.yaml")
    settings = {"block_size": row.get("block_size", 32), "attention": row.get("attention", "full")}
    if model in _published():
        raw, source = _published()[model]
        config = model_config(LAYOUTS[row["layout"]], {**raw, "mask_token_id": ANY_ID}, str(FILE))
        return Sized(model, config, **settings, source=source)
    if row.get("layout") in (None, *LAYOUTS) and is_embedded(row.get("path")):
        folder = locate(row["path"])
        return Sized(model, read_config(folder)[1], **settings, source="its config.json")
    raise ConfigError(
        f"the sizes of model={model} are not known here; allowed: model=FOLDER with its config.json, or "
        f"{', '.join(sorted(_published()))}, mini"
    )


def _yaml(path: Path) -> dict[str, Any]:
    from omegaconf import OmegaConf

    found = OmegaConf.to_container(OmegaConf.load(path))
    assert isinstance(found, dict)
    return {str(name): value for name, value in found.items()}
