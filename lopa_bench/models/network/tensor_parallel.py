"""One network on several ranks: each holds its heads and its part of every feed-forward network.

Matrices that go in are shared by their outputs, those that come out by their inputs (Shoeybi et al., arXiv 1909.08053),
so that a layer needs two sums over the ranks: behind attention and behind the feed-forward network. Experts are shared
inside, each by its width. Embedding, norms, routers and the vocabulary head stay whole, and every rank reads the same
logits: what the last norm gives is rank 0's on all of them, so that no tie is decided twice.

Shape suffixes: D width, H query heads, K key-value heads, E head size, F width of a feed-forward network, N experts.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

import torch
from torch import Tensor, nn

from lopa_bench.models.config import ModelConfig
from lopa_bench.models.network.feed_forward import MLP, MixtureOfExperts
from lopa_bench.models.network.transformer import Layer, Transformer


class Group(Protocol):
    """The ranks that share a network."""

    rank: int
    size: int

    def sum(self, tensor: Tensor) -> Tensor:
        """The sum over all ranks, the same on each."""

    def first(self, tensor: Tensor) -> Tensor:
        """Rank 0's tensor."""


def shared(network: Transformer, group: Group) -> Transformer:
    """The part of this rank, in place. Raises BackendError for what cannot be shared evenly."""
    network.config.check_shares(group.size)
    whole = network.config
    experts = whole.experts and replace(
        whole.experts, size=whole.experts.size // group.size, shared_size=whole.experts.shared_size // group.size
    )
    part = replace(
        whole,
        heads=whole.heads // group.size,
        kv_heads=whole.kv_heads // group.size,
        intermediate_size=whole.intermediate_size // group.size,
        experts=experts,
    )
    for layer in network.layers:
        assert isinstance(layer, Layer)
        _share_attention(layer, whole, part, group)
        if isinstance(layer.mlp, MixtureOfExperts):
            _share_experts(layer.mlp, group)
        else:
            assert isinstance(layer.mlp, MLP)
            _share_mlp(layer.mlp, group)
        layer.mlp = Summed(layer.mlp, group)
    network.norm = First(network.norm, group)  # type: ignore[assignment]  # what follows it is called alike
    network.config = part
    return network


class Summed(nn.Module):
    """What a part gives, summed over the ranks."""

    def __init__(self, part: nn.Module, group: Group):
        super().__init__()
        self.part, self.group = part, group

    def forward(self, x_TD: Tensor) -> Tensor:
        return self.group.sum(self.part(x_TD))


class First(nn.Module):
    """What a module gives on rank 0."""

    def __init__(self, module: nn.Module, group: Group):
        super().__init__()
        self.module, self.group = module, group

    def forward(self, x_TD: Tensor) -> Tensor:
        return self.group.first(self.module(x_TD))


def _share_attention(layer: Layer, whole: ModelConfig, part: ModelConfig, group: Group) -> None:
    """Query heads that stand side by side share a KV head, so a run of them goes with a run of KV heads."""
    attention, E = layer.attention, whole.head_dim
    H, K = whole.heads * E, whole.kv_heads * E
    rows = torch.cat([_own(H, group), H + _own(K, group), H + K + _own(K, group)])
    _take(attention.qkv_proj, rows, 0)
    _take(attention.o_proj, _own(H, group), 1)
    attention.config = part
    attention.o_proj = Summed(attention.o_proj, group)  # type: ignore[assignment]  # called alike


def _share_mlp(mlp: MLP, group: Group) -> None:
    F = mlp.down_proj.in_features
    _take(mlp.gate_up_proj, torch.cat([_own(F, group), F + _own(F, group)]), 0)
    _take(mlp.down_proj, _own(F, group), 1)


def _share_experts(mixture: MixtureOfExperts, group: Group) -> None:
    stack = mixture.experts
    F = stack.down_proj.shape[-1]
    gates = torch.cat([_own(F, group), F + _own(F, group)])
    stack.gate_up_proj = _parameter(stack.gate_up_proj, gates, 1)
    stack.down_proj = _parameter(stack.down_proj, _own(F, group), 2)
    if mixture.shared is not None:
        _share_mlp(mixture.shared, group)


def _own(count: int, group: Group) -> Tensor:
    """This rank's run of the numbers below `count`."""
    each = count // group.size
    return torch.arange(group.rank * each, (group.rank + 1) * each)


def _take(linear: nn.Linear, own: Tensor, axis: int) -> None:
    """Keeps some outputs (axis 0) or inputs (axis 1) of a product."""
    linear.weight = _parameter(linear.weight, own, axis)
    if axis == 0 and linear.bias is not None:
        linear.bias = _parameter(linear.bias, own, 0)
    linear.out_features, linear.in_features = linear.weight.shape


def _parameter(whole: Tensor, own: Tensor, axis: int) -> nn.Parameter:
    return nn.Parameter(whole.index_select(axis, own.to(whole.device)), requires_grad=False)
