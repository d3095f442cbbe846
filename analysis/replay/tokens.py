"""Token ids as text, from the tokenizer files beside a model; no model is loaded and nothing is downloaded."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lopa_bench.models.checkpoint.folders import EMBEDDED, is_embedded
from lopa_bench.records.runs import Run

FILES = ("tokenizer.json", "vocab.json", "merges.txt", "tokenizer_config.json")
TokenText = Callable[[int], str]


def token_text(run: Run) -> TokenText | None:
    """What a token looks like; None when this machine has no tokenizer of the run's model."""
    files = _files(run.row["model_path"])
    tokenizer = _load(files)
    if tokenizer is None:
        return None
    added = _added(files.get("tokenizer_config.json"))

    def text(token: int) -> str:
        if token in added:
            return added[token]
        decoded = tokenizer.decode([token], skip_special_tokens=False)
        return str(tokenizer.id_to_token(token) or f"⟨{token}⟩") if not decoded or "\ufffd" in decoded else str(decoded)

    return text


def _files(model_path: str | None) -> dict[str, Path]:
    if not model_path:
        return {}
    folder = Path(os.path.expanduser(model_path))
    if is_embedded(model_path):
        folder = EMBEDDED / model_path.removeprefix("embedded:")
    if folder.is_dir():
        found = {name: folder / name for name in FILES}
    else:
        found = {name: path for name in FILES if (path := _cached(model_path, name)) is not None}
    return {name: path for name, path in found.items() if path.is_file()}


def _cached(repository: str, name: str) -> Path | None:
    """A file of the Hub's local cache."""
    from huggingface_hub import try_to_load_from_cache

    try:
        found = try_to_load_from_cache(repository, name)
    except ValueError:  # not the form of a Hub id
        return None
    return Path(found) if isinstance(found, str) else None


def _load(files: dict[str, Path]) -> Any:
    import tokenizers

    if "tokenizer.json" in files:
        return tokenizers.Tokenizer.from_file(str(files["tokenizer.json"]))
    if "vocab.json" in files and "merges.txt" in files:  # Qwen2's byte-level BPE, which Dream uses
        model = tokenizers.models.BPE.from_file(str(files["vocab.json"]), str(files["merges.txt"]))
        tokenizer = tokenizers.Tokenizer(model)
        tokenizer.decoder = tokenizers.decoders.ByteLevel()
        return tokenizer
    return None


def _added(path: Path | None) -> dict[int, str]:
    """The special tokens that vocab.json does not hold."""
    if path is None:
        return {}
    entries = json.loads(path.read_text(encoding="utf-8")).get("added_tokens_decoder") or {}
    return {int(token): str(entry["content"]) for token, entry in entries.items()}
