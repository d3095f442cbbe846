"""LoRA adapters against what PEFT makes of the same settings, and refusals of what is no plain LoRA."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from lopa_bench.errors import CheckpointError
from lopa_bench.models.checkpoint.files import Header
from lopa_bench.models.checkpoint.layouts import DREAM, LLADA, Layout
from lopa_bench.models.checkpoint.lora import Merge
from lopa_bench.models.config import ModelConfig

RECORDED = json.loads((Path(__file__).parent / "golden" / "adapters.json").read_text())
CONFIG = ModelConfig(
    vocab_size=40, hidden_size=16, intermediate_size=24, layers=3, heads=2, kv_heads=1, head_dim=8, rope_theta=10000.0,
    rms_eps=1e-6, qkv_bias=True, qk_norm=False, tied=False, shift="shifted", mask_id=39, end_ids=(1,), pad_id=0,
)  # fmt: skip
OUT = {"q_proj": 16, "k_proj": 8, "v_proj": 8, "o_proj": 16, "gate_proj": 24, "up_proj": 24, "down_proj": 16,
       "attn_out": 16, "ff_proj": 24, "ff_out": 16, "lm_head": 40}  # fmt: skip
IN = {"down_proj": 24, "ff_out": 24}
Q0, Q1 = (f"model.layers.{i}.self_attn.q_proj" for i in range(2))


def weights(layout: Layout = DREAM) -> dict[str, Tensor]:
    """Random matrices of all linear layers."""
    generator = torch.Generator().manual_seed(0)
    found = {}
    for name, kind in layout.modules(CONFIG).items():
        last = name.rpartition(".")[2]
        if kind == "head":
            found[f"{name}.weight"] = torch.randn(40, 16, generator=generator)
        elif kind == "linear":
            found[f"{name}.weight"] = torch.randn(OUT[last], IN.get(last, 16), generator=generator)
    return found


def pair(base: dict[str, Tensor], module: str, rank: int, seed: int = 1) -> dict[str, Tensor]:
    """Random A and B of a module, under PEFT's names."""
    generator = torch.Generator().manual_seed(seed)
    rows, columns = base[f"{module}.weight"].shape
    return {
        f"base_model.model.{module}.lora_A.weight": torch.randn(rank, columns, generator=generator),
        f"base_model.model.{module}.lora_B.weight": torch.randn(rows, rank, generator=generator),
    }


def write(folder: Path, settings: dict[str, Any], tensors: dict[str, Tensor]) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "adapter_config.json").write_text(json.dumps(settings))
    save_file(tensors, folder / "adapter_model.safetensors")
    return folder


def plain(**changes: Any) -> dict[str, Any]:
    return {"peft_type": "LORA", "r": 2, "lora_alpha": 8, "target_modules": ["q_proj"]} | changes


def all_q(base: dict[str, Tensor], rank: int = 2) -> dict[str, Tensor]:
    found: dict[str, Tensor] = {}
    for i in range(3):
        found |= pair(base, f"model.layers.{i}.self_attn.q_proj", rank, seed=i)
    return found


def merged(folder: Path, base: dict[str, Tensor], layout: Layout = DREAM) -> dict[str, Tensor]:
    """The tensors of `base` with the adapter merged, in pieces of five rows."""
    kinds = {torch.float32: "F32", torch.bfloat16: "BF16"}
    headers = {name: Header(folder, tuple(value.shape), kinds[value.dtype]) for name, value in base.items()}
    merge = Merge(folder, layout.modules(CONFIG), headers)
    return {
        name: torch.cat([merge.rows(name, i, value[i : i + 5]) for i in range(0, len(value), 5)])
        for name, value in base.items()
    }


@pytest.mark.parametrize("case", [name for name, case in RECORDED.items() if "saved" not in case])
def test_the_same_modules_change_by_the_same_scale_as_with_peft(case: str, tmp_path: Path) -> None:
    base, expected = weights(), RECORDED[case]
    tensors: dict[str, Tensor] = {}
    for module, (rank, _) in expected["modules"].items():
        tensors |= pair(base, module, rank)
    found = merged(write(tmp_path / "adapter", expected["settings"], tensors), base)
    assert found.keys() == base.keys()
    for name, weight in base.items():
        module = name.removesuffix(".weight")
        if module in expected["modules"]:
            down, up = (tensors[f"base_model.model.{module}.lora_{side}.weight"] for side in "AB")
            weight = weight + expected["modules"][module][1] * up @ down
        torch.testing.assert_close(found[name], weight, rtol=0, atol=1e-4)


