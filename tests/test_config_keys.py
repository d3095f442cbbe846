"""config.json: which keys make the network, which change nothing, and that no other value is passed over."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lopa_bench.errors import CheckpointError
from lopa_bench.models.checkpoint.layouts import read_config
from lopa_bench.models.config import ModelConfig

MODELS = Path(__file__).parent / "golden" / "models"
ABSENT: Any = object()
BOTH = pytest.mark.parametrize("folder", ["dream_a", "llada_a"], indirect=True)
DREAM = pytest.mark.parametrize("folder", ["dream_a"], indirect=True)
LLADA = pytest.mark.parametrize("folder", ["llada_a"], indirect=True)


@pytest.fixture
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The config.json of a tiny published checkpoint, alone in a folder."""
    shutil.copy(MODELS / request.param / "config.json", tmp_path)
    return tmp_path


def write(folder: Path, name: str = "config.json", **changes: Any) -> None:
    path = folder / name
    values = json.loads(path.read_text()) if path.exists() else {}
    values |= changes
    path.write_text(json.dumps({key: value for key, value in values.items() if value is not ABSENT}))


def read(folder: Path, **changes: Any) -> ModelConfig:
    write(folder, **changes)
    return read_config(folder)[1]


def refusal(folder: Path, **changes: Any) -> str:
    with pytest.raises(CheckpointError) as caught:
        read(folder, **changes)
    assert "\n" not in str(caught.value)
    assert str(folder) in str(caught.value)
    return str(caught.value)


@DREAM
def test_every_size_of_the_dream_layout_is_read_from_its_key(folder: Path) -> None:
    found = read(
        folder, vocab_size=101, hidden_size=48, intermediate_size=70, num_hidden_layers=5, num_attention_heads=6,
        num_key_value_heads=3, head_dim=10, rope_theta=7.5, rms_norm_eps=1e-3, tie_word_embeddings=True,
        mask_token_id=9, eos_token_id=[8, 7], pad_token_id=6, bos_token_id=5, max_position_embeddings=33, block_size=4,
    )  # fmt: skip
    assert found == ModelConfig(
        vocab_size=101, hidden_size=48, intermediate_size=70, layers=5, heads=6, kv_heads=3, head_dim=10,
        rope_theta=7.5, rms_eps=1e-3, qkv_bias=True, qk_norm=False, tied=True, shift="shifted", mask_id=9,
        end_ids=(8, 7), pad_id=6, bos_id=5, max_positions=33, block_size=4, rope_float32=False,
    )  # fmt: skip


@LLADA
def test_every_size_of_the_llada_layout_is_read_from_its_key(folder: Path) -> None:
    found = read(
        folder, vocab_size=101, embedding_size=128, d_model=48, mlp_hidden_size=70, n_layers=5, n_heads=6,
        n_kv_heads=3, rope_theta=7.5, rms_norm_eps=1e-3, weight_tying=True, mask_token_id=9, eos_token_id=8,
        pad_token_id=6, bos_token_id=5, max_sequence_length=33, include_qkv_bias=True, rope_full_precision=False,
        scale_logits=True,
    )  # fmt: skip
    assert found == ModelConfig(
        vocab_size=128, hidden_size=48, intermediate_size=70, layers=5, heads=6, kv_heads=3, head_dim=8,
        rope_theta=7.5, rms_eps=1e-3, qkv_bias=True, qk_norm=False, tied=True, shift="none", mask_id=9, end_ids=(8,),
        pad_id=6, bos_id=5, max_positions=33, block_size=None, rope_float32=False, logits_scale=48**-0.5,
    )  # fmt: skip


@DREAM
def test_an_absent_key_has_the_value_of_the_released_dream_class(folder: Path) -> None:
    keys = ("rope_theta", "rope_scaling", "rms_norm_eps", "num_key_value_heads", "tie_word_embeddings", "hidden_act",
            "use_sliding_window", "pad_token_id", "bos_token_id", "eos_token_id")  # fmt: skip
    found = read(folder, max_position_embeddings=ABSENT, **dict.fromkeys(keys, ABSENT))
    assert (found.rope_theta, found.rms_eps, found.kv_heads, found.tied) == (10000.0, 1e-6, 4, False)
    assert (found.pad_id, found.bos_id, found.end_ids, found.max_positions) == (None, None, (), 32768)


