"""Which files of a folder are the weights: those that the publisher's own loader would take, and no others.

Finding them, and reading what they hold, loads no torch.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
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
FLOATS = ("F32", "BF16", "F16", "F64")  # as safetensors calls them
POINTER = b"version https://git-lfs"


@dataclass(frozen=True)
class Header:
    """What a weight file says of one tensor before it is read; `dtype` as safetensors writes it."""

    file: Path
    shape: tuple[int, ...]
    dtype: str


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
    files = [folder / name for name in sorted(set(_weight_map(folder / INDEX).values()))]
    missing = [path.name for path in files if not path.is_file()]
    if missing:
        raise CheckpointError(f"{folder / INDEX} names missing {', '.join(missing[:4])} ({len(missing)} in all)")
    return files


def adapter_file(folder: Path) -> Path:
    """The weight file of a PEFT adapter: one name alone, whatever else is there. Raises CheckpointError."""
    if not (folder / ADAPTER).is_file():
        raise CheckpointError(f"{folder} has no {ADAPTER}{_others(folder)}")
    return folder / ADAPTER


def read_headers(files: Sequence[Path]) -> dict[str, Header]:
    """Every tensor of some weight files, of which no number is read.

    Raises CheckpointError for a file that is damaged or cut short, a tensor that is there twice, and one that is not
    where the index of the files says.
    """
    headers: dict[str, Header] = {}
    for path in files:
        for name, header in _headers_of(path).items():
            if name in headers:
                raise CheckpointError(f"{path} holds {name}, which another part has as well; allowed: one of them")
            headers[name] = header
    index = files[0].parent / INDEX
    if files[0].name != SINGLE and index.exists():
        for name, part in _weight_map(index).items():
            if name not in headers or headers[name].file.name != part:
                found = f"{headers[name].file.name} has it" if name in headers else "no part has it"
                raise CheckpointError(f"{index} says that {name} is in {part}, and {found}; allowed: where it is")
    return headers


def tensor_names(folder: Path) -> Collection[str]:
    """The names of the weights of a folder as far as they can be told without the parts of an index; none if there are
    no weights. Raises CheckpointError for a damaged file.
    """
    if (folder / SINGLE).exists():
        return _headers_of(folder / SINGLE)
    return _weight_map(folder / INDEX) if (folder / INDEX).exists() else ()


def _headers_of(path: Path) -> dict[str, Header]:
    from safetensors import safe_open

    with open_safely(path, lambda: safe_open(path, framework="np")) as file:
        slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118  # it is no mapping
        return {name: Header(path, tuple(part.get_shape()), part.get_dtype()) for name, part in slices.items()}


def read_tensors(path: Path) -> dict[str, Tensor]:
    """All tensors of a small file. Raises CheckpointError."""
    from safetensors.torch import load_file

    return open_safely(path, lambda: load_file(path))


def open_safely(path: Path, opens: Callable[[], Any]) -> Any:
    """What opens a safetensors file, with one error for every kind of damage. Raises CheckpointError."""
    try:
        with path.open("rb") as file:
            if file.read(len(POINTER)) == POINTER:
                raise CheckpointError(
                    f"{path} is a pointer of Git LFS, not the weights; allowed: what git lfs pull gets"
                )
        return opens()
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror or error}") from None
    except CheckpointError:
        raise
    except Exception as error:  # safetensors raises its own type for every kind of damage
        raise CheckpointError(f"{path} is not a readable safetensors file: {error}") from None


def _weight_map(index: Path) -> Mapping[str, str]:
    parts: Any = read_json(index).get("weight_map")
    if not isinstance(parts, dict) or not parts:
        raise CheckpointError(f"{index}: weight_map={shown(parts)}; allowed: an object from tensors to files")
    for tensor, name in parts.items():
        if not isinstance(name, str) or not name.endswith(".safetensors") or Path(name).name != name:
            raise CheckpointError(
                f"{index}: weight_map.{tensor}={shown(name)} is not allowed; allowed: a safetensors file of this folder"
            )
    return parts


def _others(folder: Path) -> str:
    found = sorted(path.name for pattern in ("*.safetensors", "*.bin", "*.pt") for path in folder.glob(pattern))
    return f" (found {', '.join(found[:4])})" if found else ""
