"""Which ids end a text. No publisher's file alone is complete: each names some of them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lopa_bench.errors import CheckpointError
from lopa_bench.models.text.tokenizers import Codec

ANSWER = "ANSWER"  # no template writes this by itself


def end_ids(told: Sequence[int] | None, configured: Sequence[int], codec: Codec, size: int, folder: Path) -> list[int]:
    """The ids that end a text of a vocabulary of `size`: those that were `told` (model.end_ids); else those of
    config.json and generation_config.json (`configured`), of the tokenizer, and of the token that closes the
    assistant's turn in the chat template.

    Raises CheckpointError if there are none, or one is outside the vocabulary.
    """
    if told is not None:
        if not told or not all(0 <= one < size for one in told):
            raise CheckpointError(
                f"model.end_ids={list(told)} is not allowed; allowed: null, or ids from 0 to {size - 1}"
            )
        return list(dict.fromkeys(told))
    named = [one for one in (codec.tokenizer.eos_token_id, closing_id(codec)) if one is not None]
    for one in (*configured, *named):
        if not 0 <= one < size:
            raise CheckpointError(f"{folder}: the end token {one} is outside the vocabulary; allowed: 0 to {size - 1}")
    found = list(dict.fromkeys([*_without_stale(configured, named, codec.tokenizer, folder), *named]))
    if not found:
        raise CheckpointError(
            f"{folder} names no end token: eos_token_id of config.json and generation_config.json, the tokenizer's "
            "eos_token and its chat template are empty; allowed: model.end_ids=[ID]"
        )
    return found


def _without_stale(configured: Sequence[int], named: Sequence[int], tokenizer: Any, folder: Path) -> list[int]:
    """Without ids that the tokenizer reads as ordinary text, if it names ends of its own: they are left over from
    another vocabulary, and would cut every text that has that piece.
    """
    special = special_ids(tokenizer)
    stale = [one for one in configured if named and one not in special]
    for one in stale:
        print(
            f"note: {folder}: eos_token_id {one} is {tokenizer.decode([one])!r}, ordinary text of the tokenizer, and "
            f"does not count as an end token; model.end_ids=[{one}, ...] would make it one",
            file=sys.stderr,
        )
    return [one for one in configured if one not in stale]


def closing_id(codec: Codec) -> int | None:
    """The special token right behind an assistant's answer in the chat template, or None."""
    if not codec.tokenizer.chat_template:
        return None
    messages = [{"role": "user", "content": "?"}, {"role": "assistant", "content": ANSWER}]
    _, found, behind = codec.apply_template(messages).rpartition(ANSWER)
    ids = codec.ids_of(behind.lstrip()) if found else []
    return ids[0] if ids and ids[0] in special_ids(codec.tokenizer) else None


def special_ids(tokenizer: Any) -> set[int]:
    """Ids of tokens that no text is split into: added ones, and those with a role."""
    return {*tokenizer.added_tokens_decoder, *tokenizer.all_special_ids}
