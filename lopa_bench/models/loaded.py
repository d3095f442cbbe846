"""A model ready for a run: network, tokenizer, vocabulary, and what the records say of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch

from decoders.types import Vocabulary
from lopa_bench.errors import CheckpointError
from lopa_bench.models.checkpoint.check import config_of
from lopa_bench.models.checkpoint.folders import locate
from lopa_bench.models.checkpoint.loader import load_model
from lopa_bench.models.config import ModelConfig
from lopa_bench.models.device import dtype_name, pick_device, pick_dtype, set_threads
from lopa_bench.models.kept import Keep, anew
from lopa_bench.models.network.attention import Attention
from lopa_bench.models.network.static import Network, StaticSteps
from lopa_bench.models.network.transformer import Transformer
from lopa_bench.models.quantized import check_quantizable, quantize
from lopa_bench.models.text.ends import end_ids
from lopa_bench.models.text.tokenizers import Codec, codec_for, load_tokenizer
from lopa_bench.settings.backend import LocalSettings
from lopa_bench.settings.model import ModelSettings
from tasks.types import Prompt


@dataclass
class LoadedModel:
    """A network with what turns prompts into ids and ids into text. `dtype`: how its numbers are held, in words."""

    network: Network
    codec: Codec
    vocabulary: Vocabulary
    device: str
    dtype: str

    def encode(self, prompt: Prompt) -> list[int]:
        return self.codec.encode(prompt)

    def decode(self, ids: Sequence[int]) -> str:
        return self.codec.decode(ids)


def count_parameters(config: ModelConfig) -> int:
    """How many numbers a network holds; none is made."""
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in Transformer(config).parameters())


@dataclass(frozen=True)
class Opened:
    """The small files of a checkpoint, read and checked; its weights are not loaded yet."""

    folder: Path
    lora: Path | None
    config: ModelConfig
    codec: Codec
    vocabulary: Vocabulary


def open_checkpoint(model: ModelSettings) -> Opened:
    """Reads everything of a configured model but the weights. Raises CheckpointError."""
    assert model.path is not None
    folder = locate(model.path, model.revision)
    config = config_of(model, folder)
    codec = codec_for(model, load_tokenizer(folder), config.bos_id, config.vocab_size)
    ends = end_ids(model.end_ids, config.end_ids, codec, config.vocab_size, folder)
    if config.mask_id in ends:
        raise CheckpointError(f"{folder}: the mask token {config.mask_id} ends a text; allowed: other end tokens")
    lora = locate(model.lora, model.lora_revision) if model.lora else None
    return Opened(folder, lora, config, codec, Vocabulary(config.mask_id, tuple(ends), config.vocab_size))


def check_room(opened: Opened, gen_length: int) -> None:
    """Raises CheckpointError where the checkpoint's positions have no room for a prompt and `gen_length` tokens."""
    positions = opened.config.max_positions
    if gen_length >= positions:
        raise CheckpointError(
            f"decoder.gen_length={gen_length} leaves no room for a prompt in the {positions} positions of "
            f"{opened.folder / 'config.json'}; allowed: at most {positions - 1}"
        )


def check_prompts(opened: Opened, prompt_ids: Mapping[int, Sequence[int]]) -> None:
    """Raises CheckpointError for a prompt, by problem index, with a mask in it: it would be filled like the answer."""
    mask_id = opened.config.mask_id
    for index, ids in prompt_ids.items():
        if mask_id in ids:
            token = opened.codec.tokenizer.decode([mask_id])
            raise CheckpointError(f"the prompt of problem {index} holds the mask token {token} (id {mask_id})")


def load(
    model: ModelSettings, backend: LocalSettings, batch: int = 1, opened: Opened | None = None, keep: Keep = anew
) -> LoadedModel:
    """Loads a model as configured, for calls of up to `batch` samples; its network as `keep` says, which may have it
    from an earlier run. Raises CheckpointError, and BackendError for a compiler that is not here.
    """
    device = pick_device(backend.device)
    dtype = pick_dtype(model.dtype, device)
    opened = opened or open_checkpoint(model)
    if model.quantize is not None:
        check_quantizable(model.quantize, opened.config)
    network: Transformer = keep(partial(_network, model, opened, dtype, device))
    set_threads(network, backend.threads, batch)
    for module in network.modules():
        if isinstance(module, Attention):
            module.kernel = backend.attention
    steps = network if backend.compile == "none" else StaticSteps(network, backend.compile)
    numbers = " ".join(filter(None, [dtype_name(dtype), model.quantize]))
    return LoadedModel(steps, opened.codec, opened.vocabulary, str(device), numbers)


def _network(model: ModelSettings, opened: Opened, dtype: torch.dtype, device: torch.device) -> Transformer:
    network = load_model(opened.folder, dtype, device, opened.lora, max_length=model.max_length)
    if model.quantize is not None:
        quantize(network, model.quantize)
    return network
