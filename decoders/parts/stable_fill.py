"""KLASS: masks whose prediction has stood still."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from decoders.parts.fills import Quota, View
from decoders.state import Branch


class Stable(Quota):
    """KLASS (arXiv 2511.05664): every mask with prob > tau_conf whose distribution moved by less than `tau_kl` nats in
    each of the last `kl_steps` forwards over its block; where there is none, the quota of the step.

    memory: (step, masks at the start of the block, then by position how many forwards in a row it has stood still).
    """

    reads: ClassVar[Mapping[str, Any]] = {"tau_conf": 0.6, "tau_kl": 0.015, "kl_steps": 2, "steps": None}
    measures = ("kl",)

    def select(self, view: View, branch: Branch) -> np.ndarray:
        assert self.config.kl_steps is not None
        still = np.array(branch.memory[2:] or [0] * self.borders.length)
        branch.memory = branch.memory[:2]
        forced = super().select(view, branch)
        at = view.position - self.borders.prompt
        still[at] = np.where(view.measure("kl") < self.config.tau_kl, still[at] + 1, 0)
        branch.memory += tuple(still.tolist())
        ready = (still[at] >= self.config.kl_steps) & (view.prob > self.config.tau_conf)
        return np.flatnonzero(ready) if ready.any() else forced