@LLADA
def test_an_absent_key_has_the_value_of_the_released_llada_class(folder: Path) -> None:
    found = read(folder, rope_theta=ABSENT, rms_norm_eps=ABSENT, weight_tying=ABSENT, n_kv_heads=ABSENT,
                 mlp_hidden_size=None, mlp_ratio=3, embedding_size=None, vocab_size=98,
                 include_qkv_bias=ABSENT, rope_full_precision=ABSENT, max_sequence_length=ABSENT)  # fmt: skip
    assert (found.rope_theta, found.rms_eps, found.tied, found.kv_heads) == (10000.0, 1e-5, True, 4)
    assert (found.intermediate_size, found.vocab_size, found.qkv_bias) == (192, 98, False)
    assert (found.rope_float32, found.max_positions) == (True, 1024)


@LLADA
@pytest.mark.parametrize("key", ["rope", "block_type", "activation_type", "layer_norm_type"])
def test_a_llada_config_without_a_key_whose_default_is_another_network_is_refused(folder: Path, key: str) -> None:
    assert f"lacks {key}" in refusal(folder, **{key: ABSENT})


@LLADA
@pytest.mark.parametrize(
    ("single", "named", "expected"), [(None, 2, 2), (None, None, 4), (True, None, 1), (True, 1, 1), (False, 4, 4)]
)
def test_multi_query_attention_and_n_kv_heads_are_read_together(
    folder: Path, single: bool | None, named: int | None, expected: int
) -> None:
    assert read(folder, multi_query_attention=single, n_kv_heads=named).kv_heads == expected


@LLADA
def test_multi_query_attention_against_n_kv_heads_is_refused(folder: Path) -> None:
    assert "n_kv_heads=2" in refusal(folder, multi_query_attention=True, n_kv_heads=2)


@BOTH
@pytest.mark.parametrize(
    "written",
    [
        {"rope_theta": 500000},
        {"rope_parameters": {"rope_type": "default", "rope_theta": 500000.0}},
        {"rope_parameters": {"rope_theta": 500000.0}},
        {"rope_theta": 500000.0, "rope_parameters": {"rope_type": "default", "rope_theta": 500000}},
        {"rope_theta": 500000.0, "rope_scaling": None},
        {"rope_theta": 500000.0, "rope_scaling": {"type": "default"}},
        {"rope_scaling": {"rope_type": "default", "rope_theta": 500000.0}},
        {"rope_parameters": {"rope_type": "default", "rope_theta": 500000.0, "partial_rotary_factor": 1.0}},
    ],
)
def test_the_rotary_base_is_the_same_in_every_spelling(folder: Path, written: dict[str, Any]) -> None:
    assert read(folder, **{"rope_theta": ABSENT, "rope_scaling": ABSENT, **written}).rope_theta == 500000.0


@BOTH
@pytest.mark.parametrize("key", ["rope_scaling", "rope_parameters"])
@pytest.mark.parametrize(
    "value",
    [
        {"rope_type": "linear", "factor": 2.0, "rope_theta": 10000.0},
        {"type": "dynamic", "factor": 4.0},
        {"type": "linear"},
        {"rope_type": "yarn"},
        {"rope_type": "default", "type": "yarn"},
        {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 512},
        {"rope_type": "llama3", "factor": 8.0},
        {"rope_type": "longrope"},
        {"rope_type": "default", "factor": 2.0},
        {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5},
        {"full_attention": {"rope_type": "default", "rope_theta": 10000.0}},
        {"rope_type": None, "mrope_section": [1, 2]},
        "default",
        [],
        True,
    ],
)
def test_scaled_positions_are_refused(folder: Path, key: str, value: Any) -> None:
    assert f"{key}" in refusal(folder, **{key: value})


@BOTH
def test_two_rotary_bases_that_differ_are_refused(folder: Path) -> None:
    message = refusal(folder, rope_parameters={"rope_type": "default", "rope_theta": 500000.0})
    assert "rope_theta=10000 and rope_parameters.rope_theta=500000 contradict each other" in message


@DREAM
@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("hidden_act", "gelu"), ("hidden_act", None), ("attention_bias", 0), ("mlp_bias", True),
        ("use_sliding_window", True), ("layer_types", ["full_attention", "sliding_attention"]),
        ("layer_types", ["full_attention"]), ("partial_rotary_factor", 0.5), ("logit_scale", 0.0625),
        ("final_logit_softcapping", 30.0), ("attn_logit_softcapping", 50.0), ("query_pre_attn_scalar", 256),
        ("use_qk_norm", True), ("qk_norm", True), ("use_mrope", True), ("num_experts", 64), ("is_causal", True),
        ("attention_multiplier", 0.5), ("residual_multiplier", 0.2), ("embedding_multiplier", 12.0),
        ("pruned_heads", {"0": [1]}), ("quantization_config", {"quant_method": "bitsandbytes"}), ("norm_type", "layer"),
        ("pretraining_tp", 2), ("rotary_emb_base", 500000), ("transformers_weights", "other.safetensors"),
        ("is_encoder_decoder", True), ("cross_attention_hidden_size", 64), ("num_nextn_predict_layers", 1),
        ("use_sliding_window", 0), ("mlp_bias", 0), ("something_new", False), ("something_new", 0),
        ("something_new", ""), ("something_new", []),
    ],
)  # fmt: skip
def test_a_value_that_makes_another_dream_network_is_refused_by_name(folder: Path, key: str, value: Any) -> None:
    message = refusal(folder, **{key: value})
    assert f"{key}={json.dumps(value)}" in message
    assert "allowed" in message


