"""W8A8: the matrices of the layers in 8 bits, a scale for each output; their inputs in 8 bits, a scale for each token.

By torchao, an optional package. Weights are rounded once, when they are loaded; inputs at every product, token by
token, so that neither rows nor samples of a call change each other. Embedding, head, norms, attention, keys and values
stay in the model's own dtype.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from lopa_bench.errors import CheckpointError
from lopa_bench.models.config import ModelConfig
from lopa_bench.models.network.transformer import Transformer

PROBE = 4  # tokens of the call that shows whether a device has the products


def check_quantizable(how: str, config: ModelConfig) -> None:
    """Raises CheckpointError, before weights are read, for a network that is not held in 8 bits, or without torchao."""
    if config.experts is not None:
        raise CheckpointError(
            f"model.quantize={how} holds the matrices of dense layers, and this network has a mixture of experts; "
            "allowed: null"
        )
    _scheme(how)


def quantize(network: Transformer, how: str) -> None:
    """Puts the layers' matrices into 8 bits, in place. Raises CheckpointError where the device has no such products."""
    with _quietly():
        from torchao.quantization import quantize_

        quantize_(network.layers, _scheme(how), filter_fn=lambda module, name: isinstance(module, nn.Linear))
    tokens_RW = torch.zeros(1, PROBE, dtype=torch.int64, device=network.embed.weight.device)
    try:
        with torch.inference_mode():
            network.hidden(tokens_RW)
    except Exception as error:  # each device says in its own way what it lacks
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise CheckpointError(
            f"model.quantize={how} does not run on {tokens_RW.device}: {reason}; allowed: null, or another device"
        ) from None


def _scheme(how: str) -> Any:
    """Torchao's name for it."""
    assert how == "w8a8"
    try:
        with _quietly():
            from torchao.quantization import Int8DynamicActivationInt8WeightConfig
    except ImportError as error:
        raise CheckpointError(
            f"model.quantize={how} needs the package torchao, 0.18 or newer ({error}); allowed: null, or "
            "pip install 'lopa-bench[quantize]'"
        ) from None
    return Int8DynamicActivationInt8WeightConfig()


@contextmanager
def _quietly() -> Iterator[None]:
    """Torchao warns of kernels that it brings for other devices than this one."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)
