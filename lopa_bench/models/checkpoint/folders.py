"""From a model's setting to a folder on this machine."""

from __future__ import annotations

import os
from pathlib import Path

from lopa_bench.errors import CheckpointError

EMBEDDED = Path(__file__).parents[1] / "mini" / "weights"
TEXTS = ["*.json", "*.txt", "*.model", "*.jinja"]  # tokenizer, chat template, sizes: they decide ids as weights do
WEIGHTS = ["*.safetensors"]


def is_embedded(path: str | None) -> bool:
    return path is not None and path.startswith("embedded:")


def locate(path: str, revision: str | None = None, weights: bool = True) -> Path:
    """The folder of "embedded:<name>", of a local path, or of a Hub id (downloaded on first use, but no code, and
    no weights if `weights` is false).

    Raises CheckpointError when there is no such model, or the Hub cannot be reached.
    """
    if is_embedded(path):
        folder = EMBEDDED / path.removeprefix("embedded:")
        if not folder.is_dir():
            known = ", ".join(sorted(f"embedded:{item.name}" for item in EMBEDDED.iterdir() if item.is_dir()))
            raise CheckpointError(f"{path} is no embedded model; allowed: {known}")
        return folder
    local = os.path.expanduser(path)
    if os.path.isdir(local):
        return Path(local)
    from huggingface_hub import snapshot_download

    patterns = TEXTS + WEIGHTS if weights else TEXTS

    try:
        return Path(snapshot_download(path, revision=revision, allow_patterns=patterns, etag_timeout=10))
    except Exception as error:  # the Hub's client raises many kinds; all mean that the model is not there
        reason = str(error).strip().split("\n")[0]
        raise CheckpointError(f"{path} is no folder here, and the Hub did not give it: {reason}") from None
