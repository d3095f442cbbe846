"""The checkpoint that a run asks for."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

from decoders.allowed import choice, number, refused
from lopa_bench.errors import ConfigError
from lopa_bench.settings.values import check_values

# The families of published checkpoints, as lopa_bench.models.checkpoint.layouts names them.
LAYOUTS = (
    *("a2d_llama", "a2d_qwen2", "a2d_qwen3", "dream", "dream_reasoner", "fast_dllm_v2", "llada", "llada2_moe"),
    *("llada_moe", "qwen2", "sdar", "sdar_moe"),
)
BY_TRANSFORMERS = ("causal", "diffusion_gemma")  # their networks are not ours


@dataclass
class ModelSettings:
    """A checkpoint and what it was trained for (one YAML each in conf/model).

    `path`: "embedded:<name>", a folder, or a Hub id. `lora`: a PEFT adapter folder or Hub id, merged at load.
    `block_size`, `attention`, `gen_length`: what the decoders take by default with this model; `attention` is the one
    inside the window of lookahead branches. `grid`: where blocks are counted from, "prompt" or "absolute" (position 0,
    the prompt inside them); null: as the checkpoint's family does.
    `layout`: a published family (LAYOUTS), causal (autoregressive), or diffusion_gemma; a checkpoint of another is
    refused. `chat_template_kwargs`: further variables of the chat template.
    `quantize`: w8a8 holds the layers' matrices and their inputs in 8 bits (docs/models.md).
    `max_length`: prompt and generation together. `end_ids`: the ids that end a text; null: those that the checkpoint's
    files name. `toy` marks models whose numbers say nothing about 7B models.
    """

    name: str = "mini"
    path: str | None = None
    revision: str | None = None
    lora: str | None = None
    lora_revision: str | None = None
    layout: str | None = choice(None, *LAYOUTS, *BY_TRANSFORMERS)
    dtype: str = choice("auto", "auto", "float32", "bfloat16", "float16")
    quantize: str | None = choice(None, "w8a8")
    max_length: int = number(2048, 2, 2**24)
    gen_length: int = number(512, 1, 65536)
    block_size: int = number(32, 1, 65536)
    attention: str = choice("full", "full", "block_causal")
    grid: str | None = choice(None, "prompt", "absolute")
    add_bos: bool = False
    end_ids: list[int] | None = None
    chat_template_kwargs: dict[str, Any] = field(default_factory=dict)
    toy: bool = False

    def check(self) -> None:
        """Raises ConfigError for a value that is not allowed: a path that looks like a folder must be one."""
        check_values("model", self)
        ids = self.end_ids
        if ids is not None and not (ids and all(type(one) is int and one >= 0 for one in ids)):
            raise ConfigError(refused("model.end_ids", ids, "a list of ids of 0 and above, or null"))
        if not self.path:
            raise ConfigError(f"model.path is not set: model={self.name} needs a checkpoint folder or a Hub id")
        if self.quantize is not None and self.layout in BY_TRANSFORMERS:
            raise ConfigError(
                f"model.quantize={self.quantize} holds networks of this project, and model.layout={self.layout} is one "
                "of transformers; allowed here: null"
            )
        for name, path in (("model.path", self.path), ("model.lora", self.lora)):
            if path and path.strip() and _looks_local(path) and not os.path.isdir(os.path.expanduser(path)):
                raise ConfigError(
                    f"{name}={path} is no folder; allowed: a checkpoint folder, or a Hub id such as owner/name"
                )


def _looks_local(path: str) -> bool:
    return not path.startswith("embedded:") and (path.startswith((".", "/", "~")) or path.count("/") != 1)
