"""What is loaded of an autoregressive checkpoint: all of it from the files, with every end token that they name."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from lopa_bench.backends.autoregressive import CausalModel, load_causal
from lopa_bench.errors import CheckpointError
from lopa_bench.settings.backend import LocalSettings
from lopa_bench.settings.model import ModelSettings
from tasks.types import Prompt

CPU = LocalSettings(device="cpu", threads=1)


@pytest.fixture
def folder(tiny_model: Path, tmp_path: Path) -> Path:
    """The tiny checkpoint as a causal Qwen2."""
    copy = shutil.copytree(tiny_model, tmp_path / "model")
    change(copy, "config.json", model_type="qwen2", architectures=["Qwen2ForCausalLM"])
    weights = load_file(copy / "model.safetensors")
    save_file(weights, copy / "model.safetensors", metadata={"format": "pt"})
    return copy


def change(folder: Path, file: str, **values: Any) -> None:
    path = folder / file
    found = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(found | values))


def load(folder: Path, **settings: Any) -> CausalModel:
    return load_causal(ModelSettings(path=str(folder), layout="causal", **settings), CPU)


def test_end_ids_are_those_of_all_files_and_of_the_template(folder: Path) -> None:
    assert load(folder).end_ids == (1, 3)
    change(folder, "generation_config.json", eos_token_id=[0])
    change(folder, "config.json", eos_token_id=None)
    assert load(folder).end_ids == (0, 1, 3)
    assert load(folder, end_ids=[3]).end_ids == (3,)


def test_a_checkpoint_that_names_no_end_is_refused(folder: Path) -> None:
    change(folder, "config.json", eos_token_id=None)
    change(folder, "tokenizer_config.json", eos_token=None, chat_template=None)
    with pytest.raises(CheckpointError, match="names no end token"):
        load(folder)


def test_a_tensor_that_is_missing_is_not_drawn_at_random(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(CheckpointError, match=r"missing: model\.layers\.1\.mlp\.up_proj\.weight"):
        load(folder)


def test_the_settings_reach_the_network_and_the_prompts(folder: Path) -> None:
    change(folder, "config.json", bos_token_id=3)
    model = load(folder, dtype="bfloat16", add_bos=True)
    assert {weight.dtype for weight in model.network.parameters()} == {torch.bfloat16}
    ids = load(folder).codec.encode(Prompt("Jane"))
    assert model.codec.encode(Prompt("Jane")) == [3, *ids]
    change(folder, "config.json", bos_token_id=None)
    with pytest.raises(CheckpointError, match=r"model\.add_bos=true"):
        load(folder, add_bos=True)


def test_an_adapter_is_refused_and_not_forgotten(folder: Path) -> None:
    settings = ModelSettings(path=str(folder), layout="causal")
    with pytest.raises(CheckpointError, match=r"model\.lora=x/y is not supported for model\.layout=causal"):
        load_causal(replace(settings, lora="x/y"), CPU)


@pytest.mark.parametrize("file", ["config.json", "model.safetensors", "tokenizer.json"])
def test_broken_files_are_one_sentence(folder: Path, file: str) -> None:
    (folder / file).write_bytes(b"{")
    with pytest.raises(CheckpointError) as caught:
        load(folder)
    assert str(folder) in str(caught.value)
    assert "\n" not in str(caught.value)