def test_the_scale_is_alpha_over_r_and_under_rslora_over_its_root(tmp_path: Path) -> None:
    base = weights()
    tensors = all_q(base)
    product = tensors[f"base_model.model.{Q1}.lora_B.weight"] @ tensors[f"base_model.model.{Q1}.lora_A.weight"]
    for settings, scale in (
        ({}, 4.0), ({"use_rslora": True}, 8 / math.sqrt(2)), ({"lora_alpha": 3}, 1.5),
        ({"alpha_pattern": {r"layers\.1\..*": 5}}, 2.5), ({"alpha_pattern": {"1.self_attn.q_proj": 5}}, 2.5),
        ({"alpha_pattern": {"attn.q_proj": 5}}, 4.0), ({"alpha_pattern": {"layers.1": 5}}, 4.0),
        ({"rank_pattern": None, "alpha_pattern": None}, 4.0),
    ):  # fmt: skip
        found = merged(write(tmp_path / "adapter", plain(**settings), tensors), base)
        torch.testing.assert_close(found[f"{Q1}.weight"], base[f"{Q1}.weight"] + scale * product, rtol=0, atol=1e-4)
        torch.testing.assert_close(found["lm_head.weight"], base["lm_head.weight"], rtol=0, atol=0)


def test_in_the_llada_layout_names_are_those_of_llada(tmp_path: Path) -> None:
    base = weights(LLADA)
    module = "model.transformer.blocks.2.ff_proj"
    settings = plain(target_modules=r".*blocks\.2\.ff_proj")
    tensors = pair(base, module, 2)
    found = merged(write(tmp_path / "adapter", settings, tensors), base, LLADA)
    down, up = tensors.values()
    expected = {**base, f"{module}.weight": base[f"{module}.weight"] + 4 * up @ down}
    for name, weight in expected.items():
        torch.testing.assert_close(found[name], weight, rtol=0, atol=1e-4)


def test_ff_out_of_llada_is_a_layer_and_the_head(tmp_path: Path) -> None:
    base = weights(LLADA)
    blocks = {
        key: value for i in range(3) for key, value in pair(base, f"model.transformer.blocks.{i}.ff_out", 2).items()
    }
    adapter = write(tmp_path / "adapter", plain(target_modules=["ff_out"]), blocks)
    with pytest.raises(CheckpointError, match=r"missing: base_model\.model\.model\.transformer\.ff_out\.lora_A"):
        merged(adapter, base, LLADA)
    write(adapter, plain(target_modules=["ff_out"]), blocks | pair(base, "model.transformer.ff_out", 2))
    assert not torch.equal(
        merged(adapter, base, LLADA)["model.transformer.ff_out.weight"], base["model.transformer.ff_out.weight"]
    )
    write(adapter, plain(target_modules="all-linear", exclude_modules=r".*(proj|attn_out)"), blocks)
    assert torch.equal(
        merged(adapter, base, LLADA)["model.transformer.ff_out.weight"], base["model.transformer.ff_out.weight"]
    )


