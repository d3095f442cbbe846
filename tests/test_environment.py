"""The line that tells machines apart, and which devices there are."""

from __future__ import annotations

import platform

import pytest
import torch

from lopa_bench.models import device
from lopa_bench.system.environment import host, machine_name

NODE = {"hostname": "node7", "machine": "x86_64", "processor": "Xeon", "gpu": None, "threads": 8}


@pytest.mark.parametrize(
    ("facts", "line"),
    [
        ({}, "node7 (Xeon, 8 threads)"),
        ({"gpu": "NVIDIA H200"}, "node7 (NVIDIA H200, 8 threads)"),
        ({"threads": 1}, "node7 (Xeon, 1 thread)"),
        ({"threads": None}, "node7 (Xeon)"),
        ({"processor": ""}, "node7 (x86_64, 8 threads)"),
    ],
)
def test_a_machine_is_its_host_its_device_and_its_threads(facts: dict[str, object], line: str) -> None:
    assert machine_name(NODE | facts) == line


def test_this_machine() -> None:
    line = machine_name(host("cpu"))
    assert line.startswith(platform.node())
    assert f"{torch.get_num_threads()} thread" in line
    assert "thread" not in machine_name(host("server"))


def test_the_kinds_of_device_are_those_of_torch_and_of_its_plug_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "version", lambda _: "2.9.0+cu128")
    monkeypatch.setattr(device, "find_spec", lambda name: name if name == "torch_npu" else None)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    assert device.device_kinds() == ["cpu", "cuda", "npu"]
    monkeypatch.setattr(device, "version", lambda _: "2.9.0+cpu")
    assert device.device_kinds() == (["cpu"] if platform.system() == "Linux" else ["cpu", "cuda", "npu"])
