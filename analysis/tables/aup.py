"""Accuracy against parallelism in one number (AUP), under both published definitions.

The two numbers are on different scales and neither says anything without its points: they are reported with version,
best accuracy and points, or not at all. Accuracies are in percent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

DROP = 5.0  # accuracy points below the first point from which d3LLM drops a point
STEEPNESS = 3.0

Points = Sequence[tuple[float, float]]  # (TPF, accuracy in percent)


@dataclass(frozen=True)
class Aup:
    version: str  # "d3llm" or "mbd"
    value: float
    best: float | None  # the accuracy against which points are weighted
    points: tuple[tuple[float, float], ...]  # those that count, by TPF


def aup_d3llm(points: Points, best: float) -> Aup:
    """d3LLM: TPF_1 x acc_1, then trapezoids of acc x w with w = min(exp(-3 (1 - acc / best)), 1).

    Points whose accuracy is more than 5 points below that of the first are dropped.
    """
    ordered = sorted(points)
    kept = [point for point in ordered if point[1] >= ordered[0][1] - DROP]
    tpf, accuracy = np.array(kept).T
    weighted = accuracy * np.minimum(np.exp(-STEEPNESS * (1 - accuracy / best)), 1.0)
    return Aup("d3llm", float(tpf[0] * accuracy[0] + _trapezoid(weighted, tpf)), best, tuple(kept))


def aup_mbd(points: Points) -> Aup:
    """MBD: the plain trapezoid of accuracy over TPF."""
    ordered = sorted(points)
    tpf, accuracy = np.array(ordered).T
    return Aup("mbd", _trapezoid(accuracy, tpf), None, tuple(ordered))


def _trapezoid(y: np.ndarray, x: np.ndarray) -> float:
    from scipy.integrate import trapezoid

    return float(trapezoid(y, x))