def test_sums_are_not_rounded_to_the_precision_of_the_file(tmp_path: Path) -> None:
    """A bfloat16 file that runs in float32 keeps what the adapter adds below bfloat16's steps."""
    base = {name: value.bfloat16() for name, value in weights().items()}
    tensors = {name: 1e-3 * value for name, value in all_q(base).items()}
    found = merged(write(tmp_path / "adapter", plain(), tensors), base)[f"{Q0}.weight"]
    down, up = (tensors[f"base_model.model.{Q0}.lora_{side}.weight"] for side in "AB")
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, base[f"{Q0}.weight"].float() + 4 * up @ down, rtol=0, atol=1e-9)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("use_dora", True), ("bias", "all"), ("bias", "lora_only"), ("lora_bias", True),
        ("modules_to_save", "lm_head"), ("modules_to_save", [""]), ("modules_to_save", [".*head"]),
        ("modules_to_save", ["score"]), ("modules_to_save", ["model"]), ("modules_to_save", ["layers"]),
        ("modules_to_save", ["mlp", "up_proj"]), ("modules_to_save", ["_proj"]), ("modules_to_save", [1]),
        ("modules_to_save", {"lm_head": 1}), ("ensure_weight_tying", 1),
        ("init_lora_weights", "pissa"), ("init_lora_weights", "pissa_niter_16"), ("init_lora_weights", "olora"),
        ("init_lora_weights", "loftq"), ("init_lora_weights", "corda"), ("init_lora_weights", "lora_ga"),
        ("init_lora_weights", None), ("trainable_token_indices", [1]), ("target_parameters", ["mlp.weight"]),
        ("layer_replication", [[0, 2]]), ("megatron_config", {"a": 1}), ("use_qalora", True), ("kasa_config", {"a": 1}),
        ("alora_invocation_tokens", [1, 2]), ("velora_config", {"a": 1}), ("arrow_config", {"a": 1}),
        ("use_bdlora", True), ("something_new", True), ("peft_type", "IA3"), ("peft_type", None), ("r", 0), ("r", "2"),
        ("r", 2.0), ("r", None), ("lora_alpha", "8"), ("lora_alpha", None), ("use_rslora", 1), ("use_rslora", None),
        ("rank_pattern", {"q_proj": "2"}), ("rank_pattern", {"q_proj": 0}), ("rank_pattern", ["q_proj"]),
        ("alpha_pattern", {"q_proj": None}), ("alpha_pattern", {"q(": 2}), ("target_modules", "q("),
        ("target_modules", []), ("target_modules", ""), ("target_modules", {"q_proj": 1}), ("target_modules", [1]),
        ("layers_to_transform", "1"), ("layers_to_transform", [True]), ("layers_pattern", [1]),
        ("exclude_modules", "("),
    ],
)  # fmt: skip
def test_what_is_no_plain_lora_is_refused_by_file_and_key(key: str, value: Any, tmp_path: Path) -> None:
    base = weights()
    adapter = write(tmp_path / "adapter", plain(**{key: value}), all_q(base))
    with pytest.raises(CheckpointError) as caught:
        merged(adapter, base)
    message = str(caught.value)
    assert str(adapter / "adapter_config.json") in message
    assert key in message
    assert "allowed" in message
    assert "\n" not in message


def test_switches_that_are_off_and_keys_of_training_are_ignored(tmp_path: Path) -> None:
    base = weights()
    settings = plain(
        use_dora=False, modules_to_save=None, loftq_config={}, eva_config={"rho": 2}, task_type="CAUSAL_LM",
        base_model_name_or_path="elsewhere", lora_dropout=0.3, inference_mode=False, peft_version="1", something=False,
        another={}, third=[], fourth=None, fan_in_fan_out=True,
    )  # fmt: skip
    found = merged(write(tmp_path / "adapter", settings, all_q(base)), base)
    expected = merged(write(tmp_path / "adapter", plain(), all_q(base)), base)
    assert all(torch.equal(found[name], expected[name]) for name in base)


@pytest.mark.parametrize("missing", [True, False])
def test_without_target_modules_the_tensors_say_which(missing: bool, tmp_path: Path) -> None:
    base = weights()
    settings = plain(target_modules=None)
    if missing:
        del settings["target_modules"]
    found = merged(write(tmp_path / "adapter", settings, pair(base, Q1, 2)), base)
    assert [name for name in base if not torch.equal(found[name], base[name])] == [f"{Q1}.weight"]


def spoil(tensors: dict[str, Tensor], name: str, value: Tensor | None) -> dict[str, Tensor]:
    changed: dict[str, Tensor | None] = {**tensors, name: value}
    return {name: value for name, value in changed.items() if value is not None}


