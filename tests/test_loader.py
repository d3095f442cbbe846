"""Checkpoint folders: what loads, what is refused and how it is named."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from lopa_bench.errors import CheckpointError
from lopa_bench.models.checkpoint import loader
from lopa_bench.models.checkpoint.folders import locate
from lopa_bench.models.checkpoint.layouts import read_config
from lopa_bench.models.checkpoint.loader import load_model
from lopa_bench.models.text.tokenizers import load_tokenizer
from lopa_bench.plan.checksums import files_sha256, weight_files

MODELS = Path(__file__).parent / "golden" / "models"
CPU = torch.device("cpu")
IDS = torch.arange(12)[None]
Q = "model.layers.0.self_attn.q_proj.weight"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of a tiny Dream-layout checkpoint."""
    shutil.copytree(MODELS / "dream_a", tmp_path / "model")
    return tmp_path / "model"


def logits(folder: Path, **options: object) -> Tensor:
    model = load_model(folder, torch.float32, CPU, **options)
    with torch.inference_mode():
        return model.logits(model.hidden(IDS))


def rewrite(folder: Path, **changes: Tensor | None) -> None:
    """Replaces tensors of the only weight file; None removes one."""
    tensors: dict[str, Tensor | None] = {**load_file(folder / "model.safetensors"), **changes}
    save_file({name: value for name, value in tensors.items() if value is not None}, folder / "model.safetensors")


def test_a_file_that_is_overwritten_in_its_place_changes_no_loaded_network(folder: Path) -> None:
    network = load_model(folder, torch.float32, CPU)
    before = {name: value.clone() for name, value in network.state_dict().items()}
    with (folder / "model.safetensors").open("r+b") as file:
        file.write(b"\0" * (folder / "model.safetensors").stat().st_size)
    assert [name for name, value in network.state_dict().items() if not torch.equal(value, before[name])] == []


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_weights_that_are_no_finite_numbers_are_refused(folder: Path, number: float) -> None:
    name = "model.layers.0.mlp.down_proj.weight"
    weight = load_file(folder / "model.safetensors")[name]
    weight[-1, -1] = number
    rewrite(folder, **{name: weight})
    with pytest.raises(CheckpointError, match=f"is damaged: NaN or infinite numbers: {name}"):
        load_model(folder, torch.float32, CPU)


def test_several_weight_files_load_like_one(folder: Path) -> None:
    expected = logits(folder)
    tensors = load_file(folder / "model.safetensors")
    names = sorted(tensors)
    parts = {"model-00001-of-00002.safetensors": names[::2], "model-00002-of-00002.safetensors": names[1::2]}
    for file, part in parts.items():
        save_file({name: tensors[name] for name in part}, folder / file)
    (folder / "model.safetensors").unlink()
    index = {name: file for file, part in parts.items() for name in part}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    assert torch.equal(logits(folder), expected)
    (folder / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"missing .*model-00002-of-00002\.safetensors"):
        weight_files(folder)


def test_missing_extra_and_misshapen_tensors_are_named_in_one_error(folder: Path) -> None:
    rewrite(folder, **{"model.norm.weight": None, "odd.weight": torch.zeros(2), Q: torch.zeros(3, 64)})
    with pytest.raises(CheckpointError) as caught:
        logits(folder)
    message = str(caught.value)
    assert "missing: model.norm.weight" in message
    assert "extra: odd.weight" in message
    assert "misshapen: model.layers.0.self_attn.q_proj.weight" in message


