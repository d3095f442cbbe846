"""A model ready for a run: network, tokenizer, vocabulary, and what the records say of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from decoders.types import Vocabulary
from lopa_bench.errors import CheckpointError
from lopa_bench.models.checkpoint.check import config_of
from lopa_bench.models.checkpoint.folders import locate
from lopa_bench.models.checkpoint.loader import load_model
from lopa_bench.models.config import ModelConfig
from lopa_bench.models.network.transformer import Transformer
from lopa_bench.models.text.ends import end_ids
from lopa_bench.models.text.tokenizers import Codec, load_tokenizer, start_id
from lopa_bench.settings.backend import LocalSettings
from lopa_bench.settings.model import ModelSettings
from tasks.types import Prompt

SMALL = 50_000_000  # parameters below which one CPU thread is the default ...
PACKED = 8  # ... unless this many samples share a call
TORCH_THREADS = torch.get_num_threads()


@dataclass
class ServedModel:
    """A network with what turns prompts into ids and ids into text."""

    network: Transformer
    codec: Codec
    vocabulary: Vocabulary
    device: str
    dtype: str

    def encode(self, prompt: Prompt) -> list[int]:
        return self.codec.encode(prompt)

    def decode(self, ids: Sequence[int]) -> str:
        return self.codec.decode(ids)


def pick_device(name: str) -> torch.device:
    """`auto` takes the first accelerator there is. Raises CheckpointError for a device that is not here."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    if name.startswith("npu"):
        try:
            import torch_npu  # noqa: F401  # registers the device
        except ImportError:
            raise CheckpointError(f"backend.device={name} needs the package torch_npu") from None
    try:
        return torch.zeros(1, device=name).device
    except (RuntimeError, AssertionError) as error:
        raise CheckpointError(f"backend.device={name} is not available: {str(error).splitlines()[0]}") from None


def pick_dtype(name: str, device: torch.device) -> torch.dtype:
    """`auto` is float32 on CPU and bfloat16 elsewhere."""
    if name == "auto":
        name = "float32" if device.type == "cpu" else "bfloat16"
    return getattr(torch, name)


def default_threads(network: Transformer, batch: int, torch_threads: int) -> int:
    """One thread for a network whose products are too small to share: on a busy machine, threads that wait for each
    other at every product cost far more than a second core gives. Else, and for packed samples, torch's own choice.
    """
    parameters = sum(parameter.numel() for parameter in network.parameters())
    return 1 if parameters < SMALL and batch < PACKED else torch_threads


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
    tokenizer = load_tokenizer(folder)
    start = start_id(model.add_bos, tokenizer, config.bos_id)
    codec = Codec(tokenizer, start, model.chat_template_kwargs, config.vocab_size)
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


def serve(model: ModelSettings, backend: LocalSettings, batch: int = 1, opened: Opened | None = None) -> ServedModel:
    """Loads a model as configured, for calls of up to `batch` samples. Raises CheckpointError."""
    device = pick_device(backend.device)
    dtype = pick_dtype(model.dtype, device)
    opened = opened or open_checkpoint(model)
    network = load_model(opened.folder, dtype, device, opened.lora, max_length=model.max_length)
    torch.set_num_threads(backend.threads or default_threads(network, batch, TORCH_THREADS))
    if backend.compile:
        network.compile(dynamic=True)
    return ServedModel(network, opened.codec, opened.vocabulary, str(device), str(dtype).removeprefix("torch."))
