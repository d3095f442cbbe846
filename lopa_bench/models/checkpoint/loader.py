"""Checkpoint folders in a published layout: config.json, safetensors files, tokenizer files, perhaps a LoRA folder.

No code of a checkpoint is ever run. Weights go tensor by tensor from their file to their place on the device, in the
dtype that runs: beside the network itself, memory holds a piece of one file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from lopa_bench.errors import CheckpointError
from lopa_bench.models.checkpoint.files import Header, open_safely, read_headers, weight_files
from lopa_bench.models.checkpoint.layouts import Layout, read_config
from lopa_bench.models.checkpoint.lora import Merge
from lopa_bench.models.checkpoint.tensors import Place, check_numbers, is_finite, places, rows_of
from lopa_bench.models.network.transformer import Transformer

PIECE = 1 << 22  # numbers that are converted, or have an adapter added, at a time
MAPPED = 1 << 25  # bytes of a file that are in memory at a time: what was read stays mapped until the file is closed


def load_model(
    folder: Path, dtype: torch.dtype, device: torch.device, lora: Path | None = None, max_length: int | None = None
) -> Transformer:
    """The network of a checkpoint folder, on `device`, in `dtype`, LoRA merged, for texts of up to `max_length`
    positions (None: what the checkpoint allows). Raises CheckpointError, for what does not fit before any number is
    read.
    """
    layout, config = read_config(folder)
    if max_length is not None:
        config = replace(config, max_positions=min(max_length, config.max_positions))
    headers = read_headers(weight_files(folder))
    with torch.device("meta"):
        model = Transformer(config)
    shapes = {name: value.shape for name, value in model.state_dict().items()}
    found = places(layout, config, headers, shapes, str(folder))
    if config.tied:
        _check_tied(layout, headers, str(folder))
    tied = (layout.outer["embed.weight"], layout.head) if config.tied else None
    merge = Merge(lora, layout.modules(config), headers, tied) if lora is not None else None
    state = {name: torch.empty(shape, dtype=dtype, device=device) for name, shape in shapes.items()}
    for file in dict.fromkeys(header.file for header in headers.values()):
        _fill(state, file, found, merge)
    model.load_state_dict(state, assign=True)
    return model.place_tables(device).requires_grad_(False)


def _fill(state: Mapping[str, Tensor], file: Path, found: Mapping[str, Place], merge: Merge | None) -> None:
    """Copies every tensor of a file that has a place, piece by piece. Raises CheckpointError for numbers that cannot
    run.
    """
    source, mapped = _open(file), 0
    for name in [name for name in source.offset_keys() if name in found]:
        place = found[name]
        origin = merge.file if merge is not None and merge.replaces(name) else file
        target = rows_of(state[place.ours])[place.first : place.last]
        count = max(1, PIECE // max(1, target[0].numel()))
        for first in range(0, len(target), count):
            rows = rows_of(source.get_tensor(name))[first : first + count]
            _copy(target[first : first + count], rows if merge is None else merge.rows(name, first, rows), name, origin)
            mapped += rows.nbytes
            del rows
            if mapped >= MAPPED:
                source, mapped = _open(file), 0


def _open(file: Path):  # type: ignore[no-untyped-def]  # safetensors has no types
    from safetensors import safe_open

    return open_safely(file, lambda: safe_open(file, framework="pt"))


def _copy(target: Tensor, rows: Tensor, name: str, file: Path) -> None:
    """Writes rows of a published tensor over `target`. Raises CheckpointError for what is no finite number there."""
    target.copy_(rows)
    if not is_finite(target):
        check_numbers({name: rows}, str(file))
        raise CheckpointError(
            f"{file}: {name} has numbers that {str(target.dtype).removeprefix('torch.')} cannot hold; allowed: "
            "model.dtype=bfloat16 or float32"
        )


def _check_tied(layout: Layout, headers: Mapping[str, Header], where: str) -> None:
    """A tied model has one matrix for both ends. A file that holds a second, other one says two things."""
    embedding = layout.outer["embed.weight"]
    if layout.head not in headers:
        return
    one, other = (_open(headers[name].file).get_tensor(name) for name in (layout.head, embedding))
    if one.shape != other.shape or not all(torch.equal(a, b.to(a.dtype)) for a, b in zip(one, other)):
        raise CheckpointError(
            f"{where}: config.json ties the output to {embedding}, and the weights hold another {layout.head}; "
            "allowed: the same numbers, or no tie in config.json"
        )
