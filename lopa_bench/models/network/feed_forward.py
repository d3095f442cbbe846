"""The network behind attention in every layer: SwiGLU, dense or as a mixture of experts.

Shape suffixes: T tokens, D width, F width inside, N experts, K experts of a token, S = T K places (a token at one of
its experts).
"""

from __future__ import annotations

from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lopa_bench.models.config import Experts

ALIGNED = 16  # bytes: rows of other lengths are no input of the grouped product


def swiglu(gate_up_TF: Tensor) -> Tensor:
    """[..., F] from [..., 2 F]: the gates stand in front."""
    gate_TF, up_TF = gate_up_TF.chunk(2, -1)
    return F.silu(gate_TF) * up_TF


class MLP(nn.Module):
    """A dense feed-forward network of `size` inside."""

    def __init__(self, hidden_size: int, size: int):
        super().__init__()
        self.gate_up_proj = nn.Linear(hidden_size, 2 * size, bias=False)
        self.down_proj = nn.Linear(size, hidden_size, bias=False)

    def forward(self, x_TD: Tensor) -> Tensor:
        return self.down_proj(swiglu(self.gate_up_proj(x_TD)))


class Router(nn.Module):
    """Which experts a token goes to and what each of them counts; float32 whatever the weights are."""

    def __init__(self, hidden_size: int, experts: Experts):
        super().__init__()
        self.experts = experts
        self.weight = nn.Parameter(torch.empty(experts.count, hidden_size))
        self.bias = nn.Parameter(torch.zeros(experts.count)) if experts.bias != "none" else None

    def forward(self, x_TD: Tensor) -> tuple[Tensor, Tensor]:
        """Weights [T, K] in float32 and expert numbers [T, K]."""
        e = self.experts
        logits_TN = F.linear(x_TD.float(), self.weight.float())
        score_TN = logits_TN.sigmoid() if e.score == "sigmoid" else logits_TN.softmax(-1)
        choice_TN = score_TN if self.bias is None else score_TN + self.bias.float()
        expert_TK = self._in_groups(choice_TN).topk(e.per_token, -1).indices
        weight_TK = (choice_TN if e.bias == "weights" else score_TN).gather(-1, expert_TK)
        if e.normalised:
            weight_TK = weight_TK / (weight_TK.sum(-1, keepdim=True) + 1e-20)
        return weight_TK * e.scale, expert_TK

    def _in_groups(self, choice_TN: Tensor) -> Tensor:
        """The same, with -inf for the experts of all but the best groups; a group counts by its two best experts."""
        e = self.experts
        if e.groups_kept == e.groups:
            return choice_TN
        group_TGN = choice_TN.unflatten(-1, (e.groups, e.count // e.groups))
        best_TG = group_TGN.topk(min(2, group_TGN.shape[-1]), -1).values.sum(-1)
        kept_TG = torch.zeros_like(best_TG, dtype=torch.bool).scatter(-1, best_TG.topk(e.groups_kept, -1).indices, True)
        return group_TGN.masked_fill(~kept_TG[..., None], -torch.inf).flatten(-2)


class MixtureOfExperts(nn.Module):
    """Every token passes its experts, and a shared network where there is one.

    The experts' matrices are stacked. Tokens are sorted by expert, so that one grouped product serves all experts.
    """

    def __init__(self, hidden_size: int, experts: Experts):
        super().__init__()
        self.router = Router(hidden_size, experts)
        self.experts = Stack(hidden_size, experts)
        self.shared = MLP(hidden_size, experts.shared_size) if experts.shared_size else None

    def forward(self, x_TD: Tensor) -> Tensor:
        weight_TK, expert_TK = self.router(x_TD)
        out_TD = self.experts(x_TD, weight_TK, expert_TK)
        return out_TD if self.shared is None else out_TD + self.shared(x_TD)


class Stack(nn.Module):
    """The matrices of all experts of a layer, and their products with the tokens that go there."""

    def __init__(self, hidden_size: int, experts: Experts):
        super().__init__()
        self.gate_up_proj = nn.Parameter(torch.empty(experts.count, 2 * experts.size, hidden_size))
        self.down_proj = nn.Parameter(torch.empty(experts.count, hidden_size, experts.size))

    def forward(self, x_TD: Tensor, weight_TK: Tensor, expert_TK: Tensor) -> Tensor:
        """The sum of what its experts make of each token, by their weights."""
        T, K = expert_TK.shape
        expert_S, order_S = expert_TK.flatten().sort(stable=True)
        numbers_N = torch.arange(len(self.down_proj), device=x_TD.device)
        ends_N = torch.searchsorted(expert_S, numbers_N, right=True, out_int32=True)
        inner_SF = swiglu(grouped(x_TD[order_S // K], self.gate_up_proj, ends_N))
        out_SD = grouped(inner_SF, self.down_proj, ends_N)
        placed_SD = torch.empty_like(out_SD).index_copy_(0, order_S, out_SD)
        return (placed_SD.view(T, K, -1) * weight_TK[..., None].to(x_TD.dtype)).sum(1)


def grouped(x_SI: Tensor, weight_NOI: Tensor, ends_N: Tensor) -> Tensor:
    """[S, O]: the rows of x before ends[0] times the first matrix, those from there to ends[1] times the second, ..."""
    return (_compiled if torch.compiler.is_compiling() else _grouped)(x_SI, weight_NOI, ends_N)


def _grouped(x_SI: Tensor, weight_NOI: Tensor, ends_N: Tensor) -> Tensor:
    if has_grouped(x_SI.device.type, x_SI.dtype) and all(
        size * x_SI.element_size() % ALIGNED == 0 for size in weight_NOI.shape[1:]
    ):
        return F.grouped_mm(x_SI, weight_NOI.transpose(1, 2), offs=ends_N)
    return segmented(x_SI, weight_NOI, ends_N)


# A compiler takes the product as one step that it does not look into: what it can do depends on device and dtype.
@torch.library.custom_op("lopa_bench::grouped", mutates_args=())
def _compiled(x_SI: Tensor, weight_NOI: Tensor, ends_N: Tensor) -> Tensor:
    return _grouped(x_SI, weight_NOI, ends_N)


@_compiled.register_fake
def _(x_SI: Tensor, weight_NOI: Tensor, ends_N: Tensor) -> Tensor:
    return x_SI.new_empty(len(x_SI), weight_NOI.shape[1])


def segmented(x_SI: Tensor, weight_NOI: Tensor, ends_N: Tensor) -> Tensor:
    """The same by one product for every expert that has rows."""
    out_SO = x_SI.new_empty(len(x_SI), weight_NOI.shape[1])
    start = 0
    for number, end in enumerate(ends_N.tolist()):
        if end > start:
            torch.mm(x_SI[start:end], weight_NOI[number].t(), out=out_SO[start:end])
        start = end
    return out_SO


@cache
def has_grouped(device: str, dtype: torch.dtype) -> bool:
    """Whether torch has a grouped product for this kind of device and dtype that gives the right numbers."""
    if not hasattr(F, "grouped_mm"):
        return False
    x, weight = torch.ones(3, 16, device=device, dtype=dtype), torch.ones(2, 16, 16, device=device, dtype=dtype)
    try:
        found = F.grouped_mm(x, weight.transpose(1, 2), offs=torch.tensor([1, 3], device=device, dtype=torch.int32))
    except (RuntimeError, NotImplementedError, ValueError):  # each backend refuses in its own way
        return False
    return bool((found == 16).all())