@LLADA
@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("alibi", True), ("attention_layer_norm", True), ("include_bias", True), ("bias_for_layer_norm", True),
        ("layer_norm_with_affine", False), ("input_emb_norm", True), ("rope", False),
        ("block_group_size", 2), ("block_type", "sequential"), ("activation_type", "gelu"), ("activation_type", None),
        ("layer_norm_type", "default"), ("layer_norm_type", "gemma_rms"), ("embedding_size", 96),
        ("clip_qkv", 8.0), ("num_experts", 64), ("rope", 1), ("alibi", 0),
    ],
)  # fmt: skip
def test_a_value_that_makes_another_llada_network_is_refused_by_name(folder: Path, key: str, value: Any) -> None:
    message = refusal(folder, **{key: value})
    assert f"{key}={json.dumps(value)}" in message
    assert "allowed" in message


@BOTH
def test_bookkeeping_is_ignored(folder: Path) -> None:
    """What transformers, unsloth and trainers write into every config.json says nothing of the network."""
    plain = read(folder)
    written = {
        "_name_or_path": "somebody/model", "_attn_implementation_autoset": True, "_commit_hash": "abc",
        "architectures": ["Anything"], "auto_map": {"AutoModel": "x.Y"}, "transformers_version": "5.24.0",
        "torch_dtype": "float16", "dtype": "bfloat16", "use_cache": True, "attention_dropout": 0.1,
        "initializer_range": 0.5, "temperature": 0.2, "top_p": 0.95, "output_attentions": True, "id2label": {"0": "a"},
        "chunk_size_feed_forward": 4, "unsloth_version": "2025.1", "problem_type": None, "mlp_bias": False,
        "pruned_heads": {}, "is_decoder": False, "partial_rotary_factor": 1.0, "anything_at_all": None,
    }  # fmt: skip
    assert read(folder, **written) == plain


@DREAM
def test_settings_of_a_sliding_window_that_is_off_are_ignored(folder: Path) -> None:
    plain = read(folder)
    assert read(folder, sliding_window=4096, max_window_layers=1, layer_types=["full_attention"] * 2) == plain


SIZES = {"dream_a": "num_hidden_layers", "llada_a": "n_layers"}


@BOTH
@pytest.mark.parametrize("value", [None, "2", 2.0, True, 0, -1, [2], {}, 10**30])
def test_a_size_is_an_integer_above_zero(folder: Path, value: Any) -> None:
    for key in (
        "vocab_size",
        *({"num_hidden_layers", "n_layers"} & set(json.loads((folder / "config.json").read_text()))),
    ):
        before = json.loads((folder / "config.json").read_text())[key]
        assert f"{key}=" in refusal(folder, **{key: value})
        write(folder, **{key: before})


@BOTH
@pytest.mark.parametrize("key", ["vocab_size", "mask_token_id"])
def test_a_key_without_a_default_must_be_there(folder: Path, key: str) -> None:
    assert f"lacks {key}" in refusal(folder, **{key: ABSENT})


@BOTH
@pytest.mark.parametrize("key", ["rope_theta", "rms_norm_eps"])
@pytest.mark.parametrize("value", [None, "10000", True, 0, -1.0, [1.0]])
def test_a_measure_is_a_number_above_zero(folder: Path, key: str, value: Any) -> None:
    assert f"{key}={json.dumps(value)} is not allowed; allowed: a number above 0" in refusal(folder, **{key: value})


@pytest.mark.parametrize(
    ("folder", "key"),
    [("dream_a", "tie_word_embeddings"), ("llada_a", "weight_tying"), ("llada_a", "include_qkv_bias"),
     ("llada_a", "rope_full_precision"), ("llada_a", "multi_query_attention")],
    indirect=["folder"],
)  # fmt: skip
@pytest.mark.parametrize("value", [1, 0, "false", []])
def test_a_switch_is_true_or_false_and_nothing_like_it(folder: Path, key: str, value: Any) -> None:
    assert f"{key}={json.dumps(value)} is not allowed; allowed: true or false" in refusal(folder, **{key: value})


