"""The dense families: Qwen2's and Qwen3's networks under their own and other names, and LLaDA's.

A family is a few lines: names, sizes, what its network has, how its logits are shifted, where its blocks begin.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from lopa_bench.models.checkpoint.families.layout import Layout, Mark
from lopa_bench.models.checkpoint.families.names import LLADA as LLADA_NAMES
from lopa_bench.models.checkpoint.families.names import QWEN
from lopa_bench.models.checkpoint.keys import Keys, shown

LAYERS = 10_000
POSITIONS = 1_000_000_000
NO_WINDOW = ("sliding_window", "max_window_layers")  # count only with use_sliding_window


def qwen_sizes(keys: Keys, absent: Mapping[str, Any]) -> dict[str, Any]:
    """Sizes under the keys of transformers' own models. `absent` may also name the key of the dense inner size."""
    vocab, hidden, heads = (keys.count(key) for key in ("vocab_size", "hidden_size", "num_attention_heads"))
    layers = keys.count("num_hidden_layers", most=LAYERS)
    kinds = keys.get("layer_types")
    if kinds is not None and kinds != ["full_attention"] * layers:
        keys.refuse("layer_types", f'null or "full_attention" for each of {layers} layers')
    return {
        "vocab_size": vocab,
        "hidden_size": hidden,
        "intermediate_size": keys.count(absent.get("intermediate", "intermediate_size")),
        "layers": layers,
        "heads": heads,
        "kv_heads": _kv_heads(keys, "num_key_value_heads", heads),
        "head_dim": keys.count_or_none("head_dim", absent.get("head_dim"))
        or _head_dim(keys, "hidden_size", hidden, heads),
        "tied": keys.flag("tie_word_embeddings", False),
        "max_positions": keys.count(
            "max_position_embeddings", absent.get("max_position_embeddings", 32768), most=POSITIONS
        ),
    }


def llada_sizes(keys: Keys, absent: Mapping[str, Any]) -> dict[str, Any]:
    """LLaDA's own keys: the network of block_type llama out of the many that its configuration class knows."""
    hidden, heads = keys.count("d_model"), keys.count("n_heads")
    named = keys.count("vocab_size")
    vocab = keys.count_or_none("embedding_size") or named
    if vocab < named:
        keys.refuse("embedding_size", f"null, or an integer from vocab_size={named} on")
    inner = keys.count_or_none("mlp_hidden_size")
    ratio = keys.count("mlp_ratio", 4)
    return {
        "vocab_size": vocab,
        "hidden_size": hidden,
        "intermediate_size": ratio * hidden if inner is None else inner,
        "layers": keys.count("n_layers", most=LAYERS),
        "heads": heads,
        "kv_heads": _llada_kv_heads(keys, heads),
        "head_dim": _head_dim(keys, "d_model", hidden, heads),
        "tied": keys.flag("weight_tying", True),
        "max_positions": keys.count("max_sequence_length", 1024, most=POSITIONS),
        "qkv_bias": keys.flag("include_qkv_bias", False),
        "rope_float32": keys.flag("rope_full_precision", True),
        "logits_scale": hidden**-0.5 if keys.flag("scale_logits", False) else 1.0,
    }


def _kv_heads(keys: Keys, key: str, heads: int) -> int:
    found = keys.count_or_none(key, heads) or heads
    if heads % found:
        keys.refuse(key, f"null or a divisor of the {heads} query heads")
    return found


def _llada_kv_heads(keys: Keys, heads: int) -> int:
    single = keys.get("multi_query_attention")
    if single is None:
        return _kv_heads(keys, "n_kv_heads", heads)
    keys.flag("multi_query_attention", False)
    implied = 1 if single else heads
    if keys.count_or_none("n_kv_heads") not in (None, implied):
        keys.refuse("n_kv_heads", f"null or {implied} beside multi_query_attention={shown(single)}")
    return implied


def _head_dim(keys: Keys, key: str, hidden: int, heads: int) -> int:
    if hidden % heads:
        keys.refuse(key, f"a multiple of the {heads} query heads")
    return hidden // heads


QWEN_SWITCHES: Mapping[str, tuple[tuple[Any, ...], Any]] = {
    "hidden_act": (("silu", "swish"), "silu"),
    "use_sliding_window": ((False,), False),
}
BIASED = {**QWEN_SWITCHES, "attention_bias": ((None, True), None)}  # q, k and v have biases, whatever the key
UNBIASED = {**QWEN_SWITCHES, "attention_bias": ((None, False), None)}

DREAM = Layout(
    name="dream",
    model_types=("Dream", "dream"),
    names=QWEN,
    sizes=qwen_sizes,
    qkv_bias=True,
    qk_norm=False,
    shift="shifted",
    switches=BIASED,
    unused=NO_WINDOW,
)
DREAM_REASONER = replace(
    DREAM,
    name="dream_reasoner",
    mark=Mark("attention_bias", False, tensor="model.layers.0.self_attn.q_norm.weight"),  # it is Qwen3's network
    qkv_bias=False,
    qk_norm=True,
    shift="none",
    grid="absolute",
    block=("block_size", 32),
    absent={"head_dim": 128},
    switches=UNBIASED,
)
QWEN2 = replace(DREAM, name="qwen2", model_types=("qwen2",), must_be_asked_for=True)  # Open-dCoder
FAST_DLLM_V2 = replace(
    DREAM,
    name="fast_dllm_v2",
    model_types=("Fast_dLLM_Qwen",),
    shift="in_block",
    grid="absolute",
    block=("bd_size", 32),
)
SDAR = replace(DREAM_REASONER, name="sdar", model_types=("sdar",), mark=None, block=("block_size", 4))  # and TraDo
A2D_QWEN2 = replace(DREAM, name="a2d_qwen2", model_types=("a2d-qwen2",), shift="none")
A2D_QWEN3 = replace(
    DREAM_REASONER,
    name="a2d_qwen3",
    model_types=("a2d-qwen3",),
    mark=None,
    grid="prompt",
    block=("block_size", None),
)
A2D_LLAMA = replace(
    A2D_QWEN2,
    name="a2d_llama",
    model_types=("a2d-llama",),
    qkv_bias=False,
    absent={"max_position_embeddings": 2048},
    switches=UNBIASED,
)

LLADA = Layout(
    name="llada",
    model_types=("llada",),
    names=LLADA_NAMES,
    sizes=llada_sizes,
    qkv_bias=False,
    qk_norm=False,
    shift="none",
    absent={"rms_norm_eps": 1e-5},
    unused=("alibi_bias_max", "attention_layer_norm_with_affine"),
    switches={
        "activation_type": (("silu",), "swiglu"),
        "alibi": ((False,), False),
        "attention_layer_norm": ((False,), False),
        "bias_for_layer_norm": ((False, None), None),
        "block_group_size": ((1,), 1),
        "block_type": (("llama",), "sequential"),
        "include_bias": ((False,), False),
        "input_emb_norm": ((False,), False),
        "layer_norm_type": (("rms",), "default"),
        "layer_norm_with_affine": ((True,), True),
        "rope": ((True,), False),
        "tie_word_embeddings": ((None, True, False), None),  # of the base class; the network reads weight_tying
    },
)
