"""Which files of a folder are read as the model: those that transformers would load, and no others."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from lopa_bench.errors import CheckpointError
from lopa_bench.models.checkpoint.files import weight_files
from lopa_bench.models.checkpoint.loader import load_model
from lopa_bench.plan.checksums import weights_sha256

MODELS = Path(__file__).parent / "golden" / "models"
CPU = torch.device("cpu")
EMBED, HEAD = "model.embed_tokens.weight", "lm_head.weight"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of a tiny Dream-layout checkpoint."""
    return shutil.copytree(MODELS / "dream_a", tmp_path / "model")


@pytest.fixture
def tensors(folder: Path) -> dict[str, Tensor]:
    return load_file(folder / "model.safetensors")


def loaded(folder: Path, dtype: torch.dtype = torch.float32) -> Tensor:
    """The embedding: enough to tell which file it came from."""
    return load_model(folder, dtype, CPU).embed.weight


def split(folder: Path, tensors: dict[str, Tensor], **changes: Any) -> dict[str, str]:
    """Two parts and their index, as transformers writes them; the whole file goes."""
    names = sorted(tensors)
    parts = {"model-00001-of-00002.safetensors": names[::2], "model-00002-of-00002.safetensors": names[1::2]}
    for file, part in parts.items():
        save_file({name: tensors[name] for name in part}, folder / file)
    index = {name: file for file, part in parts.items() for name in part}
    write_index(folder, index | changes)
    (folder / "model.safetensors").unlink()
    return index


def write_index(folder: Path, index: Any) -> None:
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": index}))


def doubled(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: 2 * value for name, value in tensors.items()}


@pytest.mark.parametrize(
    "stray",
    [
        "model-00001-of-00001.safetensors", "model.fp16.safetensors", "model_old.safetensors",
        "consolidated.safetensors",
        "original/model.safetensors", "optimizer.safetensors", "pytorch_model.bin", "training_args.bin",
        "adapter_model.safetensors", "zzz.safetensors", "model.safetensors.bak", "model-00002-of-00002.safetensors",
    ],
)  # fmt: skip
def test_weights_beside_the_main_ones_are_not_read(folder: Path, tensors: dict[str, Tensor], stray: str) -> None:
    expected, checksum = loaded(folder), weights_sha256(folder)
    (folder / stray).parent.mkdir(exist_ok=True)
    save_file(doubled(tensors), folder / stray)
    assert torch.equal(loaded(folder), expected)
    assert weights_sha256(folder) == checksum


def test_parts_that_the_index_does_not_name_are_not_read(folder: Path, tensors: dict[str, Tensor]) -> None:
    expected = loaded(folder)
    split(folder, tensors)
    save_file(doubled(tensors), folder / "model-00003-of-00003.safetensors")
    assert torch.equal(loaded(folder), expected)
    assert [path.name[:11] for path in weight_files(folder)] == ["model-00001", "model-00002"]


def test_the_whole_file_wins_over_the_parts_as_in_transformers(folder: Path, tensors: dict[str, Tensor]) -> None:
    transformers = pytest.importorskip("transformers")
    split(folder, doubled(tensors))
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"model_type": "qwen2"}))
    theirs = (
        transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).get_input_embeddings().weight
    )
    (folder / "config.json").write_text(json.dumps(config))
    assert torch.equal(loaded(folder), theirs)
    assert torch.equal(loaded(folder), tensors[EMBED].float())


def test_parts_without_an_index_are_refused(folder: Path, tensors: dict[str, Tensor]) -> None:
    split(folder, tensors)
    (folder / "model.safetensors.index.json").unlink()
    with pytest.raises(CheckpointError, match=r"no weights: neither .* \(found model-00001-of-00002\.safetensors, "):
        weight_files(folder)


def test_a_folder_of_pickles_alone_is_refused(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match=r"has no weights: .*pytorch_model\.bin"):
        weight_files(folder)


@pytest.mark.parametrize(
    "file", ["../elsewhere.safetensors", "/etc/passwd", "sub/model.safetensors", "", "model.bin", None, 3, ["a"]]
)
def test_an_index_names_files_of_its_own_folder(folder: Path, tensors: dict[str, Tensor], file: Any) -> None:
    split(folder, tensors, **{EMBED: file})
    with pytest.raises(CheckpointError, match=r"index\.json: weight_map\.model\.embed_tokens\.weight="):
        weight_files(folder)


@pytest.mark.parametrize("content", ["{}", '{"weight_map": {}}', '{"weight_map": []}', "[]", "{"])
def test_a_damaged_index_is_refused(folder: Path, content: str) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text(content)
    with pytest.raises(CheckpointError, match=r"model\.safetensors\.index\.json") as caught:
        weight_files(folder)
    assert "\n" not in str(caught.value)