def write_adapter(folder: Path, config: dict, tensors: dict[str, Tensor]) -> Path:
    folder.mkdir()
    (folder / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": 2, "lora_alpha": 8, **config}))
    save_file(tensors, folder / "adapter_model.safetensors")
    return folder


def test_a_lora_is_merged_as_w_plus_alpha_over_r_b_a(folder: Path, tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    down, up = torch.randn(2, 64, generator=generator), torch.randn(64, 2, generator=generator)
    prefix = "base_model.model." + Q.removesuffix(".weight")
    lora = write_adapter(tmp_path / "lora", {}, {f"{prefix}.lora_A.weight": down, f"{prefix}.lora_B.weight": up})
    merged = logits(folder, lora=lora)
    rewrite(folder, **{Q: load_file(folder / "model.safetensors")[Q] + 4 * up @ down})
    torch.testing.assert_close(merged, logits(folder), rtol=0, atol=1e-5)


def test_a_lora_that_does_not_fit_is_refused(folder: Path, tmp_path: Path) -> None:
    tensors = {"base_model.model.elsewhere.lora_A.weight": torch.zeros(2, 4)}
    with pytest.raises(CheckpointError, match="elsewhere"):
        logits(folder, lora=write_adapter(tmp_path / "lora", {}, tensors))
    with pytest.raises(CheckpointError, match="only plain LoRA"):
        logits(folder, lora=write_adapter(tmp_path / "dora", {"use_dora": True}, tensors))


@pytest.mark.parametrize("name", ["dream_a", "llada_a"])
def test_both_layouts_are_told_apart_by_their_config(name: str) -> None:
    layout, config = read_config(MODELS / name)
    assert layout.name == name.split("_")[0]
    assert (config.shifted, config.qkv_bias) == ((True, True) if layout.name == "dream" else (False, False))
    assert config.end_ids == (94,)


def test_end_ids_of_both_files_count(folder: Path) -> None:
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [94, 93]}))
    assert read_config(folder)[1].end_ids == (94, 93)


def test_other_families_broken_files_and_empty_folders_are_refused(folder: Path, tmp_path: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "model_type": "gpt2"}))
    with pytest.raises(CheckpointError, match="model_type 'gpt2' is not supported; supported: Dream"):
        read_config(folder)
    (folder / "config.json").write_text("{")
    with pytest.raises(CheckpointError, match="not valid JSON"):
        read_config(folder)
    (folder / "model.safetensors").write_bytes(b"\x00" * 64)
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match=r"model\.safetensors is not a readable safetensors file"):
        logits(folder)
    (tmp_path / "empty").mkdir()
    with pytest.raises(CheckpointError, match="is missing"):
        read_config(tmp_path / "empty")
    with pytest.raises(CheckpointError, match=r"no tokenizer\.json"):
        load_tokenizer(tmp_path / "empty")


def test_an_unknown_embedded_model_is_refused_with_the_known_ones() -> None:
    with pytest.raises(CheckpointError, match="allowed: embedded:mini"):
        locate("embedded:maxi")


def test_the_checksum_follows_the_bytes(folder: Path) -> None:
    before = files_sha256(weight_files(folder))
    rewrite(folder, **{Q: torch.zeros(64, 64)})
    assert files_sha256(weight_files(folder)) != before


def test_weights_that_are_read_in_small_pieces_are_the_same(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Matrices of 64 columns, two rows at a time, and the file is opened anew for every piece."""
    generator = torch.Generator().manual_seed(0)
    prefix = "base_model.model." + Q.removesuffix(".weight")
    pair = {f"{prefix}.lora_A.weight": torch.randn(2, 64, generator=generator)}
    pair |= {f"{prefix}.lora_B.weight": torch.randn(64, 2, generator=generator)}
    lora = write_adapter(tmp_path / "lora", {}, pair)
    whole = load_model(folder, torch.float32, CPU, lora).state_dict()
    monkeypatch.setattr(loader, "PIECE", 128)
    monkeypatch.setattr(loader, "MAPPED", 1)
    parts = load_model(folder, torch.float32, CPU, lora).state_dict()
    for name, weight in whole.items():
        torch.testing.assert_close(parts[name], weight, rtol=0, atol=1e-5)


def test_numbers_that_the_dtype_cannot_hold_are_refused(folder: Path) -> None:
    rewrite(folder, **{Q: torch.full((64, 64), 1e5)})
    with pytest.raises(CheckpointError, match=f"{Q} has numbers that float16 cannot hold; allowed: model.dtype=bf"):
        load_model(folder, torch.float16, CPU)
    load_model(folder, torch.bfloat16, CPU)
