"""Tokenizers of checkpoint folders, without running any code of theirs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lopa_bench.models.errors import CheckpointError


def load_tokenizer(folder: Path) -> Any:
    """The `transformers` tokenizer of a folder: tokenizer.json, or vocab.json + merges.txt (Qwen2's byte-level BPE,
    which is what Dream's own tokenizer class is).
    """
    import transformers

    if (folder / "tokenizer.json").exists():
        kind: Any = transformers.PreTrainedTokenizerFast
    elif (folder / "vocab.json").exists() and (folder / "merges.txt").exists():
        kind = transformers.Qwen2Tokenizer
    else:
        raise CheckpointError(f"{folder}: no tokenizer.json, and no vocab.json with merges.txt")
    return kind.from_pretrained(folder, clean_up_tokenization_spaces=False)
