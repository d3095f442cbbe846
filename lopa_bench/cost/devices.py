"""What devices can do at most: devices.yaml, read and checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from lopa_bench.errors import ConfigError
from lopa_bench.settings.spelling import meant, nearest

FILE = Path(__file__).with_name("devices.yaml")
# No data sheet has it: what starting a collective of a few bytes over a node's links takes, a round figure between the
# 10 us of a tuned all-reduce and what is seen from Python.
COLLECTIVE_S = 20e-6


@dataclass(frozen=True)
class Device:
    """One device: bytes, bytes a second, operations a second by number format."""

    name: str
    title: str
    memory: float
    bandwidth: float
    flops: Mapping[str, float]
    link: float  # to the other devices, one direction
    source: str


@lru_cache
def devices() -> Mapping[str, Device]:
    """All devices by name."""
    from omegaconf import OmegaConf

    rows = OmegaConf.to_container(OmegaConf.load(FILE))
    assert isinstance(rows, dict)
    return {
        str(name): Device(
            name=str(name),
            title=row["title"],
            memory=row["memory_gb"] * 1e9,
            bandwidth=row["bandwidth_gbs"] * 1e9,
            flops={dtype: value * 1e12 for dtype, value in row["tflops"].items()},
            link=row["link_gbs"] * 1e9,
            source=row["source"],
        )
        for name, row in rows.items()
    }


def device(name: str) -> Device:
    """Raises ConfigError for one that is not in devices.yaml."""
    known = devices()
    name = name.strip()
    if name.lower() not in known:
        near = meant(f"device={one}" for one in nearest(name, known))
        raise ConfigError(f"device={name} is not allowed; allowed: {', '.join(known)}{near}")
    return known[name.lower()]
