"""Whole modules that an adapter brings along (modules_to_save): they replace the checkpoint's as PEFT's do."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from lopa_bench.errors import CheckpointError
from lopa_bench.models.checkpoint.files import Header
from lopa_bench.models.checkpoint.layouts import DREAM
from lopa_bench.models.checkpoint.loader import load_model
from lopa_bench.models.checkpoint.lora import Merge
from tests.test_lora import CONFIG, RECORDED, pair, plain, weights, write

MODELS = Path(__file__).parent / "golden" / "models"
CPU = torch.device("cpu")
HEAD, TABLE = "lm_head.weight", "model.embed_tokens.weight"
PREFIX = "base_model.model."


def everything() -> dict[str, Tensor]:
    """Random numbers for every tensor of the model that tests.peft_reference records."""
    generator = torch.Generator().manual_seed(0)
    found = weights()
    for parts in DREAM.published(CONFIG).values():
        for name in parts:
            if name not in found:
                rows = (40, 16) if name == TABLE else (8,) if name.endswith(("k_proj.bias", "v_proj.bias")) else (16,)
                found[name] = torch.randn(rows, generator=generator)
    return found


def merged(folder: Path, base: dict[str, Tensor], tied: bool = False) -> dict[str, Tensor]:
    """The tensors of `base` with the adapter merged, in pieces of five rows."""
    headers = {name: Header(folder, tuple(value.shape), "F32") for name, value in base.items()}
    modules = DREAM.modules(replace(CONFIG, tied=tied))
    merge = Merge(folder, modules, headers, (TABLE, HEAD) if tied else None)
    return {
        name: torch.cat([merge.rows(name, i, value[i : i + 5]) for i in range(0, len(value), 5)])
        for name, value in base.items()
    }


@pytest.mark.parametrize("case", [name for name, case in RECORDED.items() if "saved" in case])
def test_the_same_tensors_are_replaced_and_the_same_modules_changed_as_with_peft(case: str, tmp_path: Path) -> None:
    base, expected = everything(), RECORDED[case]
    tied = expected["settings"]["ensure_weight_tying"]
    tensors = {PREFIX + name: base[name] + 1 for name in expected["saved"]}
    if tied:
        del base[HEAD]
        tensors[PREFIX + HEAD] = tensors[PREFIX + TABLE].clone()
    wanted = {name: tensors.get(PREFIX + name, value) for name, value in base.items()}
    for module, (rank, scale) in expected["modules"].items():
        down, up = (matrices := pair(base, module, rank)).values()
        tensors |= matrices
        wanted[f"{module}.weight"] = base[f"{module}.weight"] + scale * up @ down
    found = merged(write(tmp_path / "adapter", expected["settings"], tensors), base, tied)
    for name, value in wanted.items():
        torch.testing.assert_close(found[name], value, rtol=0, atol=0 if PREFIX + name in tensors else 1e-4)


def loaded(folder: Path, adapter: Path | None = None, dtype: torch.dtype = torch.float32) -> dict[str, Tensor]:
    return load_model(folder, dtype, CPU, adapter).state_dict()


Q = "model.layers.0.self_attn.q_proj"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of a tiny Dream-layout checkpoint."""
    shutil.copytree(MODELS / "dream_a", tmp_path / "model")
    return tmp_path / "model"


def adapter_of(folder: Path, tensors: dict[str, Tensor], **changes: Any) -> Path:
    """An adapter for the first queries of a checkpoint folder that saves `tensors`."""
    base = load_file(folder / "model.safetensors")
    settings = plain(**{"target_modules": [Q], "modules_to_save": ["lm_head"], **changes})
    return write(folder.parent / "adapter", settings, pair(base, Q, 2) | tensors)


