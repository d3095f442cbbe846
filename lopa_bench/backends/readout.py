"""From logits to the few small numbers per position that decoders see."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from decoders.types import SHADOW, Readout

Change = Callable[[Tensor], Tensor]  # from the distributions [N, V] of a call to their "kl" [N]


@dataclass(frozen=True)
class Beside:
    """What stands in the text around the positions that are read, ids [N], -1 where it plays no part.

    `given`: the token whose probability is asked for ("shadow"); `left`: the one that `Readout.penalty` holds down;
    `fade`, a number each: what is added to the logits of `Readout.fading`.
    """

    given: np.ndarray
    left: np.ndarray
    fade: np.ndarray


def read_out(
    logits_NV: Tensor,
    readout: Readout,
    mask_id: int | None,
    forward: int = 0,
    change: Change | None = None,
    among: tuple[int, int] | None = None,
    beside: Beside | None = None,
) -> dict[str, np.ndarray]:
    """Best token [N] int64, its probability [N] float32, and the measures that `readout` asks for.

    With a temperature the token is drawn; `forward` is the number of the decode's forward, so that each draws anew and
    a decode does not depend on what else is decoded. `change` answers for the measure "kl", which needs a memory.
    `among` = (first, count): these N are a part, from `first` on, of `count` positions for which the forward draws.
    `beside` is needed for a penalty, for ids that fade and for "shadow".

    The softmax is computed in float32 or wider. The mask id is never the best token; the lowest id wins ties. One
    transfer brings everything to the host, which also waits for the device. A causal model has no mask id (None).
    Where `readout` has a cfg_scale the logits are guided already.
    """
    logits_NV = logits_NV.to(torch.promote_types(logits_NV.dtype, torch.float32))
    if readout.never:
        logits_NV[:, list(readout.never)] = -torch.inf
    if readout.penalty:
        assert beside is not None, "a penalty needs what stands left of each position"
        held = np.flatnonzero(beside.left >= 0)
        rows, ids = (torch.from_numpy(one).to(logits_NV.device) for one in (held, beside.left[held]))
        logits_NV[rows, ids] -= readout.penalty
    if readout.fading:
        assert beside is not None, "what fades needs its time"
        logits_NV[:, list(readout.fading)] += torch.from_numpy(beside.fade).to(logits_NV)[:, None]
    if mask_id is None:
        candidates_NV = logits_NV
    elif readout.mask_logit == "exclude":
        logits_NV[:, mask_id] = -torch.inf
        candidates_NV = logits_NV
    else:
        candidates_NV = logits_NV.clone()
        candidates_NV[:, mask_id] = -torch.inf
    if readout.temperature > 0:
        candidates_NV, logits_NV = candidates_NV / readout.temperature, logits_NV / readout.temperature
    if readout.top_p < 1 or readout.top_k is not None:
        left_NV = _left(logits_NV, readout)
        left_NV.scatter_(1, candidates_NV.argmax(-1, keepdim=True), True)  # a mask id that is kept may beat them all
        candidates_NV, logits_NV = (one.masked_fill(~left_NV, -torch.inf) for one in (candidates_NV, logits_NV))
    if readout.temperature > 0:
        first, count = among or (0, len(candidates_NV))
        noise_NV = _gumbel((count, candidates_NV.shape[1]), readout.seed, forward)[first : first + len(candidates_NV)]
        token_N = (candidates_NV + noise_NV.to(logits_NV.device)).argmax(-1)
        best_N = candidates_NV.gather(-1, token_N[:, None])[:, 0]
    else:
        best_N, token_N = candidates_NV.max(-1)
    total_N = torch.logsumexp(logits_NV, -1)
    prob_N = (best_N - total_N).exp()
    if readout.last:
        prob_N = _without(logits_NV, token_N, prob_N, readout.last)
    columns = {"token": token_N, "prob": prob_N}
    if "margin" in readout.measures:
        top_N2 = (candidates_NV.topk(2, -1).values - total_N[:, None]).exp()
        columns["margin"] = top_N2[:, 0] - top_N2[:, 1]
    if readout.measures & {"neg_entropy", "kl"}:
        p_NV = (logits_NV - total_N[:, None]).exp()
        if "neg_entropy" in readout.measures:
            columns["neg_entropy"] = (p_NV * (p_NV + 1e-10).log()).sum(-1)
        if "kl" in readout.measures:
            assert change is not None, "the measure kl needs what the forward before said"
            columns["kl"] = change(p_NV)
    if SHADOW in readout.measures:
        assert beside is not None, "the measure shadow needs what stands at each position"
        given_N = torch.from_numpy(np.maximum(beside.given, 0)).to(logits_NV.device)
        columns[SHADOW] = (logits_NV.gather(-1, given_N[:, None])[:, 0] - total_N).exp()
    host = torch.stack([column.double() for column in columns.values()]).cpu().numpy()
    arrays = dict(zip(columns, host.astype(np.float32)))
    arrays["token"] = host[0].astype(np.int64)
    return arrays


def guided(logits_NV: Tensor, without_NV: Tensor, scale: float) -> Tensor:
    """Classifier-free guidance: from the logits with the prompt and those without it, float32 or wider."""
    dtype = torch.promote_types(logits_NV.dtype, torch.float32)
    without_NV = without_NV.to(dtype)
    return without_NV + (scale + 1) * (logits_NV.to(dtype) - without_NV)


def _left(logits_NV: Tensor, readout: Readout) -> Tensor:
    """Which tokens [N, V] top_p and then top_k leave; of equally probable ones at the k-th rank all stay."""
    left_NV = torch.ones_like(logits_NV, dtype=torch.bool)
    if readout.top_p < 1:
        sorted_NV, order_NV = logits_NV.sort(dim=-1, descending=True, stable=True)
        before_NV = sorted_NV.softmax(-1).cumsum(-1).roll(1, -1)
        before_NV[:, 0] = 0
        left_NV.scatter_(1, order_NV, before_NV <= readout.top_p)
    if readout.top_k is not None:
        lowest_N1 = logits_NV.masked_fill(~left_NV, -torch.inf).topk(min(readout.top_k, logits_NV.shape[1])).values
        left_NV &= logits_NV >= lowest_N1[:, -1:]
    return left_NV


def _without(logits_NV: Tensor, token_N: Tensor, prob_N: Tensor, last: tuple[int, ...]) -> Tensor:
    """The probabilities of the tokens among all ids but `last`, whose own are 0."""
    last_M = torch.tensor(last, device=logits_NV.device)
    others_NV = logits_NV.index_fill(1, last_M, -torch.inf)
    among_N = (others_NV.gather(1, token_N[:, None])[:, 0] - torch.logsumexp(others_NV, -1)).exp()
    return torch.where(torch.isin(token_N, last_M), prob_N * 0, among_N)


class Before:
    """What was last said of each position of one text: distributions on the device, float32 or wider."""

    def __init__(self) -> None:
        self.table_LV: Tensor | None = None  # from position `first` on
        self.first = 0
        self.said: tuple[np.ndarray, np.ndarray, Tensor] | None = None  # rows, positions [N], what the last call said

    def follow(self, row: int) -> None:
        """The text went on from this row of the last call."""
        if self.said is None:
            return
        rows, positions, p_NV = self.said
        self.said = None
        mine = np.flatnonzero(rows == row)
        if len(mine):
            self._reach(positions[mine], p_NV)
            assert self.table_LV is not None
            here, there = (torch.from_numpy(one).to(p_NV.device) for one in (mine, positions[mine] - self.first))
            self.table_LV[there] = p_NV[here]

    def change(self, rows: np.ndarray, positions: np.ndarray, p_NV: Tensor) -> Tensor:
        """How far each distribution has moved [N] from what was said of its position before."""
        self.said = rows, positions, p_NV
        if not len(positions):
            return p_NV.new_zeros(0)
        self._reach(positions, p_NV)
        assert self.table_LV is not None
        before_NV = self.table_LV[torch.from_numpy(positions - self.first).to(p_NV.device)]
        moved_NV = (p_NV + 1e-12).log_().sub_(before_NV.add_(1e-12).log_())
        return moved_NV.mul_(p_NV).sum(-1)

    def _reach(self, positions: np.ndarray, like_NV: Tensor) -> None:
        """Makes room for these positions, of which nothing was said yet."""
        low, high = int(positions.min()), int(positions.max()) + 1
        if self.table_LV is None:
            self.table_LV, self.first = like_NV.new_zeros(high - low, like_NV.shape[1]), low
        before, behind = self.first - low, high - self.first - len(self.table_LV)
        if before > 0 or behind > 0:
            self.table_LV = torch.nn.functional.pad(self.table_LV, (0, 0, max(0, before), max(0, behind)))
            self.first = min(self.first, low)


def _gumbel(shape: tuple[int, int], seed: int, forward: int) -> Tensor:
    """Noise whose addition to logits makes the argmax a draw from their softmax. Made on the CPU: equal everywhere."""
    mixed = np.random.SeedSequence([seed, forward]).generate_state(1, np.uint64)[0]
    generator = torch.Generator().manual_seed(int(mixed >> 1))
    uniform = torch.rand(shape, generator=generator, dtype=torch.float64).clamp_min(1e-300)
    return -torch.log(-torch.log(uniform)).float()
