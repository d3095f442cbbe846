"""Fill rules with a schedule in time: Dream's samplers (arXiv 2508.15487), Fast-dLLM's for Dream without a cache."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from decoders.parts.fills import Fill, View, top
from decoders.state import Branch

EPS = 1e-3


def schedule(steps: int) -> np.ndarray:
    """Dream's share of the masks to fill at each step, 1 - t(i+1) / t(i), in float32."""
    t = times(steps)
    return np.float32(1.0) - t[1:] / t[:-1]


def times(steps: int) -> np.ndarray:
    """Dream's time before each step and behind the last, from 1 down to EPS."""
    return np.linspace(1.0, EPS, steps + 1, dtype=np.float32)


class Schedule(Fill):
    """Dream's sampler: the n most confident masks, n = masks x share truncated; the last step takes all that is left.

    `empty_steps=skip` passes over steps with n = 0, which change nothing; `run` spends a forward on each, and on those
    that are left when no mask is (released). With `alg_temp` above 0 the n masks are drawn one after another, each with
    a probability proportional to exp(confidence / alg_temp). memory: (step,).

    `eos_penalty` p adds p ln(1 - t + EPS), which is negative, to an end token's logit at the step's time t
    (Dream-Coder).
    """

    reads: ClassVar[Mapping[str, Any]] = {
        "steps": None,
        "empty_steps": "skip",
        "confidence": "prob",
        "alg_temp": 0.0,
    }
    follows_first = True
    timed = True

    def fade(self, branch: Branch) -> float:
        """At the time of the step that will fill something, as steps that fill nothing are passed over."""
        (step,) = branch.memory or (0,)
        masks, shares = next((count for count in branch.masks if count), 0), schedule(self.steps)
        while self.config.empty_steps != "run" and step < self.steps - 1 and _due(masks, shares[step]) == 0:
            step += 1
        left = 1.0 - float(times(self.steps)[min(step, self.steps - 1)])
        return self.config.eos_penalty * float(np.log(left + EPS))

    def select(self, view: View, branch: Branch) -> np.ndarray:
        (step,) = branch.memory or (0,)
        shares = schedule(self.steps)
        while True:
            last = step >= self.steps - 1
            chosen = np.arange(len(view)) if last or len(view) == 0 else self._draw(view, shares[step])
            step += 1
            if len(chosen) or last or self.config.empty_steps == "run":
                branch.memory = (step,)
                return chosen

    def idles(self, branch: Branch) -> bool:
        """With lookahead a text is ahead of its schedule and ends when it is full."""
        (step,) = branch.memory or (0,)
        return self.config.empty_steps == "run" and self.config.k == 0 and step < self.steps

    def _draw(self, view: View, share: np.float32) -> np.ndarray:
        n = _due(len(view), share)
        if n == 0 or not self.config.alg_temp:
            return top(view.confidence, n)
        # The n highest sums of a logit and Gumbel noise are n draws without replacement from its softmax.
        uniform = np.clip(self.uniform(len(view)), 1e-300, None)
        return top(view.confidence.astype(np.float64) / self.config.alg_temp - np.log(-np.log(uniform)), n)


def _due(masks: int, share: np.float32) -> int:
    return int(np.float32(masks) * share)


class Origin(Schedule):
    """Dream's `origin` sampler: each mask is filled with probability `share`, whatever its confidence."""

    reads: ClassVar[Mapping[str, Any]] = {"steps": None, "empty_steps": "skip"}
    timed = False  # at which step something is filled is drawn behind the forward

    def _draw(self, view: View, share: np.float32) -> np.ndarray:
        return np.flatnonzero(self.uniform(len(view)) < share)


class Budget(Fill):
    """Fast-dLLM's threshold sampler for Dream without cache: a step may fill masks / steps, plus what earlier steps
    left over; of that many most confident masks the best is always filled, the others if prob > tau_conf.

    memory: (step, left over).
    """

    reads: ClassVar[Mapping[str, Any]] = {"steps": None, "tau_conf": 0.9}

    def select(self, view: View, branch: Branch) -> np.ndarray:
        step, left = branch.memory or (0, 0)
        quota = self.config.gen_length // self.steps if step < self.steps else 0
        allowed = max(1, quota + left)
        best = top(view.prob, allowed)
        chosen = best[(view.prob[best] > self.config.tau_conf) | (np.arange(len(best)) == 0)]
        branch.memory = (step + 1, allowed - len(chosen))
        return chosen

    def passes(self, view: View, chosen: np.ndarray) -> np.ndarray:
        return chosen[view.prob[chosen] > self.config.tau_conf]
