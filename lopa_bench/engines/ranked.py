"""Several processes for one decode: rank 0 has the run, the others decode the same texts beside it.

Rank 0 starts the others itself; or a launcher such as torchrun started all, which then run the same command. Loading
this module loads torch.
"""

from __future__ import annotations

import io
import os
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stderr, suppress
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import torch

from lopa_bench.backends.local import LocalBackend, Pending
from lopa_bench.backends.ranks.backend import RankedBackend
from lopa_bench.backends.ranks.joining import LOST, Dismissed, RankError, Ranks
from lopa_bench.backends.ranks.link import MeshLink
from lopa_bench.backends.ranks.mesh import Mesh, link_of
from lopa_bench.backends.ranks.place import Place, placed
from lopa_bench.backends.ranks.session import Protocol
from lopa_bench.backends.ranks.tensor import MeshGroup
from lopa_bench.engines.base import Sample
from lopa_bench.engines.masked import MaskedEngine
from lopa_bench.errors import BackendError
from lopa_bench.models.device import device_kind
from lopa_bench.models.network.static import Network
from lopa_bench.models.network.tensor_parallel import shared
from lopa_bench.models.network.transformer import Transformer
from lopa_bench.plan.configured import configured
from lopa_bench.plan.plan import Plan, make_plan
from lopa_bench.plan.units import Unit
from lopa_bench.settings.backend import LocalSettings
from lopa_bench.settings.config import config_of
from lopa_bench.system.channel import Channel
from lopa_bench.system.processes import Crew

FOLLOWER = f"{__name__}:main"
PLACED = ("RANK", "WORLD_SIZE", "LOCAL_RANK")


