"""Tokenizers of checkpoint folders, without running any code of theirs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lopa_bench.errors import CheckpointError
from lopa_bench.models.checkpoint.keys import read_json
from lopa_bench.settings.model import ModelSettings
from tasks.types import Prompt


def load_tokenizer(folder: Path) -> Any:
    """The `transformers` tokenizer of a folder: tokenizer.json, or vocab.json + merges.txt (Qwen2's byte-level BPE,
    which is what Dream's own tokenizer class is). Raises CheckpointError for files that are missing or broken.
    """
    import transformers

    if (folder / "tokenizer.json").exists():
        kind: Any = transformers.PreTrainedTokenizerFast
    elif (folder / "vocab.json").exists() and (folder / "merges.txt").exists():
        kind = transformers.Qwen2Tokenizer
    else:
        raise CheckpointError(f"{folder}: no tokenizer.json, and no vocab.json with merges.txt")
    for name in ("tokenizer.json", "vocab.json", "tokenizer_config.json", "special_tokens_map.json"):
        if (folder / name).exists():
            read_json(folder / name)
    try:
        return kind.from_pretrained(folder, clean_up_tokenization_spaces=False)
    except Exception as error:  # the Rust library raises bare exceptions
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise CheckpointError(f"{folder}: its tokenizer files cannot be read: {reason}") from None


def start_id(wanted: bool, tokenizer: Any, configured: int | None) -> int | None:
    """The id that model.add_bos puts in front of prompts: the tokenizer's, as in the released scripts; else that of
    config.json. Raises CheckpointError if it is wanted and neither has one.
    """
    if not wanted:
        return None
    found = configured if tokenizer.bos_token_id is None else tokenizer.bos_token_id
    if found is None:
        raise CheckpointError(
            f"model.add_bos=true: {tokenizer.name_or_path} has no start token, neither bos_token of its tokenizer nor "
            "bos_token_id of config.json; allowed: false"
        )
    return found


def codec_for(model: ModelSettings, tokenizer: Any, bos_id: int | None, size: int | None = None) -> Codec:
    """The codec of a configured model; `bos_id` is that of config.json. Raises CheckpointError."""
    return Codec(tokenizer, start_id(model.add_bos, tokenizer, bos_id), model.chat_template_kwargs, size)


@dataclass(frozen=True)
class Codec:
    """Prompts to ids, ids to text. `start_id` is put in front of every prompt that does not begin with it; ids from
    `size` on have no place in the model.
    """

    tokenizer: Any
    start_id: int | None = None
    template: Mapping[str, Any] = field(default_factory=dict)  # further variables of the chat template
    size: int | None = None

    def render(self, prompt: Prompt) -> str:
        """The prompt as text: the chat template over messages, or plain text. Raises CheckpointError."""
        if prompt.messages is None:
            return prompt.text
        goes_on = prompt.messages[-1]["role"] == "assistant"  # the beginning of the answer is given
        return self.apply_template(prompt.messages, add_generation_prompt=not goes_on, continue_final_message=goes_on)

    def apply_template(self, messages: Sequence[Mapping[str, str]], **how: bool) -> str:
        """Messages as text. Raises CheckpointError for a tokenizer without a chat template, or with a broken one."""
        try:
            return self.tokenizer.apply_chat_template(list(messages), tokenize=False, **how, **self.template)
        except Exception as error:  # templates are programs: they raise whatever they like
            where = self.tokenizer.name_or_path
            if not self.tokenizer.chat_template:
                raise CheckpointError(
                    f"the tokenizer of {where} has no chat template, which prompts of several turns need; allowed: a "
                    "task.prompt_style of plain text, or a folder with chat_template.jinja"
                ) from None
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise CheckpointError(f"the chat template of {where} fails: {reason}") from None

    def encode(self, prompt: Prompt) -> list[int]:
        """The ids of a prompt, with exactly one start token where the model wants one. Raises CheckpointError."""
        ids = self.ids_of(self.render(prompt))
        ids = ids if self.start_id is None or ids[:1] == [self.start_id] else [self.start_id, *ids]
        if self.size is not None and max(ids, default=0) >= self.size:
            raise CheckpointError(
                f"the tokenizer of {self.tokenizer.name_or_path} gives the id {max(ids)}, the model's vocab_size is "
                f"{self.size}: they do not belong together"
            )
        return ids

    def text(self, prompt: Prompt) -> str:
        """The prompt for a server that puts the start token in front by itself."""
        return self.render(prompt).removeprefix(self.tokenizer.bos_token or "")

    def ids_of(self, text: str) -> list[int]:
        return list(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    def decode(self, ids: Sequence[int]) -> str:
        return self.tokenizer.decode(list(ids), skip_special_tokens=True)
