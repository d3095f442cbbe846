"""config.json of the two published layouts: which keys make the network, which change nothing, and no others.

A key that is absent has the value that the released configuration class gives it. A key that is not known is refused
unless it is null: nobody can tell from its name that it changes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from lopa_bench.errors import CheckpointError
from lopa_bench.models.checkpoint.keys import Keys, shown
from lopa_bench.models.config import ModelConfig

LAYERS = 10_000
POSITIONS = 1_000_000_000
UNKNOWN = "allowed: null, or a config.json without this key if it changes nothing"

# Who made the file, with what, and in which precision it was stored: model.dtype says in which one it runs.
PROVENANCE = {
    "_attn_implementation", "_attn_implementation_autoset", "_commit_hash", "_name_or_path", "architectures",
    "auto_map", "dtype", "finetuning_task", "model_type", "tokenizer_class", "torch_dtype", "transformers_version",
    "unsloth_fixed", "unsloth_version",
}  # fmt: skip
# Of training and initialisation alone: dropout and random weights do not exist in a loaded network.
TRAINING = {
    "attention_dropout", "embedding_dropout", "gradient_checkpointing", "init_cutoff_factor", "init_device", "init_fn",
    "init_std", "initializer_range", "precision", "residual_dropout",
}  # fmt: skip
# Arguments of the publisher's own generate(), and what it returns; the decoders here have settings of their own.
GENERATION = {
    "bad_words_ids", "begin_suppress_tokens", "decoder_start_token_id", "diversity_penalty", "do_sample",
    "early_stopping", "encoder_no_repeat_ngram_size", "exponential_decay_length_penalty", "forced_bos_token_id",
    "forced_eos_token_id", "id2label", "label2id", "length_penalty", "max_length", "min_length", "no_repeat_ngram_size",
    "num_beam_groups", "num_beams", "num_return_sequences", "output_attentions", "output_hidden_states",
    "output_scores", "prefix", "problem_type", "remove_invalid_values", "repetition_penalty", "return_dict",
    "return_dict_in_generate", "sep_token_id", "suppress_tokens", "task_specific_params", "temperature", "top_k",
    "top_p", "typical_p", "use_cache",
}  # fmt: skip
# Another way to the same numbers.
EXECUTION = {"chunk_size_feed_forward", "flash_attention", "tf_legacy_loss", "torchscript", "use_bfloat16"}
IGNORED = PROVENANCE | TRAINING | GENERATION | EXECUTION

# Known switches that do nothing at this value and another network at any other.
NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "add_cross_attention": (False,),
    "is_causal": (False,),
    "is_decoder": (False,),
    "is_encoder_decoder": (False,),
    "mlp_bias": (False,),
    "partial_rotary_factor": (1,),
    "pretraining_tp": (1,),
    "pruned_heads": ({},),
    "tie_encoder_decoder": (False,),
    "use_mrope": (False,),
    "use_qk_norm": (False,),
}


def dream_config(raw: Mapping[str, Any], where: str) -> ModelConfig:
    """Dream and DiffuCoder: Qwen2's network and key names. Raises CheckpointError."""
    keys = Keys(raw, where)
    vocab, hidden, heads = (keys.count(key) for key in ("vocab_size", "hidden_size", "num_attention_heads"))
    layers = keys.count("num_hidden_layers", most=LAYERS)
    keys.only("hidden_act", ("silu", "swish"), "silu")
    keys.only("attention_bias", (None, True), None)  # q, k and v have biases, whatever the key
    keys.only("use_sliding_window", (False,), False)
    keys.get("sliding_window"), keys.get("max_window_layers")  # count only with use_sliding_window
    kinds = keys.get("layer_types")
    if kinds is not None and kinds != ["full_attention"] * layers:
        keys.refuse("layer_types", f'null or "full_attention" for each of {layers} layers')
    config = ModelConfig(
        vocab_size=vocab,
        hidden_size=hidden,
        intermediate_size=keys.count("intermediate_size"),
        layers=layers,
        heads=heads,
        kv_heads=_kv_heads(keys, "num_key_value_heads", heads),
        head_dim=keys.count_or_none("head_dim") or _head_dim(keys, "hidden_size", hidden, heads),
        rope_theta=_rope_theta(keys),
        rms_eps=keys.above_zero("rms_norm_eps", 1e-6),
        qkv_bias=True,
        qk_norm=False,
        tied=keys.flag("tie_word_embeddings", False),
        shift="shifted",
        mask_id=keys.token("mask_token_id", vocab),
        end_ids=keys.tokens("eos_token_id", vocab),
        pad_id=keys.token_or_none("pad_token_id", vocab),
        bos_id=keys.token_or_none("bos_token_id", vocab),
        max_positions=keys.count("max_position_embeddings", 32768, most=POSITIONS),
        block_size=keys.count_or_none("block_size"),
    )
    return _finished(keys, config)