class RankedEngine(MaskedEngine):
    """The model of one rank and the decodes of a plan. Raises RankError for ranks that do not come or do not match."""

    def __init__(self, plan: Plan, ranks: Ranks | None = None) -> None:
        settings = plan.config.backend
        assert isinstance(settings, LocalSettings)
        self.crew = Crew()
        self.mesh: Mesh | None = None
        try:
            self.ranks = ranks or self._found(plan, settings)
            device = _device(settings, self.ranks.place)
            self.ranks.join(_facts(plan, settings))
            link = link_of(device, settings.link)
            self.mesh = Mesh(self.ranks.place, self.ranks.store.store, device, link, settings.rank_timeout_s)
            here = replace(settings, device=str(device))
            # Its network is none for another run: tensor ranks take their shares out of it.
            super().__init__(replace(plan, config=replace(plan.config, backend=here), kept=None))
            self._share_threads(settings)
        except BaseException:
            self.close()
            raise

    def _found(self, plan: Plan, settings: LocalSettings) -> Ranks:
        """The ranks of a launcher; else they are started, with this process as the first."""
        place = placed(settings.branch_ranks, settings.tensor_ranks, os.environ)
        if place is not None:
            return launched(settings, place)
        first = Place(0, settings.branch_ranks, settings.tensor_ranks)
        ranks = Ranks(first, "127.0.0.1", 0, settings.rank_timeout_s, owner=True)
        for rank in range(1, settings.ranks):
            child = self.crew.start(f"rank {rank}", FOLLOWER, dict.fromkeys(PLACED))
            child.channel.send(rank=rank, port=ranks.port, resolved=plan.resolved)
            ranks.started(rank, child)
        return ranks

    def _backend_of(self, network: Network, settings: LocalSettings) -> LocalBackend:
        assert self.mesh is not None
        protocol = Protocol(settings.branch_protocol, settings.branch_check)
        link = MeshLink(self.mesh, self.ranks)
        if settings.tensor_ranks > 1:
            assert isinstance(network, Transformer)  # steps of static shape are refused
            shared(network, MeshGroup(self.mesh, self.ranks))
        return RankedBackend(network, link, protocol, prefix_reuse=settings.prefix_reuse, turn=self.ranks.turn)

    def _share_threads(self, settings: LocalSettings) -> None:
        """Ranks on one machine's CPU do not take all of its threads each."""
        if settings.threads is None and torch.get_num_threads() > 1:
            torch.set_num_threads(max(1, torch.get_num_threads() // self.ranks.place.size))

    def _free(self, device: torch.device) -> int | None:
        free = super()._free(device)
        return free // self.ranks.place.size if free is not None and device.type == "cpu" else free

    def facts(self) -> Mapping[str, Any]:
        settings = self.plan.config.backend
        assert isinstance(settings, LocalSettings)
        assert self.mesh is not None
        said: dict[str, Any] = {"branch": settings.branch_ranks, "tensor": settings.tensor_ranks}
        said |= {"protocol": settings.branch_protocol, "link": self.mesh.link}
        return {**super().facts(), "ranks": said}

    def warm_up(self, unit: Unit) -> None:
        self.ranks.work(["warm_up", unit.index, unit.sample_index])
        super().warm_up(unit)

    def stream(self, units: Sequence[Unit]) -> Iterator[Sample]:
        self.ranks.work(["stream"])
        yield from super().stream(units)

    def _waiting(self, units: Sequence[Unit]) -> Iterator[Pending]:
        """As they are asked for, so that the other ranks hear of each just then."""
        for number, pending in enumerate(super()._waiting(units)):  # once: a worker's units come as they are asked for
            unit = units[number]
            self.ranks.work(["unit", unit.index, unit.sample_index])
            yield pending
        self.ranks.work(["end"])

    def follow(self) -> None:
        """The work of all ranks but the first: decodes what rank 0 decodes, and leaves the records to it."""
        while (work := self.ranks.next_work()) is not None:
            if work[0] == "warm_up":
                self.backend.decode(self._start(Unit(*work[1:])))
            else:
                for _ in self.backend.stream(self._told(), self.plan.config.run.batch):
                    pass

    def _told(self) -> Iterator[Pending]:
        while (work := self.ranks.next_work()) is not None and work[0] == "unit":
            unit = Unit(*work[1:])
            yield Pending(self.prompt_ids[unit.index], partial(self._start, unit))

    def close(self) -> None:
        if hasattr(self, "ranks"):
            self.ranks.close()
        self.crew.close()
        if self.mesh is not None:
            self.mesh.close()


def launched(settings: LocalSettings, place: Place) -> Ranks:
    """Meets at the address that a launcher gave. Raises BackendError for one that is not there."""
    address, port = os.environ.get("MASTER_ADDR"), os.environ.get("MASTER_PORT", "")
    if not address or not port.isdecimal():
        raise BackendError(
            f"RANK and WORLD_SIZE are set, but MASTER_ADDR={address} MASTER_PORT={port or None} are no address; "
            "allowed: a launcher that sets all four, such as torchrun, or none of them"
        )
    served = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"  # by torchrun
    prefix = f"{os.environ.get('TORCHELASTIC_RUN_ID', '')}/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}"
    return Ranks(place, address, int(port), settings.rank_timeout_s, prefix, owner=place.leads and not served)


def followed(plan: Plan) -> bool:
    """Does the work of one of the other ranks, if that is what a launcher made this process."""
    settings, place = _launch(plan)
    if place is None or place.leads:
        return False
    with suppress(Dismissed):
        _follow(plan, launched(settings, place))
    return True


def dismiss(plan: Plan) -> None:
    """Rank 0 of a launcher, which found nothing to decode, sends the others home."""
    settings, place = _launch(plan)
    if place is not None:
        launched(settings, place).dismiss()


def _launch(plan: Plan) -> tuple[LocalSettings, Place | None]:
    settings = plan.config.backend
    assert isinstance(settings, LocalSettings)
    return settings, placed(settings.branch_ranks, settings.tensor_ranks, os.environ)


def main(channel: Channel) -> None:
    """A rank that rank 0 started."""
    told = channel.receive()
    config = config_of(told["resolved"])
    settings = config.backend
    assert isinstance(settings, LocalSettings)
    place = Place(told["rank"], settings.branch_ranks, settings.tensor_ranks)
    ranks = Ranks(place, "127.0.0.1", told["port"], settings.rank_timeout_s)
    try:
        with redirect_stderr(io.StringIO()):  # rank 0 says the same
            plan = make_plan(*configured(config, told["resolved"]))
    except Exception as error:
        ranks.fail(error)
        sys.exit(1)
    try:
        _follow(plan, ranks)
    except RankError:  # of another rank
        os._exit(LOST)
    except BackendError:
        os._exit(1)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)  # whatever a collective still waits for
    os._exit(0)


def _follow(plan: Plan, ranks: Ranks) -> None:
    try:
        with redirect_stderr(io.StringIO()):
            engine = RankedEngine(plan, ranks)
        with engine:
            engine.follow()
    except BaseException as error:
        ranks.fail(error)
        raise


def _device(settings: LocalSettings, place: Place) -> torch.device:
    """The device of this rank: one each, or shared where gloo carries the tensors. Raises BackendError."""
    kind, _, number = settings.device.partition(":")
    kind = device_kind(settings.device) if kind == "auto" else kind
    if kind not in ("cuda", "npu"):
        return torch.device(settings.device if kind != "cpu" else "cpu")
    count = getattr(torch, kind).device_count()
    own = place.rank if place.local is None else place.local
    if number or (own >= count and settings.link != "gloo"):
        raise BackendError(
            f"backend.device={settings.device} is {1 if number else count} device for "
            f"backend.branch_ranks={settings.branch_ranks} backend.tensor_ranks={settings.tensor_ranks}; allowed: "
            f"backend.device={kind} with a device for each rank, or backend.device={kind} backend.link=gloo, with "
            "which ranks can share devices"
        )
    return torch.device(f"{kind}:{own % max(1, count)}")


def _facts(plan: Plan, settings: LocalSettings) -> dict[str, Any]:
    """What all ranks must agree on: all that a run's key is made of, and how they work together."""
    names = ("branch_ranks", "tensor_ranks", "branch_protocol", "branch_check", "link", "rank_timeout_s")
    chosen = asdict(settings)
    return {**plan.identity.facts, "ranks": {name: chosen[name] for name in names}}