A0, B0 = (f"base_model.model.{Q0}.lora_{side}.weight" for side in "AB")


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        (A0, None, f"missing: {A0}"),
        (B0, None, f"missing: {B0}"),
        ("base_model.model.model.layers.0.self_attn.k_proj.lora_A.weight", torch.zeros(2, 16), "not understood: base"),
        ("base_model.model.lm_head.weight", torch.zeros(40, 16), "not understood: base_model.model.lm_head.weight"),
        (f"{Q0}.lora_A.weight", torch.zeros(2, 16), f"not understood: {Q0}.lora_A.weight"),
        (A0.replace(".weight", ".default.weight"), torch.zeros(2, 16), "not understood"),
        (f"base_model.model.{Q0}.lora_magnitude_vector", torch.zeros(16), "not understood"),
        (f"base_model.model.{Q0}.lora_B.bias", torch.zeros(16), "not understood"),
        ("base_model.model.model.embed_tokens.lora_embedding_A", torch.zeros(2, 40), "not understood"),
        (A0, torch.zeros(3, 16), "do not make rank 2"),
        (A0, torch.zeros(2, 15), "do not make rank 2"),
        (B0, torch.zeros(15, 2), "do not make rank 2"),
        (B0, torch.zeros(16), "do not make rank 2"),
        (A0, torch.zeros(2, 16, dtype=torch.int8), "no plain numbers"),
    ],
)
def test_tensors_that_peft_would_pass_over_or_miss_are_refused_by_name(
    name: str, value: Tensor | None, said: str, tmp_path: Path
) -> None:
    """PEFT warns of them and goes on with another adapter than the file's."""
    base = weights()
    adapter = write(tmp_path / "adapter", plain(), spoil(all_q(base), name, value))
    with pytest.raises(CheckpointError) as caught:
        merged(adapter, base)
    assert said in str(caught.value)
    assert str(adapter / "adapter_model.safetensors") in str(caught.value)


def test_a_rank_that_is_not_that_of_the_tensors_is_refused(tmp_path: Path) -> None:
    base = weights()
    with pytest.raises(CheckpointError, match="do not make rank 4"):
        merged(write(tmp_path / "adapter", plain(r=4), all_q(base)), base)
    with pytest.raises(CheckpointError, match="do not make rank 3"):
        merged(write(tmp_path / "adapter", plain(rank_pattern={"q_proj": 3}), all_q(base)), base)


@pytest.mark.parametrize("targets", [["embed_tokens"], ["self_attn"], ["input_layernorm"], ".*mlp.*", "model"])
def test_modules_that_are_no_linear_layers_are_refused(targets: Any, tmp_path: Path) -> None:
    base = weights()
    with pytest.raises(CheckpointError, match="which is no linear layer"):
        merged(write(tmp_path / "adapter", plain(target_modules=targets), all_q(base)), base)


@pytest.mark.parametrize("target", ["w_qkv", "_proj", "proj", "attn.q_proj"])
def test_a_name_is_whole_or_stands_behind_a_dot(target: str, tmp_path: Path) -> None:
    base = weights()
    adapter = write(tmp_path / "adapter", plain(target_modules=[target]), {})
    with pytest.raises(CheckpointError, match=rf'target_modules=\["{target}"\] takes no module'):
        merged(adapter, base)


def test_layers_to_transform_need_a_list_of_names(tmp_path: Path) -> None:
    base = weights()
    settings = plain(target_modules=r".*\.q_proj", layers_to_transform=[0])
    with pytest.raises(CheckpointError, match=r"layers_to_transform=.* where target_modules is no list"):
        merged(write(tmp_path / "adapter", settings, all_q(base)), base)


def test_only_the_file_that_peft_reads_is_read(tmp_path: Path) -> None:
    """Neither a second file that sorts behind it, nor another one in its place."""
    base = weights()
    adapter = write(tmp_path / "adapter", plain(), all_q(base))
    expected = merged(adapter, base)
    save_file({name: value + 1 for name, value in all_q(base).items()}, adapter / "adapter_model_old.safetensors")
    (adapter / "adapter_model.bin").write_bytes(b"nothing")
    assert all(torch.equal(value, expected[name]) for name, value in merged(adapter, base).items())
    (adapter / "adapter_model.safetensors").unlink()
    with pytest.raises(
        CheckpointError, match=r"no adapter_model\.safetensors \(found adapter_model\.bin, adapter_model_old"
    ):
        merged(adapter, base)
