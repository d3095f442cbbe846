"""The schemes by which published tensors are named."""

from __future__ import annotations

from lopa_bench.models.checkpoint.families.layout import Names

QWEN = Names(
    prefix="model.layers.{i}.",
    layer={
        "attention_norm.weight": ("input_layernorm.weight",),
        "attention.qkv_proj.weight": ("self_attn.q_proj.weight", "self_attn.k_proj.weight", "self_attn.v_proj.weight"),
        "attention.qkv_proj.bias": ("self_attn.q_proj.bias", "self_attn.k_proj.bias", "self_attn.v_proj.bias"),
        "attention.q_norm.weight": ("self_attn.q_norm.weight",),
        "attention.k_norm.weight": ("self_attn.k_norm.weight",),
        "attention.o_proj.weight": ("self_attn.o_proj.weight",),
        "mlp_norm.weight": ("post_attention_layernorm.weight",),
        "mlp.gate_up_proj.weight": ("mlp.gate_proj.weight", "mlp.up_proj.weight"),
        "mlp.down_proj.weight": ("mlp.down_proj.weight",),
        "mlp.router.weight": ("mlp.gate.weight",),
        "mlp.router.bias": ("mlp.expert_bias",),
        "mlp.experts.gate_up_proj": ("mlp.experts.{e}.gate_proj.weight", "mlp.experts.{e}.up_proj.weight"),
        "mlp.experts.down_proj": ("mlp.experts.{e}.down_proj.weight",),
        "mlp.shared.gate_up_proj.weight": ("shared_expert.gate_proj.weight", "shared_expert.up_proj.weight"),
        "mlp.shared.down_proj.weight": ("shared_expert.down_proj.weight",),
    },
    outer={"embed.weight": "model.embed_tokens.weight", "norm.weight": "model.norm.weight"},
    head="lm_head.weight",
)

LLADA = Names(
    prefix="model.transformer.blocks.{i}.",
    layer={
        "attention_norm.weight": ("attn_norm.weight",),
        "attention.qkv_proj.weight": ("q_proj.weight", "k_proj.weight", "v_proj.weight"),
        "attention.qkv_proj.bias": ("q_proj.bias", "k_proj.bias", "v_proj.bias"),
        "attention.o_proj.weight": ("attn_out.weight",),
        "mlp_norm.weight": ("ff_norm.weight",),
        "mlp.gate_up_proj.weight": ("ff_proj.weight", "up_proj.weight"),
        "mlp.down_proj.weight": ("ff_out.weight",),
    },
    outer={"embed.weight": "model.transformer.wte.weight", "norm.weight": "model.transformer.ln_f.weight"},
    head="model.transformer.ff_out.weight",
)

LLADA2 = Names(
    prefix=QWEN.prefix,
    layer={
        **QWEN.layer,
        "attention.qkv_proj.weight": ("attention.query_key_value.weight",),
        "attention.qkv_proj.bias": ("attention.query_key_value.bias",),
        "attention.q_norm.weight": ("attention.query_layernorm.weight",),
        "attention.k_norm.weight": ("attention.key_layernorm.weight",),
        "attention.o_proj.weight": ("attention.dense.weight",),
        "mlp.router.bias": ("mlp.gate.expert_bias",),
        "mlp.shared.gate_up_proj.weight": ("mlp.shared_experts.gate_proj.weight", "mlp.shared_experts.up_proj.weight"),
        "mlp.shared.down_proj.weight": ("mlp.shared_experts.down_proj.weight",),
    },
    outer={**QWEN.outer, "embed.weight": "model.word_embeddings.weight"},
    head=QWEN.head,
    router_is_linear=False,
)
