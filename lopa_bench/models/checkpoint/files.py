"""Which files of a folder are the weights: those that the publisher's own loader would take, and no others.

Finding them loads no torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lopa_bench.errors import CheckpointError
from lopa_bench.models.checkpoint.keys import read_json, shown

if TYPE_CHECKING:
    from torch import Tensor

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
ADAPTER_CONFIG = "adapter_config.json"
ADAPTER = "adapter_model.safetensors"


def weight_files(folder: Path) -> list[Path]:
    """The weight files of a checkpoint, in the order in which transformers looks for them: model.safetensors; else the
    parts that model.safetensors.index.json names. Whatever else lies beside them is not read.

    Raises CheckpointError when there are none, a part is missing, or the folder is that of an adapter as well:
    transformers would then load the adapter's base model from elsewhere.
    """
    if (folder / ADAPTER_CONFIG).exists():
        raise CheckpointError(f"{folder / ADAPTER_CONFIG} makes this an adapter's folder; allowed: model.lora for it")
    if (folder / SINGLE).exists():
        return [folder / SINGLE]
    if not (folder / INDEX).exists():
        raise CheckpointError(f"{folder} has no weights: neither {SINGLE} nor {INDEX}{_others(folder)}")
    files = [folder / name for name in _parts(folder / INDEX)]
    missing = [path.name for path in files if not path.is_file()]
    if missing:
        raise CheckpointError(f"{folder / INDEX} names missing {', '.join(missing[:4])} ({len(missing)} in all)")
    return files


def adapter_file(folder: Path) -> Path:
    """The weight file of a PEFT adapter: one name alone, whatever else is there. Raises CheckpointError."""
    if not (folder / ADAPTER).is_file():
        raise CheckpointError(f"{folder} has no {ADAPTER}{_others(folder)}")
    return folder / ADAPTER


def read_tensors(files: Sequence[Path]) -> dict[str, Tensor]:
    """All tensors of some safetensors files, memory-mapped. Raises CheckpointError."""
    from safetensors.torch import load_file

    tensors: dict[str, Tensor] = {}
    for path in files:
        try:
            part = load_file(path)
        except Exception as error:  # safetensors raises its own type for every kind of damage
            raise CheckpointError(f"{path} is not a readable safetensors file: {error}") from None
        if twice := sorted(set(part) & set(tensors)):
            raise CheckpointError(f"{path} holds {twice[0]}, which another part has as well; allowed: one of them")
        tensors |= part
    return tensors


def _parts(index: Path) -> list[str]:
    parts: Any = read_json(index).get("weight_map")
    if not isinstance(parts, dict) or not parts:
        raise CheckpointError(f"{index}: weight_map={shown(parts)}; allowed: an object from tensors to files")
    for tensor, name in parts.items():
        if not isinstance(name, str) or not name.endswith(".safetensors") or Path(name).name != name:
            raise CheckpointError(
                f"{index}: weight_map.{tensor}={shown(name)} is not allowed; allowed: a safetensors file of this folder"
            )
    return sorted(set(parts.values()))


def _others(folder: Path) -> str:
    found = sorted(path.name for pattern in ("*.safetensors", "*.bin", "*.pt") for path in folder.glob(pattern))
    return f" (found {', '.join(found[:4])})" if found else ""
