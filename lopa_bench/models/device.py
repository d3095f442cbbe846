"""Where a model runs: device, number format and threads, the same for every kind of model. torch is imported late."""

from __future__ import annotations

import gc
import platform
import sys
from contextlib import suppress
from functools import lru_cache
from importlib.metadata import version
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from lopa_bench.errors import CheckpointError
from lopa_bench.system.memory import available

if TYPE_CHECKING:
    import torch

SMALL = 50_000_000  # parameters below which one CPU thread is the default ...
PACKED = 8  # ... unless this many samples share a call


def device_kind(name: str) -> str:
    """cpu, cuda, mps or npu: what `backend.device` comes to here; `auto` is the first accelerator there is. Asks torch
    only if torch can have one.
    """
    if name != "auto":
        return name.partition(":")[0]
    if platform.system() == "Linux" and version("torch").endswith("+cpu"):
        return "cpu"
    import torch

    return "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"


def device_kinds() -> list[str]:
    """The kinds of device that are here; torch is asked only if it can have more than the CPU."""
    if platform.system() == "Linux" and version("torch").endswith("+cpu"):
        return ["cpu"]
    import torch

    found = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    found["npu"] = find_spec("torch_npu") is not None
    return ["cpu", *(kind for kind, is_here in found.items() if is_here)]


def several() -> str:
    """As run.devices: all accelerators where there are some, else two workers on the CPU."""
    return "2" if device_kind("auto") == "cpu" else "all"


def pick_device(name: str) -> torch.device:
    """The device of that name, or of `auto`. Raises CheckpointError for one that is not here."""
    import torch

    name = device_kind(name) if name == "auto" else name
    if name.startswith("npu"):
        try:
            import torch_npu  # noqa: F401  # registers the device
        except ImportError:
            raise CheckpointError(f"backend.device={name} needs the package torch_npu") from None
    try:
        return torch.zeros(1, device=name).device
    except (RuntimeError, AssertionError) as error:
        raise CheckpointError(f"backend.device={name} is not available: {str(error).splitlines()[0]}") from None


def pick_dtype(name: str, device: torch.device) -> torch.dtype:
    """`auto` is float32 on CPU and bfloat16 elsewhere."""
    import torch

    if name == "auto":
        name = "float32" if device.type == "cpu" else "bfloat16"
    dtype: torch.dtype = getattr(torch, name)
    return dtype


def dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def free_memory(device: torch.device) -> int | None:
    """Bytes of a device that can still be taken, what torch holds unused among them; None where it does not say."""
    import torch

    if device.type == "cuda":
        unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + unused
    return available() if device.type == "cpu" else None


def free_devices() -> None:
    """What nothing here uses any more is other runs' and processes' memory again."""
    gc.collect()
    torch = sys.modules.get("torch")
    with suppress(Exception):
        if torch and torch.cuda.is_initialized():
            torch.cuda.empty_cache()


def set_threads(network: Any, wanted: int | None, batch: int = 1) -> None:
    """CPU threads for calls of up to `batch` samples: as many as are wanted, else the default."""
    import torch

    default = default_threads(network, batch, torch_threads())
    torch.set_num_threads(wanted or default)


def default_threads(network: Any, batch: int, torch_threads: int) -> int:
    """One thread for a network whose products are too small to share: on a busy machine, threads that wait for each
    other at every product cost far more than a second core gives. Else, and for packed samples, torch's own choice.
    """
    parameters = sum(parameter.numel() for parameter in network.parameters())
    return 1 if parameters < SMALL and batch < PACKED else torch_threads


@lru_cache
def torch_threads() -> int:
    """Torch's own choice. It is asked before anything else is set."""
    import torch

    return torch.get_num_threads()
