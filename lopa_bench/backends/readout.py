"""From logits to the three small numbers per position that decoders see."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from decoders.types import Readout


def read_out(logits_NV: Tensor, readout: Readout, mask_id: int | None, forward: int = 0) -> dict[str, np.ndarray]:
    """Best token [N] int64, its probability [N] float32, and the measures that `readout` asks for.

    With a temperature the token is drawn; `forward` is the number of the decode's forward, so that each draws anew and
    a decode does not depend on what else is decoded.

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
    if "neg_entropy" in readout.measures:
        p_NV = (logits_NV - total_N[:, None]).exp()
        columns["neg_entropy"] = (p_NV * (p_NV + 1e-10).log()).sum(-1)
    host = torch.stack([column.double() for column in columns.values()]).cpu().numpy()
    arrays = dict(zip(columns, host.astype(np.float32)))
    arrays["token"] = host[0].astype(np.int64)
    return arrays


def _gumbel(shape: torch.Size, seed: int, forward: int) -> Tensor:
    """Noise whose addition to logits makes the argmax a draw from their softmax. Made on the CPU: equal everywhere."""
    mixed = np.random.SeedSequence([seed, forward]).generate_state(1, np.uint64)[0]
    generator = torch.Generator().manual_seed(int(mixed >> 1))
    uniform = torch.rand(shape, generator=generator, dtype=torch.float64).clamp_min(1e-300)
    return -torch.log(-torch.log(uniform)).float()
