"""The checkpoint that a run asks for."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lopa_bench.errors import ConfigError


@dataclass
class ModelSettings:
    """A checkpoint and what it was trained for (one YAML each in conf/model).

    `path`: "embedded:<name>", a folder, or a Hub id. `lora`: a PEFT adapter folder or Hub id, merged at load.
    `block_size`, `attention`, `gen_length`: what the decoders take by default with this model; `attention` is the one
    inside the window of lookahead branches. `grid`: where blocks are counted from, "prompt" or "absolute" (position 0,
    the prompt inside them); null: as the checkpoint's family does.
    `layout`: dream, llada, or causal (autoregressive). `chat_template_kwargs`: further variables of the chat template.
    `max_length`: prompt and generation together. `end_ids`: the ids that end a text; null: those that the checkpoint's
    files name. `toy` marks models whose numbers say nothing about 7B models.
    """

    name: str = "mini"
    path: str | None = None
    revision: str | None = None
    lora: str | None = None
    lora_revision: str | None = None
    layout: str | None = None
    dtype: str = "auto"
    max_length: int = 2048
    gen_length: int = 512
    block_size: int = 32
    attention: str = "full"
    grid: str | None = None
    add_bos: bool = False
    end_ids: list[int] | None = None
    chat_template_kwargs: dict[str, Any] = field(default_factory=dict)
    toy: bool = False


def check_model_path(model: ModelSettings) -> None:
    """A model needs a path; a path that looks like a folder must be one."""
    if not model.path:
        raise ConfigError(f"model.path is not set: model={model.name} needs a checkpoint folder or a Hub id")
    for name, path in (("model.path", model.path), ("model.lora", model.lora)):
        looks_local = path is not None and (path.startswith((".", "/", "~")) or path.count("/") != 1)
        if (
            path is not None
            and looks_local
            and not path.startswith("embedded:")
            and not Path(path).expanduser().is_dir()
        ):
            raise ConfigError(
                f"{name}={path} is no folder; allowed: a checkpoint folder, or a Hub id such as owner/name"
            )
