"""Mixtures of experts against their definition, token by token, and a whole network of them against plain formulas."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor

from lopa_bench.models.checkpoint.loader import load_model
from lopa_bench.models.config import Experts
from lopa_bench.models.network import feed_forward
from lopa_bench.models.network.feed_forward import MixtureOfExperts, grouped, segmented
from tests.random_checkpoint import write_checkpoint

MODELS = Path(__file__).parent / "golden" / "models"
EXACT: dict[str, Any] = {"rtol": 0, "atol": 1e-4}


def make(hidden: int = 16, **settings: Any) -> MixtureOfExperts:
    """A random layer."""
    torch.manual_seed(0)
    facts: dict[str, Any] = {"count": 8, "per_token": 3, "size": 12, "layers": (True,)} | settings
    layer = MixtureOfExperts(hidden, Experts(**facts))
    for weight in layer.parameters():
        torch.nn.init.normal_(weight, std=0.5)
    return layer.eval()


def by_definition(layer: MixtureOfExperts, x_D: Tensor) -> Tensor:
    """What one token becomes, in float64: routed as the families say, one expert after the other."""
    e, x = layer.router.experts, x_D.double()
    logits = layer.router.weight.double() @ x
    score = 1 / (1 + (-logits).exp()) if e.score == "sigmoid" else logits.exp() / logits.exp().sum()
    choice = score + (0 if layer.router.bias is None else layer.router.bias.double())
    groups = choice.view(e.groups, -1)
    best = sorted(range(e.groups), key=lambda g: -float(groups[g].sort(descending=True).values[:2].sum()))
    allowed = [i for g in best[: e.groups_kept] for i in range(g * groups.shape[1], (g + 1) * groups.shape[1])]
    chosen = sorted(allowed, key=lambda i: -float(choice[i]))[: e.per_token]
    counts = {i: float((choice if e.bias == "weights" else score)[i]) for i in chosen}
    total = sum(counts.values()) if e.normalised else 1.0
    out = torch.zeros_like(x)
    for i, count in counts.items():
        gate, up = (layer.experts.gate_up_proj[i].double() @ x).chunk(2)
        out += e.scale * count / total * (layer.experts.down_proj[i].double() @ (F.silu(gate) * up))
    if layer.shared is not None:
        out += layer.shared.double()(x)
        layer.shared.float()
    return out.float()


ROUTERS: dict[str, dict[str, Any]] = {
    "Qwen3-MoE": {"normalised": True},
    "LLaDA-MoE": {},
    "LLaDA-MoE with a bias": {"bias": "weights", "shared_size": 8},
    "LLaDA2": {
        "score": "sigmoid", "normalised": True, "scale": 2.5, "groups": 4, "groups_kept": 2, "bias": "choice",
        "shared_size": 20,
    },
    "groups of one expert": {"score": "sigmoid", "groups": 8, "groups_kept": 5, "bias": "choice"},
    "one expert": {"count": 1, "per_token": 1},
    "all experts": {"per_token": 8},
    "rows that no grouped product takes": {"size": 5, "hidden": 10},
}  # fmt: skip


@pytest.mark.parametrize("product", ["grouped", "segments"])
@pytest.mark.parametrize("router", ROUTERS)
@torch.inference_mode()
def test_every_token_passes_its_experts(router: str, product: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if product == "segments":
        monkeypatch.setattr(feed_forward, "has_grouped", lambda *_: False)
    layer = make(**ROUTERS[router])
    x_TD = torch.randn(23, layer.router.weight.shape[1])
    expected = torch.stack([by_definition(layer, x_D) for x_D in x_TD])
    torch.testing.assert_close(layer(x_TD), expected, **EXACT)
    torch.testing.assert_close(layer(x_TD[:1]), expected[:1], **EXACT)


@pytest.mark.parametrize("counts", [[5, 0, 0, 2], [0, 0, 0, 7], [7, 0, 0, 0], [0, 0, 0, 0], [1, 2, 3, 1]])
@torch.inference_mode()
def test_the_grouped_product_and_the_segments_agree(counts: list[int]) -> None:
    """Also where experts have no tokens, at the front, in the middle and at the end."""
    x, weight = torch.randn(sum(counts), 8), torch.randn(4, 12, 8)
    ends = torch.tensor(counts).cumsum(0).int()
    pieces = [part @ weight[i].T for i, part in enumerate(x.split(counts))]
    torch.testing.assert_close(segmented(x, weight, ends), torch.cat(pieces), **EXACT)
    torch.testing.assert_close(grouped(x, weight, ends), torch.cat(pieces), **EXACT)
    op = torch.ops.lopa_bench.grouped  # what a compiler calls in its place
    assert torch.equal(op(x, weight, ends), grouped(x, weight, ends))
    assert op(x.to("meta"), weight.to("meta"), ends.to("meta")).shape == torch.cat(pieces).shape


@torch.inference_mode()
def test_a_router_computes_in_float32_in_a_network_of_bfloat16() -> None:
    layer = make(score="sigmoid", bias="choice", normalised=True)
    x = torch.randn(40, 16).bfloat16()
    rounded = make(score="sigmoid", bias="choice", normalised=True).bfloat16()
    exact = layer.router.float()
    exact.load_state_dict({name: value.float() for name, value in rounded.router.state_dict().items()})
    for found, expected in zip(rounded.router(x), exact(x.float()), strict=True):
        assert torch.equal(found, expected)
    assert rounded(x).dtype == torch.bfloat16


def by_formulas(folder: Path, ids: Tensor) -> Tensor:
    """Logits of a LLaDA-MoE under full attention, in float64, from its published tensors alone."""
    c, w = json.loads((folder / "config.json").read_text()), load_file(folder / "model.safetensors")
    w = {name: value.double() for name, value in w.items()}
    heads, shared_by = c["num_attention_heads"], c["num_attention_heads"] // c["num_key_value_heads"]
    size = c["hidden_size"] // heads
    turned = int(size * c["partial_rotary_factor"])
    angle = torch.outer(torch.arange(len(ids)).double(), c["rope_theta"] ** -(torch.arange(0, turned, 2) / turned))

    def norm(x: Tensor, name: str) -> Tensor:
        return x / (x.pow(2).mean(-1, keepdim=True) + c["rms_norm_eps"]).sqrt() * w[name]

    def turn(x: Tensor) -> Tensor:  # [tokens, heads, size]
        first, second, rest = x.split([turned // 2, turned // 2, size - turned], -1)
        cos, sin = angle.cos()[:, None], angle.sin()[:, None]
        return torch.cat([first * cos - second * sin, second * cos + first * sin, rest], -1)

    def feed(x: Tensor, name: str) -> Tensor:
        gate, up = x @ w[f"{name}.gate_proj.weight"].T, x @ w[f"{name}.up_proj.weight"].T
        return (F.silu(gate) * up) @ w[f"{name}.down_proj.weight"].T

    x = w["model.embed_tokens.weight"][ids]
    for i, is_mixture in enumerate(c["moe_layer_freq"]):
        at = f"model.layers.{i}."
        y = norm(x, f"{at}input_layernorm.weight")
        q, k, v = ((y @ w[f"{at}self_attn.{n}_proj.weight"].T).view(len(ids), -1, size) for n in "qkv")
        q, k = turn(norm(q, f"{at}self_attn.q_norm.weight")), turn(norm(k, f"{at}self_attn.k_norm.weight"))
        k, v = k.repeat_interleave(shared_by, 1), v.repeat_interleave(shared_by, 1)
        seen = torch.einsum("thd,shd->hts", q, k).div(size**0.5).softmax(-1)
        x = x + torch.einsum("hts,shd->thd", seen, v).flatten(1) @ w[f"{at}self_attn.o_proj.weight"].T
        y = norm(x, f"{at}post_attention_layernorm.weight")
        if not is_mixture:
            x = x + feed(y, f"{at}mlp")
            continue
        score = (y @ w[f"{at}mlp.gate.weight"].T).softmax(-1) + w.get(f"{at}mlp.expert_bias", 0)
        counts, chosen = score.topk(c["num_experts_per_tok"])
        tokens = [
            sum(count * feed(y[t], f"{at}mlp.experts.{int(e)}") for count, e in zip(counts[t], chosen[t]))
            for t in range(len(ids))
        ]
        x = x + torch.stack(tokens)
        if c["shared_expert_intermediate_size"]:
            x = x + feed(y, f"{at}shared_expert")
    return (norm(x, "model.norm.weight") @ w["lm_head.weight"].T).float()


@torch.inference_mode()
def test_a_llada_moe_with_all_that_the_family_may_have(tmp_path: Path) -> None:
    """A dense first layer, a shared expert, an expert bias, half rotation and shared key-value heads. The formulas are
    first held against the recorded checkpoint, which has none of these.
    """
    recorded = load_file(MODELS / "llada_moe_a" / "probe.safetensors")
    ids = recorded["input_ids"]
    torch.testing.assert_close(by_formulas(MODELS / "llada_moe_a", ids), recorded["logits_full"], **EXACT)

    config = json.loads((MODELS / "llada_moe_a" / "config.json").read_text()) | {
        "moe_layer_freq": [0, 1, 1], "num_hidden_layers": 3, "num_key_value_heads": 2, "partial_rotary_factor": 0.5,
        "moe_router_enable_expert_bias": True, "shared_expert_intermediate_size": 40, "norm_topk_prob": True,
    }  # fmt: skip
    write_checkpoint(tmp_path, config)
    model = load_model(tmp_path, torch.float32, torch.device("cpu"))
    torch.testing.assert_close(model.logits(model.hidden(ids[None]))[0], by_formulas(tmp_path, ids), **EXACT)
