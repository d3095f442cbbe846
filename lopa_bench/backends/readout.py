"""From logits to the three small numbers per position that decoders see."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from decoders.types import Readout


def read_out(logits_NV: Tensor, readout: Readout, mask_id: int) -> dict[str, np.ndarray]:
    """Best token [N] int64, its probability [N] float32, and the measures that `readout` asks for.

    The softmax is computed in float32 or wider. The mask id is never the best token; the lowest id wins ties. One
    transfer brings everything to the host, which also waits for the device.
    """
    logits_NV = logits_NV.to(torch.promote_types(logits_NV.dtype, torch.float32))
    if readout.mask_logit == "exclude":
        logits_NV[:, mask_id] = -torch.inf
        candidates_NV = logits_NV
    else:
        candidates_NV = logits_NV.clone()
        candidates_NV[:, mask_id] = -torch.inf
    best_N, token_N = candidates_NV.max(-1)
    total_N = torch.logsumexp(logits_NV, -1)
    prob_N = (best_N - total_N).exp()
    columns = {"token": token_N, "prob": prob_N}
    if "margin" in readout.measures:
        second_N = candidates_NV.topk(2, -1).values[:, 1]
        columns["margin"] = prob_N - (second_N - total_N).exp()
    if "neg_entropy" in readout.measures:
        p_NV = (logits_NV - total_N[:, None]).exp()
        columns["neg_entropy"] = (p_NV * (p_NV + 1e-10).log()).sum(-1)
    host = torch.stack([column.double() for column in columns.values()]).cpu().numpy()
    arrays = dict(zip(columns, host.astype(np.float32)))
    arrays["token"] = host[0].astype(np.int64)
    return arrays
