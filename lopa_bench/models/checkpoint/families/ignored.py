"""Keys of config.json that say nothing of the network, and those that say nothing at one value.

A key that is in none of these lists, and that a layout does not read, is refused unless it is null: nobody can tell
from its name that it changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# Who made the file, with what, and in which precision it was stored: model.dtype says in which one it runs.
PROVENANCE = {
    "_attn_implementation", "_attn_implementation_autoset", "_commit_hash", "_name_or_path", "architectures",
    "auto_map", "dtype", "finetuning_task", "model_type", "tokenizer_class", "torch_dtype", "transformers_version",
    "unsloth_fixed", "unsloth_version",
}  # fmt: skip
# Of training and initialisation alone: dropout, random weights and balance of experts do not exist in a loaded network.
TRAINING = {
    "attention_dropout", "embedding_dropout", "gradient_checkpointing", "init_cutoff_factor", "init_device", "init_fn",
    "init_std", "initializer_range", "mtp_loss_scaling_factor", "output_dropout", "precision", "residual_dropout",
    "router_aux_loss_coef",
}  # fmt: skip
# Arguments of the publisher's own generate(), and what it returns; the decoders here have settings of their own.
GENERATION = {
    "bad_words_ids", "begin_suppress_tokens", "decoder_start_token_id", "diversity_penalty", "do_sample",
    "early_stopping", "encoder_no_repeat_ngram_size", "exponential_decay_length_penalty", "forced_bos_token_id",
    "forced_eos_token_id", "id2label", "label2id", "length_penalty", "max_length", "min_length", "no_repeat_ngram_size",
    "num_beam_groups", "num_beams", "num_return_sequences", "output_attentions", "output_hidden_states",
    "output_router_logits", "output_scores", "prefix", "problem_type", "remove_invalid_values", "repetition_penalty",
    "return_dict", "return_dict_in_generate", "sep_token_id", "suppress_tokens", "task_specific_params", "temperature",
    "top_k", "top_p", "typical_p", "use_cache",
}  # fmt: skip
# Another way to the same numbers.
EXECUTION = {
    "attn_implementation", "chunk_size_feed_forward", "flash_attention", "fuse_cross_entropy", "tf_legacy_loss",
    "torchscript", "use_bfloat16",
}  # fmt: skip
IGNORED = PROVENANCE | TRAINING | GENERATION | EXECUTION

# Known switches that do nothing at this value and another network at any other.
NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "add_cross_attention": (False,),
    "is_causal": (False,),
    "is_decoder": (False,),
    "is_encoder_decoder": (False,),
    "mlp_bias": (False,),
    "num_nextn_predict_layers": (0,),
    "partial_rotary_factor": (1,),
    "pretraining_tp": (1,),
    "pruned_heads": ({},),
    "tie_encoder_decoder": (False,),
    "use_mrope": (False,),
    "use_qk_norm": (False,),
}