def test_parts_that_are_missing_are_named(folder: Path, tensors: dict[str, Tensor]) -> None:
    split(folder, tensors)
    (folder / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"names missing model-00002-of-00002\.safetensors \(1 in all\)"):
        weight_files(folder)


def test_a_tensor_in_two_parts_is_refused(folder: Path, tensors: dict[str, Tensor]) -> None:
    index = split(folder, tensors)
    other = next(file for file in sorted(set(index.values())) if file != index[EMBED])
    save_file({**load_file(folder / other), EMBED: tensors[EMBED]}, folder / other)
    with pytest.raises(CheckpointError, match=rf"{EMBED}, which another part has as well"):
        loaded(folder)


def test_a_folder_that_is_an_adapters_as_well_is_refused(folder: Path) -> None:
    (folder / "adapter_config.json").write_text("{}")
    with pytest.raises(CheckpointError, match=r"adapter_config\.json makes this an adapter's folder"):
        weight_files(folder)


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.float8_e4m3fn, torch.int32, torch.bool])
def test_quantised_weights_are_refused(folder: Path, tensors: dict[str, Tensor], dtype: torch.dtype) -> None:
    """Their numbers mean something only with scales that lie elsewhere."""
    save_file({**tensors, EMBED: tensors[EMBED].to(dtype)}, folder / "model.safetensors")
    with pytest.raises(CheckpointError, match=rf"quantised: {EMBED} is {str(dtype).removeprefix('torch.')}"):
        loaded(folder)


def test_weights_of_every_float_type_load(folder: Path, tensors: dict[str, Tensor]) -> None:
    for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.float64):
        save_file({name: value.to(dtype) for name, value in tensors.items()}, folder / "model.safetensors")
        torch.testing.assert_close(loaded(folder), tensors[EMBED].to(dtype).float(), rtol=0, atol=0)
        assert loaded(folder, torch.bfloat16).dtype == torch.bfloat16


def tie(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"tie_word_embeddings": True}))


def test_a_tied_model_may_hold_its_matrix_twice_but_not_two(folder: Path, tensors: dict[str, Tensor]) -> None:
    tie(folder)
    with pytest.raises(CheckpointError, match=r"ties the output to model\.embed_tokens\.weight, and the weights hold"):
        loaded(folder)
    save_file({**tensors, HEAD: tensors[EMBED].clone()}, folder / "model.safetensors")
    model = load_model(folder, torch.float32, CPU)
    assert torch.equal(model.logits(torch.eye(64)), tensors[EMBED].float().T)


def test_old_rotary_frequencies_are_the_only_tensors_that_are_passed_over(folder: Path, tensors: dict) -> None:
    expected = loaded(folder)
    extra = {"model.layers.0.self_attn.rotary_emb.inv_freq": torch.zeros(8)}
    save_file(tensors | extra, folder / "model.safetensors")
    assert torch.equal(loaded(folder), expected)
    for name in ("model.layers.0.self_attn.o_proj.bias", "model.layers.2.mlp.up_proj.weight", "inv_freq"):
        save_file(tensors | {name: torch.zeros(8)}, folder / "model.safetensors")
        with pytest.raises(CheckpointError, match=rf"extra: {name}"):
            loaded(folder)


@pytest.mark.parametrize("shape", [(64,), (64, 64, 1), (32, 128), (63, 64), (64, 63), ()])
def test_a_part_of_a_fused_matrix_has_its_own_shape(folder: Path, tensors: dict, shape: tuple[int, ...]) -> None:
    name = "model.layers.1.self_attn.q_proj.weight"
    save_file({**tensors, name: torch.zeros(shape)}, folder / "model.safetensors")
    with pytest.raises(CheckpointError, match=rf"misshapen: {name} is \({', '.join(map(str, shape))}"):
        loaded(folder)


def test_parts_of_a_fused_matrix_that_only_fit_together_are_refused(folder: Path, tensors: dict) -> None:
    """Of wrong sizes with the right sum they would be cut in the wrong place."""
    for one, other, rows in (("self_attn.q", "self_attn.k", (32, 64)), ("mlp.gate", "mlp.up", (100, 156))):
        names = [f"model.layers.1.{name}_proj.weight" for name in (one, other)]
        wrong = {name: torch.zeros(count, 64) for name, count in zip(names, rows)}
        assert sum(rows) == sum(len(tensors[name]) for name in names)
        save_file(tensors | wrong, folder / "model.safetensors")
        with pytest.raises(CheckpointError, match=rf"misshapen: {names[0]} is .*misshapen: {names[1]} is"):
            loaded(folder)


def test_many_faults_are_counted_and_not_listed(folder: Path, tensors: dict[str, Tensor]) -> None:
    save_file({EMBED: tensors[EMBED]}, folder / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"more missing") as caught:
        loaded(folder)
    assert len(str(caught.value)) < 600
