"""What the engine of a rank takes from its settings, and what ranks compare before they load weights."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from lopa_bench.backends.ranks.facts import differences
from lopa_bench.backends.ranks.place import Place
from lopa_bench.backends.ranks.session import Protocol
from lopa_bench.engines import ranked
from lopa_bench.models.network.transformer import Transformer
from lopa_bench.settings.backend import LocalSettings
from tests.test_ranks import network

TWO = LocalSettings(branch_ranks=2)


def engine(place: Place) -> Any:
    """One without a plan, a model and other ranks."""
    found = object.__new__(ranked.RankedEngine)
    found.mesh = SimpleNamespace(branch=None, tensor=None, link="gloo", place=place)  # of it
    found.ranks = SimpleNamespace(place=place, turn=None)  # all that is asked here
    return found


def test_the_settings_of_ranks_reach_the_backend() -> None:
    settings = replace(TWO, branch_protocol="single_phase", branch_check=True, prefix_reuse="exact")
    backend = engine(Place(1, 2))._backend_of(network().model, settings)
    assert backend.protocol == Protocol("single_phase", check=True)
    assert (backend.link.rank, backend.link.size, backend.prefix_reuse) == (1, 2, "exact")
    model = network().model
    assert isinstance(model, Transformer)
    part = engine(Place(1, 1, 2))._backend_of(model, LocalSettings(tensor_ranks=2))
    assert part.config.heads == network().config.heads // 2


def test_ranks_on_one_machine_share_its_threads_unless_they_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[int] = []
    monkeypatch.setattr(torch, "get_num_threads", lambda: 8)
    monkeypatch.setattr(torch, "set_num_threads", taken.append)
    for place, settings in ((Place(0, 2, 2), LocalSettings()), (Place(0, 16), LocalSettings()), (Place(0, 2), TWO)):
        engine(place)._share_threads(settings)
    engine(Place(0, 2))._share_threads(replace(TWO, threads=8))
    assert taken == [2, 1, 4]


@pytest.mark.parametrize(
    "other",
    [{"branch_protocol": "single_phase"}, {"branch_check": True}, {"link": "gloo"}, {"rank_timeout_s": 60.0}],
    ids=str,
)
def test_ranks_that_would_work_together_in_another_way_differ(other: dict[str, Any]) -> None:
    plan: Any = SimpleNamespace(identity=SimpleNamespace(facts={"decoder": {"k": 7}}))
    (name,) = other
    told = differences(ranked._facts(plan, TWO), ranked._facts(plan, replace(TWO, **other)))
    assert told.startswith(f"settings differ (ranks.{name}=")
