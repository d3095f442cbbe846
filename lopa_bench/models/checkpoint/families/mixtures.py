"""The families with mixtures of experts: SDAR-MoE, LLaDA-MoE, LLaDA2."""

from __future__ import annotations

from dataclasses import replace

from lopa_bench.models.checkpoint.families.dense import QWEN_SWITCHES, SDAR, UNBIASED
from lopa_bench.models.checkpoint.families.layout import Layout, Mark
from lopa_bench.models.checkpoint.families.names import LLADA2 as LLADA2_NAMES
from lopa_bench.models.checkpoint.keys import Keys
from lopa_bench.models.config import Experts

EXPERTS = 4096  # of a layer; a damaged number must not be allocated


def _counts(keys: Keys, count: int, per_token: int) -> tuple[int, int]:
    """How many experts there are and how many a token takes; the arguments are what absent keys mean. transformers 5
    writes `num_local_experts` for `num_experts`.
    """
    name = "num_local_experts" if "num_experts" not in keys.raw and "num_local_experts" in keys.raw else "num_experts"
    found = keys.count(name, count, most=EXPERTS)
    if keys.get("num_local_experts") not in (None, found):
        keys.refuse("num_local_experts", f"null or num_experts={found}")
    taken = keys.count("num_experts_per_tok", per_token, most=EXPERTS)
    if taken > found:
        keys.refuse("num_experts_per_tok", f"an integer from 1 to {name}={found}")
    return found, taken


def _count_or_zero(keys: Keys, key: str) -> int:
    value = keys.get(key, 0)
    return 0 if type(value) is int and value == 0 else keys.count(key, most=EXPERTS)


def sdar_moe_experts(keys: Keys, layers: int) -> Experts:
    """Qwen3-MoE: a softmax router; the layers with experts are every `decoder_sparse_step`th, but for those listed."""
    count, per_token = _counts(keys, 128, 8)
    step = keys.count("decoder_sparse_step", 1)
    dense = keys.get("mlp_only_layers") or []
    if not isinstance(dense, list) or any(type(i) is not int or not 0 <= i < layers for i in dense):
        keys.refuse("mlp_only_layers", f"null or a list of layers from 0 to {layers - 1}")
    return Experts(
        count=count,
        per_token=per_token,
        size=keys.count("moe_intermediate_size", 768),
        layers=tuple((i + 1) % step == 0 and i not in dense for i in range(layers)),
        normalised=keys.flag("norm_topk_prob", False),
    )


def llada_moe_experts(keys: Keys, layers: int) -> Experts:
    """LLaDA-MoE: a softmax router whose weights are never normalised. The released network reads neither
    norm_topk_prob, nor moe_router_score_function, nor routed_scaling_factor; an expert bias stays in the weights.
    """
    for key in ("norm_topk_prob", "moe_router_score_function", "routed_scaling_factor"):
        keys.get(key)
    count, per_token = _counts(keys, 64, 8)
    kinds = keys.get("moe_layer_freq")
    if kinds is None:
        kinds = [1] * layers
    if (
        not isinstance(kinds, list)
        or len(kinds) != layers
        or any(type(kind) is not int or kind not in (0, 1) for kind in kinds)
    ):
        keys.refuse("moe_layer_freq", f"null or 0 or 1 for each of {layers} layers")
    return Experts(
        count=count,
        per_token=per_token,
        size=keys.count("expert_intermediate_size"),
        layers=tuple(kind == 1 for kind in kinds),
        bias="weights" if keys.flag("moe_router_enable_expert_bias", False) else "none",
        shared_size=keys.count_or_none("shared_expert_intermediate_size") or 0,
    )


def llada2_experts(keys: Keys, layers: int) -> Experts:
    """LLaDA2: a sigmoid router in groups, with a bias for the choice alone. The first layers are dense."""
    count, per_token = _counts(keys, 16, 2)
    groups, kept = keys.count("n_group", 8), keys.count("topk_group", 4)
    if count % groups:
        keys.refuse("n_group", f"a divisor of num_experts={count}")
    if kept > groups:
        keys.refuse("topk_group", f"an integer from 1 to n_group={groups}")
    if per_token > kept * count // groups:
        keys.refuse("num_experts_per_tok", f"an integer from 1 to the {kept * count // groups} of the groups kept")
    size = keys.count("moe_intermediate_size")
    shared = _count_or_zero(keys, "num_shared_experts")
    if keys.get("moe_shared_expert_intermediate_size") not in (None, size):
        keys.refuse("moe_shared_expert_intermediate_size", f"null or the {size} of moe_intermediate_size")
    dense = _count_or_zero(keys, "first_k_dense_replace")
    return Experts(
        count=count,
        per_token=per_token,
        size=size,
        layers=tuple(i >= dense for i in range(layers)),
        score="sigmoid",
        normalised=per_token > 1,
        scale=keys.above_zero("routed_scaling_factor", 2.5),
        groups=groups,
        groups_kept=kept,
        bias="choice",
        shared_size=shared * size,
    )


SDAR_MOE = replace(SDAR, name="sdar_moe", model_types=("sdar_moe",), absent={}, experts=sdar_moe_experts)

LLADA_MOE = replace(
    SDAR,
    name="llada_moe",
    model_types=("llada", "llada_moe"),
    mark=Mark("expert_intermediate_size"),
    grid="prompt",
    block=("block_size", None),
    partial=True,
    experts=llada_moe_experts,
    absent={
        "intermediate": "dense_intermediate_size",
        "max_position_embeddings": 8192,
        "rms_norm_eps": 1e-5,
        "rope_theta": 50000.0,
    },
    switches={**UNBIASED, "qk_layernorm": ((True,), True)},
)

LLADA2 = Layout(
    name="llada2_moe",
    model_types=("llada2_moe",),
    names=LLADA2_NAMES,
    sizes=SDAR.sizes,
    qkv_bias=False,
    qk_norm=True,
    shift="none",
    grid="absolute",
    block=("block_size", 32),
    partial=True,
    experts=llada2_experts,
    absent={"max_position_embeddings": 16384, "rms_norm_eps": 1e-5, "partial_rotary_factor": 0.5},
    unused=SDAR.unused,
    switches={
        **QWEN_SWITCHES,
        "moe_router_enable_expert_bias": ((None, True), None),
        "norm_head": ((False,), False),
        "norm_topk_prob": ((None, True), None),
        "router_dtype": ((None, "fp32"), None),
        "score_function": ((None, "sigmoid"), None),
        "use_bias": ((False,), True),
        "use_qk_norm": ((True,), True),
        "use_qkv_bias": ((False,), False),
        "use_rmsnorm": ((None, True), None),
    },
)