@BOTH
@pytest.mark.parametrize("value", [None, "2", -1, 97, 96.0, True, [96]])
def test_the_mask_id_is_one_id_of_the_vocabulary(folder: Path, value: Any) -> None:
    message = refusal(folder, mask_token_id=value)
    assert f"mask_token_id={json.dumps(value)} is not allowed; allowed: a token id from 0 to 96" in message


@BOTH
@pytest.mark.parametrize("key", ["pad_token_id", "bos_token_id"])
@pytest.mark.parametrize("value", ["2", -1, 97, 1.5, True, [3]])
def test_other_special_ids_are_null_or_inside_the_vocabulary(folder: Path, key: str, value: Any) -> None:
    assert f"{key}={json.dumps(value)} is not allowed" in refusal(folder, **{key: value})
    assert getattr(read(folder, **{key: None}), f"{key[:3]}_id") is None


@BOTH
@pytest.mark.parametrize("value", ["2", -1, 97, 1.5, True, [3, "4"], [97], [[3]], {}])
def test_end_ids_are_inside_the_vocabulary(folder: Path, value: Any) -> None:
    assert f"eos_token_id={json.dumps(value)} is not allowed" in refusal(folder, eos_token_id=value)


@BOTH
def test_the_mask_cannot_end_a_text(folder: Path) -> None:
    assert "eos_token_id=96" in refusal(folder, eos_token_id=96)


@DREAM
def test_heads_must_share_evenly(folder: Path) -> None:
    assert "num_key_value_heads=3" in refusal(folder, num_key_value_heads=3)
    assert "hidden_size=66" in refusal(folder, num_key_value_heads=2, hidden_size=66)
    assert "heads of size 15" in refusal(folder, hidden_size=60)


@BOTH
def test_generation_config_adds_its_end_ids_and_must_agree_on_the_mask(folder: Path) -> None:
    plain = read(folder)
    write(folder, "generation_config.json", eos_token_id=[93, 94], temperature=0.2, mask_token_id=96, top_p=None)
    assert read_config(folder)[1] == replace(plain, end_ids=(94, 93))
    write(folder, "generation_config.json", eos_token_id=92, mask_token_id=ABSENT)
    assert read_config(folder)[1].end_ids == (94, 92)
    for key, value in (("mask_token_id", 3), ("eos_token_id", 97), ("eos_token_id", "94"), ("eos_token_id", 96)):
        write(folder, "generation_config.json", **{"eos_token_id": 94, "mask_token_id": 96, key: value})
        with pytest.raises(CheckpointError, match=rf"generation_config\.json: {key}="):
            read_config(folder)


@pytest.mark.parametrize("file", ["config.json", "generation_config.json"])
@pytest.mark.parametrize(
    "content",
    [
        b"", b"{", b"null", b"[]", b"3", b"NaN", b'"text"', b'{"a": NaN}', b'{"a": Infinity}', b'{"a": 1, "a": 2}',
        b'{"a": {"b": 1, "b": 1}}', b"\xef\xbb\xbf{}", b"\xff\xfe{\x00", b'{"a": "\xff"}', b"[" * 100_000,
        b'{"a": ' + b"9" * 5000 + b"}", b"{} {}",
    ],
    ids=lambda content: repr(content[:16]),
)  # fmt: skip
@DREAM
def test_a_damaged_file_is_one_sentence(folder: Path, file: str, content: bytes) -> None:
    (folder / file).write_bytes(content)
    message = refusal(folder) if file == "generation_config.json" else None
    if message is None:
        with pytest.raises(CheckpointError) as caught:
            read_config(folder)
        message = str(caught.value)
    assert f"{folder / file} " in message
    assert "\n" not in message
    assert len(message) < len(str(folder)) + 300


@DREAM
def test_a_folder_in_the_place_of_a_file_and_a_strange_model_type_are_one_sentence(folder: Path) -> None:
    for kind in (None, 3, ["Dream"], {"a": 1}, "qwen3", "DREAM"):
        with pytest.raises(CheckpointError, match=r"model_type .* is not supported; supported: Dream"):
            read(folder, model_type=kind)
    (folder / "config.json").unlink()
    with pytest.raises(CheckpointError, match=r"config\.json is missing"):
        read_config(folder)
    (folder / "config.json").mkdir()
    with pytest.raises(CheckpointError, match=r"config\.json cannot be read: Is a directory"):
        read_config(folder)