def llada_config(raw: Mapping[str, Any], where: str) -> ModelConfig:
    """LLaDA: the network of block_type llama out of the many that its configuration class knows.

    Raises CheckpointError.
    """
    keys = Keys(raw, where)
    hidden, heads = keys.count("d_model"), keys.count("n_heads")
    for key, (allowed, default) in LLADA_NETWORK.items():
        keys.only(key, allowed, default)
    keys.get("alibi_bias_max"), keys.get("attention_layer_norm_with_affine")  # of what is off
    named = keys.count("vocab_size")
    vocab = keys.count_or_none("embedding_size") or named
    if vocab < named:
        keys.refuse("embedding_size", f"null, or an integer from vocab_size={named} on")
    inner = keys.count_or_none("mlp_hidden_size")
    ratio = keys.count("mlp_ratio", 4)
    config = ModelConfig(
        vocab_size=vocab,
        hidden_size=hidden,
        intermediate_size=ratio * hidden if inner is None else inner,
        layers=keys.count("n_layers", most=LAYERS),
        heads=heads,
        kv_heads=_llada_kv_heads(keys, heads),
        head_dim=_head_dim(keys, "d_model", hidden, heads),
        rope_theta=_rope_theta(keys),
        rms_eps=keys.above_zero("rms_norm_eps", 1e-5),
        qkv_bias=keys.flag("include_qkv_bias", False),
        qk_norm=False,
        tied=keys.flag("weight_tying", True),
        shift="none",
        mask_id=keys.token("mask_token_id", vocab),
        end_ids=keys.tokens("eos_token_id", vocab),
        pad_id=keys.token_or_none("pad_token_id", vocab),
        bos_id=keys.token_or_none("bos_token_id", vocab),
        max_positions=keys.count("max_sequence_length", 1024, most=POSITIONS),
        rope_float32=keys.flag("rope_full_precision", True),
    )
    return _finished(keys, config)


# Key: values that make the network that runs here, and what the released class takes where the key is absent.
LLADA_NETWORK: Mapping[str, tuple[tuple[Any, ...], Any]] = {
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
    "scale_logits": ((False,), False),
    "tie_word_embeddings": ((None, True, False), None),  # of the base class; weight_tying is what the network reads
}


def _finished(keys: Keys, config: ModelConfig) -> ModelConfig:
    for key, allowed in NEUTRAL.items():
        keys.only(key, (None, *allowed), None)
    keys.finish(IGNORED, UNKNOWN)
    if config.head_dim % 2:
        raise CheckpointError(f"{keys.where}: heads of size {config.head_dim} cannot be rotated; allowed: even")
    if config.mask_id in config.end_ids:
        keys.refuse("eos_token_id", f"another id than mask_token_id={config.mask_id}")
    return config


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


def _rope_theta(keys: Keys) -> float:
    """The rotary base, which transformers writes as `rope_theta` up to version 4 and inside `rope_parameters` from 5
    on. No scaling of the positions is allowed beside it.
    """
    found = {}
    if "rope_theta" in keys.raw:
        found["rope_theta"] = keys.above_zero("rope_theta", 10000.0)
    for key in ("rope_scaling", "rope_parameters"):
        value = keys.get(key)
        if value is None:
            continue
        if not isinstance(value, dict):
            keys.refuse(key, 'null or an object with rope_type "default"')
        inner = Keys(value, f"{keys.where}: {key}")
        inner.only("rope_type", (None, "default"), None)
        inner.only("type", (None, "default"), None)
        inner.only("partial_rotary_factor", (None, 1), None)
        if "rope_theta" in value:
            found[f"{key}.rope_theta"] = inner.above_zero("rope_theta", 10000.0)
        inner.finish((), 'allowed: rope_type "default" with rope_theta alone')
    if len(set(found.values())) > 1:
        both = " and ".join(f"{name}={value:g}" for name, value in found.items())
        raise CheckpointError(f"{keys.where}: {both} contradict each other; allowed: one value")
    theta = next(iter(found.values()), 10000.0)
    assert math.isfinite(theta)
    return theta