@pytest.mark.parametrize(
    "key", ["lm_head.weight", "lm_head.modules_to_save.weight", "lm_head.modules_to_save.default.weight"]
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_saved_head_takes_the_place_of_the_models_in_the_dtype_that_runs(
    key: str, dtype: torch.dtype, folder: Path
) -> None:
    shape = load_file(folder / "model.safetensors")[HEAD].shape
    saved = torch.randn(shape, generator=torch.Generator().manual_seed(3))
    before, after = loaded(folder, dtype=dtype), loaded(folder, adapter_of(folder, {PREFIX + key: saved}), dtype)
    assert torch.equal(after[HEAD], saved.to(dtype))
    assert not torch.equal(before["layers.0.attention.qkv_proj.weight"], after["layers.0.attention.qkv_proj.weight"])
    assert all(
        torch.equal(before[name], after[name]) for name in before if "lm_head" not in name and "layers.0" not in name
    )


@pytest.mark.parametrize(
    ("tensors", "said"),
    [
        ({}, f"missing: {PREFIX}lm_head.weight"),
        ({"lm_head.weight": (3, 64)}, f"misshapen: {PREFIX}lm_head.weight is (3, 64), the checkpoint's is ("),
        ({"lm_head.weight": None, "lm_head.modules_to_save.weight": None}, f"twice: {PREFIX}lm_head.weight and"),
        ({"lm_head.weight": None, "lm_head.bias": (3,)}, f"not understood: {PREFIX}lm_head.bias"),
        ({"lm_head.weight": None, "model.norm.weight": (64,)}, f"not understood: {PREFIX}model.norm.weight"),
        ({"lm_head.weight": None, "lm_head.lora_A.weight": (2, 64)}, f"not understood: {PREFIX}lm_head.lora_A.weight"),
        ({"lm_head.weight": torch.int8}, "is int8, no plain numbers"),
        ({"lm_head.weight": torch.float8_e4m3fn}, "is float8_e4m3fn, no plain numbers"),
        ({"lm_head.weight": float("nan")}, f"is damaged: NaN or infinite numbers: {PREFIX}lm_head.weight"),
    ],
)
def test_saved_tensors_that_do_not_fit_are_refused_by_name(tensors: dict[str, Any], said: str, folder: Path) -> None:
    """A value is a shape, the dtype or number that spoils the right tensor, or None for the right one."""
    head = load_file(folder / "model.safetensors")[HEAD]

    def made(value: Any) -> Tensor:
        if isinstance(value, tuple):
            return torch.zeros(value)
        if isinstance(value, torch.dtype):
            return head.to(value)
        return head.clone() if value is None else torch.full_like(head, value)

    adapter = adapter_of(folder, {PREFIX + name: made(value) for name, value in tensors.items()})
    with pytest.raises(CheckpointError) as caught:
        loaded(folder, adapter)
    assert said in str(caught.value)
    assert str(adapter / "adapter_model.safetensors") in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_adapter_whose_only_target_is_saved_is_refused_as_by_peft(folder: Path) -> None:
    head = load_file(folder / "model.safetensors")[HEAD]
    settings = plain(target_modules=["lm_head"], modules_to_save=["lm_head"])
    adapter = write(folder.parent / "a", settings, {PREFIX + HEAD: head})
    with pytest.raises(CheckpointError, match="takes no module of it beside those of modules_to_save"):
        loaded(folder, adapter)


def test_numbers_of_a_saved_tensor_that_the_dtype_cannot_hold_name_the_adapters_file(folder: Path) -> None:
    saved = torch.full_like(load_file(folder / "model.safetensors")[HEAD], 1e5)
    adapter = adapter_of(folder, {f"{PREFIX}{HEAD}": saved})
    with pytest.raises(CheckpointError, match=r"adapter_model\.safetensors: .*lm_head.* float16 cannot hold"):
        loaded(folder, adapter, torch.float16)


def tie(folder: Path) -> Tensor:
    """Ties the ends of a checkpoint, and gives its table."""
    tensors = load_file(folder / "model.safetensors")
    del tensors[HEAD]
    save_file(tensors, folder / "model.safetensors")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "tie_word_embeddings": True}))
    return tensors[TABLE]


@pytest.mark.parametrize(
    ("names", "factors", "said"),
    [
        (["embed_tokens"], {TABLE: 2}, f"replaces {TABLE} alone"),
        (["lm_head"], {HEAD: 2}, f"replaces {HEAD} alone"),
        (["embed_tokens", "lm_head"], {TABLE: 2, HEAD: 3}, "by other numbers, and config.json ties them"),
        (["embed_tokens", "lm_head"], {TABLE: 2}, f"missing: {PREFIX}{HEAD}"),
    ],
)
def test_a_tie_that_peft_would_undo_is_refused(
    names: list[str], factors: dict[str, float], said: str, folder: Path
) -> None:
    table = tie(folder)
    adapter = adapter_of(folder, {PREFIX + name: table * by for name, by in factors.items()}, modules_to_save=names)
    with pytest.raises(CheckpointError, match="does not fit") as caught:
        loaded(folder, adapter)
    assert said in str(caught.value)


def test_a_tied_model_takes_one_matrix_that_both_ends_save(folder: Path) -> None:
    table = tie(folder)
    both = {PREFIX + TABLE: table * 2, PREFIX + HEAD: table * 2}
    for changes in ({"modules_to_save": ["embed_tokens", "lm_head"]}, {"ensure_weight_tying": True}):
        assert torch.equal(loaded(folder, adapter_of(folder, both, **changes))["embed.weight"], table * 2)
    norm = {f"{PREFIX}model.norm.weight": torch.ones(table.shape[1])}
    kept = loaded(folder, adapter_of(folder, norm, modules_to_save=["model.norm"], ensure_weight_tying=True))
    assert torch.equal(kept["embed.weight"], table)
