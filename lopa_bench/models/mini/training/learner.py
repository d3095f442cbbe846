"""One optimisation step: Muon on the matrices, AdamW on the rest, and an exponential moving average of the weights."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lopa_bench.models.config import ModelConfig
from lopa_bench.models.mini.training.muon import Muon
from lopa_bench.models.mini.training.noising import Batch
from lopa_bench.models.network.transformer import Transformer

Hidden = Callable[[Tensor, Tensor | None], Tensor]

WARM_UP = 60  # steps
LAST_RATE = 0.02  # of the highest learning rate
EMA_DECAY = 0.998
INITIAL_STD = 0.02


def initialise(config: ModelConfig, seed: int) -> Transformer:
    torch.manual_seed(seed)
    model = Transformer(config)
    for name, parameter in model.named_parameters():
        if parameter.dim() == 2:
            # Projections back into the residual stream start smaller, so that its variance stays flat with depth.
            back = name.endswith(("o_proj.weight", "down_proj.weight"))
            nn.init.normal_(parameter, std=INITIAL_STD / math.sqrt(2 * config.layers) if back else INITIAL_STD)
        elif name.endswith("bias"):
            nn.init.zeros_(parameter)
    return model


def batch_loss(model: Transformer, batch: Batch, hidden: Hidden | None = None) -> Tensor:
    """Weighted cross-entropy of the positions to predict, from the logits one position before.

    `hidden` may be a compiled `model.hidden`.
    """
    states = (hidden or model.hidden)(batch.inputs, batch.attention)
    chosen = states[:, :-1][batch.predict[:, 1:]]
    losses = F.cross_entropy(model.logits(chosen), batch.targets, reduction="none")
    return (losses * batch.weights).sum() / batch.weights.sum()


class Learner:
    """A model in training and its moving average, which is what is saved."""

    def __init__(self, model: Transformer, rate: float, compiled: bool = False):
        self.model = model
        self.average = copy.deepcopy(model)
        self.hidden: Hidden = torch.compile(model.hidden, dynamic=True) if compiled else model.hidden
        self.start(rate)

    def start(self, rate: float) -> None:
        """Begins a stage: continues from the moving average, with fresh optimiser states."""
        self.model.load_state_dict(self.average.state_dict())
        self.rate, self.steps = rate, 0
        matrices = [p for n, p in self.model.named_parameters() if p.dim() == 2 and "embed" not in n]
        others = [p for n, p in self.model.named_parameters() if p.dim() < 2 or "embed" in n]
        self.optimizers = [
            Muon(matrices, lr=rate),
            torch.optim.AdamW(others, lr=rate, betas=(0.9, 0.98), weight_decay=0.0, foreach=True),
        ]

    def step(self, batch: Batch, progress: float) -> float:
        """Learns from one batch; `progress` in [0, 1] sets the learning rate (cosine with a short warm-up)."""
        cosine = 0.5 * (1 + math.cos(math.pi * min(1.0, progress)))
        rate = self.rate * min(1.0, (self.steps + 1) / WARM_UP) * (LAST_RATE + (1 - LAST_RATE) * cosine)
        loss = batch_loss(self.model, batch, self.hidden)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = rate
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        decay = min(EMA_DECAY, (self.steps + 1) / (self.steps + 20))
        with torch.no_grad():
            for average, parameter in zip(self.average.parameters(), self.model.parameters(), strict=True):
                average.lerp_(parameter, 1 - decay)
        self.steps += 1
        return float(loss.detach())
