"""A model ready for a run: network, tokenizer, vocabulary, and what the records say of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from decoders.types import Vocabulary
from lopa_bench.checksums import weights_sha256
from lopa_bench.config import BackendSettings, ModelSettings
from lopa_bench.models.errors import CheckpointError
from lopa_bench.models.folders import locate
from lopa_bench.models.loader import load_model, read_config
from lopa_bench.models.tokenizers import load_tokenizer
from lopa_bench.models.transformer import Transformer
from tasks.base import Prompt

SMALL = 50_000_000  # parameters below which one CPU thread is the default ...
PACKED = 8  # ... unless this many samples share a call
TORCH_THREADS = torch.get_num_threads()


@dataclass
class ServedModel:
    """`sha256` covers the weight files, the adapter's included."""

    network: Transformer
    tokenizer: Any
    vocabulary: Vocabulary
    folder: Path
    sha256: str
    device: str
    dtype: str
    add_bos: bool

    def encode(self, prompt: Prompt) -> list[int]:
        """Prompt ids: the chat template over messages, or plain text; with the start token where the model wants it."""
        if prompt.messages is not None:
            goes_on = prompt.messages[-1]["role"] == "assistant"  # the beginning of the answer is given
            text = self.tokenizer.apply_chat_template(
                list(prompt.messages), add_generation_prompt=not goes_on, continue_final_message=goes_on, tokenize=False
            )
        else:
            text = prompt.text
        ids = list(self.tokenizer(text, add_special_tokens=False)["input_ids"])
        bos = self.network.config.bos_id
        if self.add_bos and bos is not None and ids[:1] != [bos]:
            ids.insert(0, bos)
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        return self.tokenizer.decode(list(ids), skip_special_tokens=True)


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


def serve(model: ModelSettings, backend: BackendSettings, batch: int = 1) -> ServedModel:
    """Loads a model as configured, for calls of up to `batch` samples. Raises CheckpointError."""
    assert model.path is not None
    device = pick_device(backend.device)
    dtype = pick_dtype(model.dtype, device)
    folder = locate(model.path, model.revision)
    layout, config = read_config(folder)
    if model.layout and layout.name != model.layout:
        raise CheckpointError(f"{folder} has the {layout.name} layout, model.layout={model.layout} was asked for")
    lora = locate(model.lora, model.lora_revision) if model.lora else None
    network = load_model(folder, dtype, device, lora, max_length=model.max_length)
    torch.set_num_threads(backend.threads or default_threads(network, batch, TORCH_THREADS))
    if backend.compile:
        network.compile(dynamic=True)
    vocabulary = Vocabulary(config.mask_id, config.end_ids, config.vocab_size)
    tokenizer = load_tokenizer(folder)
    return ServedModel(
        network,
        tokenizer,
        vocabulary,
        folder,
        weights_sha256(folder, lora),
        str(device),
        str(dtype).removeprefix("torch."),
        model.add_bos,
    )
