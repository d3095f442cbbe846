"""Devices of a run: how they are named, and which place each worker has on them."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from decoders.config import DecoderConfig
from lopa_bench.errors import ConfigError
from lopa_bench.run.workers import joining, places, pool
from lopa_bench.run.workers.launched import Rank
from lopa_bench.run.workers.opening import way_of
from lopa_bench.settings.arguments import with_devices
from lopa_bench.settings.backend import LocalSettings, ServerSettings
from lopa_bench.settings.config import Config, RunSettings
from lopa_bench.settings.model import ModelSettings
from lopa_bench.settings.shard import Devices
from lopa_bench.settings.validate import validate

CONFIG = Config(
    decoder=DecoderConfig(name="d2f"), model=ModelSettings(path="embedded:mini", toy=True), backend=LocalSettings()
)


# --- run.devices


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("all", (None, (), None)),
        ("2", (2, (), None)),
        ("0,3", (2, (0, 3), None)),
        ("1, 0", (2, (1, 0), None)),
        ("cpu:2", (2, (), "cpu")),
    ],
)
def test_what_run_devices_means(text: str, wanted: tuple[int | None, tuple[int, ...], str | None]) -> None:
    devices = Devices.parse(text)
    assert (devices.count, devices.numbers, devices.kind) == wanted


@pytest.mark.parametrize(
    "text", ["0", "-1", "0,0", "1,01", "a", "cuda:0", "cpu", "cpu:0", "cpu:0,1", "1.5", "2,", ",1", "0,-1", "٣", "ALL"]
)
def test_other_devices_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=f"run.devices={text} is not allowed; allowed: all, a number of devices from"):
        Devices.parse(text)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"run": RunSettings(devices="2", shard="0/2")}, "run.devices=2 shares out all problems, run.shard=0/2 takes"),
        ({"backend": LocalSettings(device="cuda:1")}, "run.devices=2 and backend.device=cuda:1 name devices twice"),
        ({"run": RunSettings(devices="cpu:2"), "backend": LocalSettings(device="cuda")}, "backend.device=cuda name"),
        ({"backend": LocalSettings(prefix_reuse="approximate")}, "run.devices=2 is not allowed with backend.prefix"),
        ({"run": RunSettings(devices=" ")}, "run.devices is empty"),
    ],
)
def test_devices_with_what_they_cannot_be_with_are_refused(changes: dict[str, Any], message: str) -> None:
    base = replace(CONFIG, run=RunSettings(devices="2"), decoder=DecoderConfig(name="d2f", cache="exact"))
    with pytest.raises(ConfigError, match=message):
        validate(replace(base, **changes))


def test_devices_of_a_served_run_are_refused() -> None:
    served = ServerSettings(name="openai", url="http://127.0.0.1:1")
    config = replace(CONFIG, backend=served, run=RunSettings(devices="2"), decoder=DecoderConfig(name="served"))
    with pytest.raises(ConfigError, match=r"run.devices=2 needs backend=local: backend=openai has devices of its own"):
        validate(config)


# --- places


def on_a_machine(monkeypatch: pytest.MonkeyPatch, kind: str, count: int, cores: int = 8) -> None:
    monkeypatch.setattr(places, "device_kind", lambda name: kind)
    monkeypatch.setattr(joining, "device_kind", lambda name: kind)
    monkeypatch.setattr(places, "count_devices", lambda kind: count)
    monkeypatch.setattr(joining, "count_devices", lambda kind: count)
    monkeypatch.setattr(places, "usable_cores", lambda: cores)
    monkeypatch.setattr(places, "available", lambda: 64)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def test_a_worker_whose_decodes_take_several_ranks_has_a_device_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    on_a_machine(monkeypatch, "cuda", 8)
    four = LocalSettings(device="cuda", branch_ranks=2, tensor_ranks=2)
    found = places.places(Devices.parse("all"), four)
    assert [place.environment for place in found] == [
        {"CUDA_VISIBLE_DEVICES": "0,1,2,3"},
        {"CUDA_VISIBLE_DEVICES": "4,5,6,7"},
    ]
    (two,) = places.places(Devices.parse("1,6"), LocalSettings(device="cuda", branch_ranks=2))
    assert (two.device, two.environment) == ("cuda:1,6", {"CUDA_VISIBLE_DEVICES": "1,6"})
    with pytest.raises(ConfigError, match="is 6 devices for workers of 4 ranks each"):
        places.places(Devices.parse("6"), four)


def found(text: str, **backend: Any) -> list[places.Place]:
    return places.places(Devices.parse(text), LocalSettings(**backend))


def test_there_are_no_more_workers_than_they_have_to_do_and_at_least_one(monkeypatch: pytest.MonkeyPatch) -> None:
    on_a_machine(monkeypatch, "cpu", 0, cores=8)
    here = LocalSettings(device="cpu")
    at_all = {samples: places.places(Devices.parse("all"), here, samples, batch=16) for samples in (0, 1, 33, 1000)}
    assert [len(found) for found in at_all.values()] == [1, 1, 3, 8]  # a batch each
    assert [found[0].environment["OMP_NUM_THREADS"] for found in at_all.values()] == ["8", "8", "2", "1"]
    assert [len(places.places(Devices.parse("4"), here, samples, 16)) for samples in (0, 3, 33)] == [1, 3, 4]
    on_a_machine(monkeypatch, "cuda", 4)
    assert [len(places.places(Devices.parse("all"), LocalSettings(device="cuda"), n, 16)) for n in (0, 3, 33)] == [
        1,
        3,
        4,
    ]


def test_workers_of_a_run_are_begun_for_the_batches_that_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    on_a_machine(monkeypatch, "cpu", 0, cores=8)
    begun: list[list[places.Place]] = []
    monkeypatch.setattr(pool, "Pool", lambda plan, folder, run_id, found: begun.append(found))
    config = replace(CONFIG, backend=LocalSettings(device="cpu"), run=RunSettings(devices="all", batch=16))
    way = way_of(config, validate(config), None)
    for missing in (100, 40):
        way.open(None, SimpleNamespace(folder=None, run_id=""), missing)  # neither is read
    assert [len(found) for found in begun] == [7, 3]


def test_a_worker_sees_one_device_alone_as_the_process_that_starts_it_counts_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    on_a_machine(monkeypatch, "cuda", 4)
    assert [place.device for place in found("all")] == ["cuda:0", "cuda:1", "cuda:2", "cuda:3"]
    assert [place.environment for place in found("2")] == [{"CUDA_VISIBLE_DEVICES": "0"}, {"CUDA_VISIBLE_DEVICES": "1"}]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7, GPU-8a,5,4")
    assert [place.environment["CUDA_VISIBLE_DEVICES"] for place in found("1,3")] == ["GPU-8a", "4"]


@pytest.mark.parametrize(
    ("kind", "count", "text", "backend", "message"),
    [
        ("cuda", 2, "3", {}, "run.devices=3 is not here; allowed: devices of cuda that are: cuda:0, cuda:1"),
        ("cuda", 2, "0,2", {}, "run.devices=0,2 is not here"),
        ("npu", 0, "all", {}, "allowed: devices of npu that are: none"),
        ("cuda", 2, "cpu:2", {}, "run.devices=cpu:2 means the cpu, and backend.device=auto comes to cuda here"),
        (
            "cpu",
            0,
            "0,1",
            {},
            "run.devices=0,1 is not allowed; allowed: 1 to 64 workers, or all: the CPU is one device",
        ),
        ("cpu", 0, "65", {}, "run.devices=65 is not allowed; allowed: at most 64 on these 8 cores"),
        ("mps", 1, "2", {}, "allowed: devices of mps that are: mps:0"),
    ],
)
def test_devices_that_are_not_here_are_refused(
    kind: str, count: int, text: str, backend: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_a_machine(monkeypatch, kind, count)
    with pytest.raises(ConfigError, match=message):
        found(text, **backend)


def test_workers_on_the_cpu_share_its_cores_and_its_memory(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    on_a_machine(monkeypatch, "cpu", 0)
    assert found("2") == [places.Place("cpu", {"OMP_NUM_THREADS": "4"}, 32)] * 2
    assert len(found("all")) == 8
    assert len(found("all", threads=4)) == 2
    places.note_shared(found("all"))
    assert capsys.readouterr().err == ""
    assert found("cpu:16")[0].environment == {"OMP_NUM_THREADS": "1"}
    places.note_shared(found("cpu:16"))
    assert "note: 16 workers of 1 thread share 8 cores" in capsys.readouterr().err


def test_a_launched_process_takes_its_own_device_or_the_only_one_that_it_sees(monkeypatch: pytest.MonkeyPatch) -> None:
    rank = Rank("rank", 3, 1, True)
    on_a_machine(monkeypatch, "cuda", 2)
    assert joining.place_of_rank(rank, LocalSettings()).environment == {"CUDA_VISIBLE_DEVICES": "1"}
    assert joining.place_of_rank(rank, LocalSettings(device="cuda:0")).device == "cuda:0"  # it was told
    with pytest.raises(ConfigError, match="rank 3 is number 2 on this machine, which has 2 devices of cuda"):
        joining.place_of_rank(replace(rank, local=2), LocalSettings())
    on_a_machine(monkeypatch, "cuda", 1)
    assert joining.place_of_rank(rank, LocalSettings()).device == "cuda:0"
    on_a_machine(monkeypatch, "cpu", 0)
    assert joining.place_of_rank(rank, LocalSettings()) == places.Place("cpu")


def test_a_launched_worker_of_several_ranks_takes_a_device_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    rank, two = Rank("rank", 2, 1, False), LocalSettings(branch_ranks=2)
    on_a_machine(monkeypatch, "cuda", 4)
    assert joining.place_of_rank(rank, two).environment == {"CUDA_VISIBLE_DEVICES": "2,3"}
    on_a_machine(monkeypatch, "cuda", 2)  # a task of Slurm sees its own alone
    assert joining.place_of_rank(rank, two).environment == {"CUDA_VISIBLE_DEVICES": "0,1"}
    on_a_machine(monkeypatch, "cuda", 3)
    with pytest.raises(ConfigError, match=r"rank 2 is number 1 .* 3 devices of cuda; allowed: as many workers of 2"):
        joining.place_of_rank(rank, two)


@pytest.mark.parametrize(
    ("typed", "taken"),
    [
        (["run.devices=0,1"], ["run.devices='0,1'"]),
        (["task=gsm8k", "++run.devices=1,0,2"], ["task=gsm8k", "++run.devices='1,0,2'"]),
        (["run.devices='0,1'"], ["run.devices='0,1'"]),
        (["-m", "run.devices=1,2"], ["-m", "run.devices=1,2"]),
        (["hydra.mode=MULTIRUN", "run.devices=1,2"], ["hydra.mode=MULTIRUN", "run.devices=1,2"]),
        (["run.devices=2"], ["run.devices=2"]),
        (["decoder.k=0,1"], ["decoder.k=0,1"]),
    ],
)
def test_numbers_of_devices_need_no_quotes_outside_a_sweep(typed: list[str], taken: list[str]) -> None:
    assert with_devices(typed) == taken
