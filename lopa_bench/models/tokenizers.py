"""Tokenizers of checkpoint folders, without running any code of theirs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lopa_bench.models.errors import CheckpointError
from tasks.base import Prompt


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


@dataclass(frozen=True)
class Codec:
    """Prompts to ids, ids to text. `start_id` is put in front of every prompt that does not begin with it."""

    tokenizer: Any
    start_id: int | None = None
    template: Mapping[str, Any] = field(default_factory=dict)  # further variables of the chat template

    def render(self, prompt: Prompt) -> str:
        """The prompt as text: the chat template over messages, or plain text."""
        if prompt.messages is None:
            return prompt.text
        goes_on = prompt.messages[-1]["role"] == "assistant"  # the beginning of the answer is given
        return self.tokenizer.apply_chat_template(
            list(prompt.messages),
            add_generation_prompt=not goes_on,
            continue_final_message=goes_on,
            tokenize=False,
            **self.template,
        )

    def encode(self, prompt: Prompt) -> list[int]:
        """The ids of a prompt, with exactly one start token where the model wants one."""
        ids = self.ids_of(self.render(prompt))
        return ids if self.start_id is None or ids[:1] == [self.start_id] else [self.start_id, *ids]

    def text(self, prompt: Prompt) -> str:
        """The prompt for a server that puts the start token in front by itself."""
        return self.render(prompt).removeprefix(self.tokenizer.bos_token or "")

    def ids_of(self, text: str) -> list[int]:
        return list(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    def decode(self, ids: Sequence[int]) -> str:
        return self.tokenizer.decode(list(ids), skip_special_tokens=True)
