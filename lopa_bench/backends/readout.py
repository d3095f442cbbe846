"""From logits to the few small numbers per position that decoders see."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from decoders.types import Readout

Change = Callable[[Tensor], Tensor]  # from the distributions [N, V] of a call to their "kl" [N]


def read_out(
    logits_NV: Tensor, readout: Readout, mask_id: int | None, forward: int = 0, change: Change | None = None
) -> dict[str, np.ndarray]:
    """Best token [N] int64, its probability [N] float32, and the measures that `readout` asks for.

    With a temperature the token is drawn; `forward` is the number of the decode's forward, so that each draws anew and
    a decode does not depend on what else is decoded. `change` answers for the measure "kl", which needs a memory.

    The softmax is computed in float32 or wider. The mask id is never the best token; the lowest id wins ties. One
    transfer brings everything to the host, which also waits for the device. A causal model has no mask id (None).
    """
    logits_NV = logits_NV.to(torch.promote_types(logits_NV.dtype, torch.float32))
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
        token_N = (candidates_NV + _gumbel(candidates_NV.shape, readout.seed, forward).to(logits_NV.device)).argmax(-1)
        best_N = candidates_NV.gather(-1, token_N[:, None])[:, 0]
    else:
        best_N, token_N = candidates_NV.max(-1)
    total_N = torch.logsumexp(logits_NV, -1)
    prob_N = (best_N - total_N).exp()
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
    host = torch.stack([column.double() for column in columns.values()]).cpu().numpy()
    arrays = dict(zip(columns, host.astype(np.float32)))
    arrays["token"] = host[0].astype(np.int64)
    return arrays


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


def _gumbel(shape: torch.Size, seed: int, forward: int) -> Tensor:
    """Noise whose addition to logits makes the argmax a draw from their softmax. Made on the CPU: equal everywhere."""
    mixed = np.random.SeedSequence([seed, forward]).generate_state(1, np.uint64)[0]
    generator = torch.Generator().manual_seed(int(mixed >> 1))
    uniform = torch.rand(shape, generator=generator, dtype=torch.float64).clamp_min(1e-300)
    return -torch.log(-torch.log(uniform)).float()
