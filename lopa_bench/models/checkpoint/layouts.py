"""The families that load here, and which of them a checkpoint's config.json belongs to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from lopa_bench.errors import CheckpointError
from lopa_bench.models.checkpoint.families import dense, mixtures
from lopa_bench.models.checkpoint.families.dense import DREAM, LLADA
from lopa_bench.models.checkpoint.families.layout import Layout
from lopa_bench.models.checkpoint.families.reading import model_config
from lopa_bench.models.checkpoint.files import tensor_names
from lopa_bench.models.checkpoint.keys import Keys, read_json
from lopa_bench.models.config import ModelConfig

__all__ = ["DREAM", "LAYOUTS", "LLADA", "Layout", "layout_for", "read_config"]

# Of two with the same model_type, the one that tells itself apart by a key stands first.
LAYOUTS: Mapping[str, Layout] = {
    layout.name: layout
    for layout in (
        *(dense.DREAM_REASONER, DREAM, mixtures.LLADA_MOE, LLADA, mixtures.LLADA2, dense.SDAR, mixtures.SDAR_MOE),
        *(dense.FAST_DLLM_V2, dense.QWEN2, dense.A2D_QWEN2, dense.A2D_QWEN3, dense.A2D_LLAMA),
    )
}


def layout_for(raw: Mapping[str, Any], folder: Path) -> Layout:
    """The layout of a folder with this config.json: by its model_type and, within one, by its keys or the names of its
    weights. Raises CheckpointError.
    """
    for layout in LAYOUTS.values():
        if layout.takes(raw, partial(tensor_names, folder)):
            return layout
    known = ", ".join(dict.fromkeys(name for layout in LAYOUTS.values() for name in layout.model_types))
    where = folder / "config.json"
    raise CheckpointError(f"{where}: model_type {raw.get('model_type')!r} is not supported; supported: {known}")


def read_config(folder: Path) -> tuple[Layout, ModelConfig]:
    """Layout and sizes from config.json, the end ids of generation_config.json added. Raises CheckpointError.

    The other settings of generation_config.json are those of the publisher's own generate(). The mask is the
    tokenizer's where config.json names none.
    """
    where = str(folder / "config.json")
    raw = read_json(folder / "config.json")
    layout = layout_for(raw, folder)
    mask_id = None if raw.get("mask_token_id") is not None else _mask_of_tokenizer(folder)
    config = model_config(layout, raw, where, mask_id)
    if not (folder / "generation_config.json").exists():
        return layout, config
    generation = Keys(read_json(folder / "generation_config.json"), str(folder / "generation_config.json"))
    if generation.get("mask_token_id") not in (None, config.mask_id):
        generation.refuse("mask_token_id", f"null or the {config.mask_id} of config.json")
    ends = (*config.end_ids, *generation.tokens("eos_token_id", config.vocab_size))
    if config.mask_id in ends:
        generation.refuse("eos_token_id", f"another id than mask_token_id={config.mask_id}")
    return layout, replace(config, end_ids=tuple(dict.fromkeys(ends)))


def _mask_of_tokenizer(folder: Path) -> int | None:
    """The id of the mask token that the tokenizer's files name, or None."""
    named = [
        read_json(path)
        for name in ("tokenizer_config.json", "special_tokens_map.json")
        if (path := folder / name).exists()
    ]
    token = next((_text(file["mask_token"]) for file in named if file.get("mask_token")), None)
    if token is None:
        return None
    added: Any = named[0].get("added_tokens_decoder")
    if isinstance(added, dict):
        for number, entry in added.items():
            if _text(entry) == token and number.isdecimal():
                return int(number)
    path = folder / "tokenizer.json"
    tokens: Any = read_json(path).get("added_tokens") if path.exists() else None
    entries = tokens if isinstance(tokens, list) else []
    return next((entry.get("id") for entry in entries if isinstance(entry, dict) and _text(entry) == token), None)


def _text(token: Any) -> Any:
    """A token as it is spelled: some files write it alone, some with its settings."""
    return token.get("content") if isinstance(token, dict) else token
