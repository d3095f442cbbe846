"""Where workers run: which devices there are here, and what a process is told so that it sees one of them alone."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil

from decoders.allowed import refused
from lopa_bench.errors import ConfigError
from lopa_bench.models.device import device_kind
from lopa_bench.settings.backend import LocalSettings
from lopa_bench.settings.shard import Devices
from lopa_bench.system.memory import available

VISIBLE = {"cuda": "CUDA_VISIBLE_DEVICES", "npu": "ASCEND_RT_VISIBLE_DEVICES"}  # a process sees what these list
THREADS = "OMP_NUM_THREADS"  # what torch takes if it is not told
A_CORE = 8  # workers on the CPU; with more of them each only waits for the others


@dataclass(frozen=True)
class Place:
    """`device` as it is called here; `environment` for its process; `memory`: bytes of main memory that it may take."""

    device: str
    environment: Mapping[str, str | None] = field(default_factory=dict)
    memory: int | None = None


def places(devices: Devices, backend: LocalSettings, samples: int | None = None, batch: int = 1) -> list[Place]:
    """One place for each worker, not more than there are samples to decode, but one: a run's row is a worker's word.

    Raises ConfigError for devices that are not here.
    """
    kind = device_kind(backend.device)
    if devices.kind not in (None, kind):
        raise ConfigError(
            f"run.devices={devices.text} means the {devices.kind}, and backend.device={backend.device} comes to {kind} "
            f"here; allowed: with backend.device={devices.kind}"
        )
    if kind == "cpu":
        return _on_cpu(devices, backend, samples, batch)
    found = _on_accelerators(devices, kind, backend.ranks)
    return found if samples is None else found[: max(samples, 1)]


def _on_cpu(devices: Devices, backend: LocalSettings, samples: int | None, batch: int) -> list[Place]:
    """Each worker has its share of the cores as threads of torch, unless backend.threads says how many. `all` is one a
    core if there is a whole batch for each: cores without one are threads of the others.
    """
    cores = usable_cores()
    if devices.numbers:
        raise ConfigError(
            refused("run.devices", devices.text, f"1 to {A_CORE * cores} workers, or all: the CPU is one device")
        )
    count = devices.count or max(1, cores // (backend.threads or 1))
    if count > A_CORE * cores:
        raise ConfigError(refused("run.devices", devices.text, f"at most {A_CORE * cores} on these {cores} cores"))
    if samples is not None:
        count = max(1, min(count, samples if devices.count else ceil(samples / batch)))
    threads = backend.threads or max(1, cores // count)
    free = available()
    place = Place("cpu", {THREADS: str(threads)}, None if free is None else free // count)
    return [place] * count


def note_shared(found: Sequence[Place]) -> None:
    """Says that workers on the CPU have fewer cores than threads."""
    threads, cores = [int(place.environment.get(THREADS) or 0) for place in found], usable_cores()
    if sum(threads) > cores:
        print(
            f"note: {len(found)} workers of {threads[0]} thread{'s' if threads[0] > 1 else ''} share {cores} cores: "
            "their times are longer than alone",
            file=sys.stderr,
        )


def _on_accelerators(devices: Devices, kind: str, ranks: int) -> list[Place]:
    """A worker whose decodes take several ranks has a device for each of them, those with the next numbers."""
    there = count_devices(kind)
    numbers = devices.numbers or tuple(range(devices.count or there))
    if not numbers or max(numbers) >= there:
        names = ", ".join(f"{kind}:{number}" for number in range(there)) or "none"
        raise ConfigError(f"run.devices={devices.text} is not here; allowed: devices of {kind} that are: {names}")
    if len(numbers) % ranks:
        raise ConfigError(
            f"run.devices={devices.text} is {len(numbers)} devices for workers of {ranks} ranks each "
            f"(backend.branch_ranks times backend.tensor_ranks); allowed: a multiple of {ranks}"
        )
    return accelerators(kind, numbers, there, ranks)


def accelerators(kind: str, numbers: Sequence[int], there: int, ranks: int = 1) -> list[Place]:
    """A place for each of these numbers, or for each `ranks` of them, of the `there` devices that this process sees."""
    if kind not in VISIBLE:
        return [Place(kind)]
    listed = os.environ.get(VISIBLE[kind], "")
    names = [name.strip() for name in listed.split(",")] if listed.strip() else [str(n) for n in range(there)]
    groups = [numbers[first : first + ranks] for first in range(0, len(numbers), ranks)]
    return [
        Place(f"{kind}:{','.join(map(str, group))}", {VISIBLE[kind]: ",".join(names[number] for number in group)})
        for group in groups
    ]


def usable_cores() -> int:
    """Those that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def count_devices(kind: str) -> int:
    """How many accelerators of a kind this process sees."""
    import torch

    if kind == "npu":
        try:
            import torch_npu
        except ImportError:
            return 0
        return int(torch_npu.npu.device_count())
    return torch.cuda.device_count() if kind == "cuda" else 1  # mps: there is one or none
