"""A model's small files, judged before anything is loaded, read at length or downloaded. No torch."""

from __future__ import annotations

import os
from pathlib import Path

from lopa_bench.errors import CheckpointError
from lopa_bench.models.checkpoint.adapters import read_adapter
from lopa_bench.models.checkpoint.files import read_headers, weight_files
from lopa_bench.models.checkpoint.folders import locate
from lopa_bench.models.checkpoint.keys import read_json, shown
from lopa_bench.models.checkpoint.layouts import read_config
from lopa_bench.models.config import ModelConfig
from lopa_bench.settings.model import BY_TRANSFORMERS, ModelSettings


def check_model(model: ModelSettings) -> ModelConfig | None:
    """Whether a configured model can be one that runs here, and what it is made of if its layout is one of ours. Raises
    CheckpointError.
    """
    assert model.path is not None
    folder = locate(model.path, model.revision, weights=False)
    config = None if model.layout in BY_TRANSFORMERS else config_of(model, folder)
    if model.layout == "diffusion_gemma":
        found = read_json(folder / "config.json").get("model_type")
        if found != model.layout:
            raise CheckpointError(
                f"{folder / 'config.json'}: model_type={shown(found)}; allowed: {shown(model.layout)}"
            )
    if folder == Path(os.path.expanduser(model.path)):  # else the weights may not be here yet
        read_headers(weight_files(folder))
    if model.lora:
        read_adapter(locate(model.lora, model.lora_revision, weights=False))
    return config


def config_of(model: ModelSettings, folder: Path) -> ModelConfig:
    """Sizes and special ids of a checkpoint of the configured layout. Raises CheckpointError."""
    layout, config = read_config(folder)
    if layout.must_be_asked_for and model.layout is None:
        raise CheckpointError(
            f"{folder} has the {layout.name} layout, which autoregressive models have too; allowed: "
            f"model.layout={layout.name} for a diffusion model, model.layout=causal for an autoregressive one"
        )
    if model.layout and layout.name != model.layout:
        raise CheckpointError(f"{folder} has the {layout.name} layout, model.layout={model.layout} was asked for")
    return config
