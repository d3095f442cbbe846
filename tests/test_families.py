"""Every published family: how it is known, what it says of itself, and that no other network passes for it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from lopa_bench.errors import CheckpointError
from lopa_bench.models.checkpoint.check import config_of
from lopa_bench.models.checkpoint.families.reading import model_config
from lopa_bench.models.checkpoint.folders import locate
from lopa_bench.models.checkpoint.layouts import LAYOUTS, read_config
from lopa_bench.models.loaded import count_parameters
from lopa_bench.settings import model as settings

MODELS = Path(__file__).parent / "golden" / "models"


@pytest.mark.parametrize(
    ("name", "family", "shift", "grid", "block"),
    [
        ("dream_a", "dream", "shifted", "prompt", None),
        ("llada_a", "llada", "none", "prompt", None),
        ("sdar_a", "sdar", "none", "absolute", 4),
        ("sdar_b", "sdar", "none", "absolute", 4),
        ("fdv2_a", "fast_dllm_v2", "in_block", "absolute", 32),
        ("llada2_a", "llada2_moe", "none", "absolute", 32),
        ("sdar_moe_a", "sdar_moe", "none", "absolute", 4),
        ("llada_moe_a", "llada_moe", "none", "prompt", None),
    ],
)
def test_a_family_is_known_by_its_config(name: str, family: str, shift: str, grid: str, block: int | None) -> None:
    layout, config = read_config(MODELS / name)
    assert (layout.name, config.shift, config.grid, config.block_size) == (family, shift, grid, block)
    assert config.mask_id == 96  # of llada2_a the tokenizer's files name it, as those of the released model do


def test_every_family_can_be_asked_for() -> None:
    assert set(settings.LAYOUTS) == set(LAYOUTS)


def test_a_model_type_of_autoregressive_models_must_be_asked_for() -> None:
    """The twin of the embedded model has a mask token in its tokenizer, and would decode without a word."""
    twin = locate("embedded:mini_ar")
    assert config_of(settings.ModelSettings(layout="qwen2"), twin).shift == "shifted"
    with pytest.raises(CheckpointError, match=r"allowed: model\.layout=qwen2 .* model\.layout=causal"):
        config_of(settings.ModelSettings(), twin)


def change(folder: Path, **changes: Any) -> Path:
    path = folder / "config.json"
    values = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({key: value for key, value in values.items() if value != "absent"}))
    return folder


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("sdar_a", {"attention_bias": True}, "attention_bias=true"),
        ("sdar_a", {"rope_scaling": {"type": "yarn", "factor": 4.0}}, "rope_scaling: type"),
        ("sdar_a", {"use_sliding_window": True}, "use_sliding_window=true"),
        ("sdar_a", {"partial_rotary_factor": 0.5}, "partial_rotary_factor=0.5"),
        ("sdar_a", {"num_experts": 8}, "num_experts=8 is not understood"),
        ("sdar_a", {"head_dim": 15}, "heads of size 15"),
        ("sdar_a", {"block_size": 0}, "block_size=0"),
        ("sdar_a", {"mask_token_id": None}, "model.layout=causal"),
        ("fdv2_a", {"bd_size": "32"}, 'bd_size="32"'),
        ("fdv2_a", {"block_size": 8}, "block_size=8 is not understood"),
        ("sdar_moe_a", {"num_experts_per_tok": 9}, "num_experts_per_tok=9"),
        ("sdar_moe_a", {"num_local_experts": 9}, "num_local_experts=9"),
        ("sdar_moe_a", {"mlp_only_layers": [2]}, "mlp_only_layers=[2]"),
        ("sdar_moe_a", {"decoder_sparse_step": 0}, "decoder_sparse_step=0"),
        ("sdar_moe_a", {"norm_topk_prob": None}, "norm_topk_prob=null"),
        ("llada_moe_a", {"moe_layer_freq": [1]}, "moe_layer_freq=[1]"),
        ("llada_moe_a", {"moe_layer_freq": [True, False]}, "moe_layer_freq"),
        ("llada_moe_a", {"router_num_group": 4}, "router_num_group=4 is not understood"),
        ("llada_moe_a", {"clip_qkv": 8.0}, "clip_qkv=8.0"),
        ("llada_moe_a", {"qk_layernorm": False}, "qk_layernorm=false"),
        ("llada_moe_a", {"partial_rotary_factor": 0.1}, "rotations of 1 of their numbers"),
        ("llada2_a", {"partial_rotary_factor": 2.0}, "at most the whole head"),
        ("llada2_a", {"num_shared_experts": False}, "num_shared_experts=false"),
        ("llada2_a", {"num_experts": 10**9}, "num_experts=1000000000"),
        ("llada2_a", {"n_group": 3}, "n_group=3"),
        ("llada2_a", {"topk_group": 5}, "topk_group=5"),
        ("llada2_a", {"num_experts_per_tok": 5}, "num_experts_per_tok=5"),
        ("llada2_a", {"use_bias": "absent"}, "lacks use_bias"),
        ("llada2_a", {"score_function": "softmax"}, 'score_function="softmax"'),
        ("llada2_a", {"norm_head": True}, "norm_head=true"),
        ("llada2_a", {"rotary_dim": 16}, "rotary_dim=16"),
        ("llada2_a", {"num_nextn_predict_layers": 1}, "num_nextn_predict_layers=1"),
        ("llada2_a", {"rope_parameters": {"partial_rotary_factor": 0.25}}, "contradict each other"),
        ("llada2_a", {"moe_shared_expert_intermediate_size": 17}, "moe_shared_expert_intermediate_size=17"),
        ("llada2_a", {"routed_scaling_factor": -1}, "routed_scaling_factor=-1"),
        ("llada2_a", {"mask_token_id": 97}, "mask_token_id=97"),
    ],
)
def test_another_network_than_the_family_s_is_refused_by_name(
    name: str, changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    for file in MODELS.joinpath(name).glob("*.json"):
        shutil.copy(file, tmp_path)
    with pytest.raises(CheckpointError) as caught:
        read_config(change(tmp_path, **changes))
    assert message in str(caught.value)
    assert "allowed" in str(caught.value)
    assert "\n" not in str(caught.value)


QWEN3_8B = {
    "hidden_size": 4096, "intermediate_size": 12288, "num_hidden_layers": 36, "num_attention_heads": 32,
    "num_key_value_heads": 8, "vocab_size": 151936,
}  # fmt: skip
QWEN2_7B = {
    "hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28, "num_attention_heads": 28,
    "num_key_value_heads": 4, "vocab_size": 152064,
}  # fmt: skip
QWEN3_30B = {
    "hidden_size": 2048, "intermediate_size": 6144, "moe_intermediate_size": 768, "num_hidden_layers": 48,
    "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128, "vocab_size": 151936, "num_experts": 128,
    "num_experts_per_tok": 8,
}  # fmt: skip


@pytest.mark.parametrize(
    ("family", "sizes", "count"),
    [
        ("dream", QWEN2_7B, 7_615_616_512),  # Qwen2.5-7B, which Dream and Fast-dLLM v2 started from
        ("fast_dllm_v2", QWEN2_7B, 7_615_616_512),
        ("dream_reasoner", QWEN3_8B, 8_190_735_360),  # Qwen3-8B, which DreamReasoner and SDAR started from
        ("sdar", QWEN3_8B, 8_190_735_360),
        ("sdar_moe", QWEN3_30B, 30_532_122_624),  # Qwen3-30B-A3B
    ],
)
def test_a_network_of_published_sizes_has_the_published_number_of_parameters(
    family: str, sizes: dict[str, Any], count: int
) -> None:
    config = model_config(LAYOUTS[family], {**sizes, "mask_token_id": 3}, "config.json")
    assert count_parameters(config) == count


@pytest.mark.parametrize(
    ("files", "mask_id"),
    [
        ({"tokenizer_config.json": {"mask_token": "<m>", "added_tokens_decoder": {"7": {"content": "<m>"}}}}, 7),
        (
            {
                "tokenizer_config.json": {"mask_token": {"content": "<m>"}},
                "tokenizer.json": {"added_tokens": [{"id": 3, "content": "x"}, {"id": 8, "content": "<m>"}]},
            },
            8,
        ),
        (
            {
                "special_tokens_map.json": {"mask_token": "<m>"},
                "tokenizer_config.json": {"added_tokens_decoder": {"9": {"content": "<m>"}}},
            },
            9,
        ),
        ({"tokenizer_config.json": {"mask_token": None}}, None),
        ({"tokenizer_config.json": {"mask_token": "<m>", "added_tokens_decoder": {"x": {"content": "<m>"}}}}, None),
        ({"tokenizer_config.json": {"mask_token": "<m>", "added_tokens_decoder": {"97": {"content": "<m>"}}}}, None),
        ({}, None),
    ],
)
def test_the_mask_is_the_tokenizer_s_where_the_config_names_none(
    files: dict[str, Any], mask_id: int | None, tmp_path: Path
) -> None:
    shutil.copy(MODELS / "sdar_a" / "config.json", tmp_path)
    change(tmp_path, mask_token_id="absent")
    for name, content in files.items():
        (tmp_path / name).write_text(json.dumps(content))
    if mask_id is not None:
        assert read_config(tmp_path)[1].mask_id == mask_id
    else:
        with pytest.raises(CheckpointError, match="mask_token_id"):
            read_config(tmp_path)
