"""Who decodes a run: this process, workers on its devices, or processes that were launched together."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from decoders.allowed import shown
from lopa_bench.errors import ConfigError
from lopa_bench.models.device import device_kind
from lopa_bench.plan.plan import Plan
from lopa_bench.records.claim import Claim, claim
from lopa_bench.records.runs import flat
from lopa_bench.run.decoding import Decoding, here
from lopa_bench.run.workers.launched import Rank
from lopa_bench.settings.backend import LocalSettings
from lopa_bench.settings.config import Config, RunSettings
from lopa_bench.settings.shard import OF_DEVICES
from lopa_bench.settings.validate import Validated


@dataclass(frozen=True)
class Way:
    """`take` gets a run for this process, with how many of its samples were decoded here for another process; `open`
    begins to decode it, of which so many samples are missing: more workers than that would have nothing to do.
    """

    take: Callable[[Plan, Path], tuple[Claim, int]]
    open: Callable[[Plan, Claim, int], AbstractContextManager[Decoding]]


def same_devices(plan: Plan, row: Mapping[str, Any]) -> bool:
    """Whether a run was asked for with the devices of this one."""

    def asked(config: Mapping[str, Any], auto: str) -> list[Any]:
        return [auto if value == "auto" else value for value in map(flat(config).get, OF_DEVICES)]

    there = asked(json.loads(row["config"]), row["device"].partition(":")[0])
    return there == asked(plan.resolved, device_kind("auto"))


def way_of(config: Config, valid: Validated, rank: Rank | None) -> Way:
    """Raises ConfigError for devices that are not here, and for a bound on workers where there are none."""

    def alone(plan: Plan, runs: Path) -> tuple[Claim, int]:
        alike = partial(same_devices, plan) if config.run.same_devices else None
        return claim(runs, plan.identity.key, config.resume, plan.labels, alike), 0

    if rank is None and valid.devices is None:
        if config.run.stall_s != RunSettings().stall_s:
            raise ConfigError(
                f"run.stall_s={shown(config.run.stall_s)} has no meaning here: it is read with run.devices, and by "
                "processes that torchrun, srun or a Slurm array started together"
            )
        return Way(alone, lambda plan, claimed, missing: here(plan, claimed.folder, claimed.run_id))
    from lopa_bench.run.workers import joining
    from lopa_bench.run.workers.places import note_shared, places
    from lopa_bench.run.workers.pool import Pool

    assert isinstance(config.backend, LocalSettings)
    if rank is None:
        assert valid.devices is not None
        devices, backend = valid.devices, config.backend
        places(devices, backend)  # are they here?

        def workers(plan: Plan, claimed: Claim, missing: int) -> Pool:
            found = places(devices, backend, missing, config.run.batch)
            note_shared(found)
            return Pool(plan, claimed.folder, claimed.run_id, found)

        return Way(alone, workers)
    place = joining.place_of_rank(rank, config.backend)
    return Way(
        lambda plan, runs: joining.take_part(plan, runs, rank, place),
        lambda plan, claimed, missing: joining.led(plan, claimed, place, rank.is_spread),
    )
