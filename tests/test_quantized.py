"""W8A8: close to the network that it was made of, and the same numbers whatever shares the call."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch

from lopa_bench.errors import CheckpointError, ConfigError
from lopa_bench.models.checkpoint.folders import locate
from lopa_bench.models.checkpoint.layouts import read_config
from lopa_bench.models.checkpoint.loader import load_model
from lopa_bench.models.loaded import load
from lopa_bench.models.network.segments import Segment
from lopa_bench.models.network.transformer import Transformer
from lopa_bench.models.quantized import check_quantizable, quantize
from lopa_bench.settings.backend import LocalSettings, ServerSettings
from lopa_bench.settings.config import Config
from lopa_bench.settings.model import ModelSettings
from lopa_bench.settings.unread import check_read

MODELS = Path(__file__).parent / "golden" / "models"
needs_torchao = pytest.mark.skipif(find_spec("torchao") is None, reason="torchao is not installed")


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def mini() -> Transformer:
    return load_model(locate("embedded:mini"), torch.float32, torch.device("cpu"))


@needs_torchao
@torch.inference_mode()
def test_a_quantised_network_is_near_its_origin_and_not_it() -> None:
    network, tokens_RW = mini(), torch.arange(5, 85).view(2, 40)
    before = network.logits(network.hidden(tokens_RW)).log_softmax(-1)
    whole = network.embed.weight.clone()
    quantize(network, "w8a8")
    after = network.logits(network.hidden(tokens_RW)).log_softmax(-1)
    kl = (before.exp() * (before - after)).sum(-1).mean()
    assert 1e-5 < kl < 0.01
    assert torch.equal(network.embed.weight, whole)
    assert {layer.mlp.down_proj.weight.qdata.dtype for layer in network.layers} == {torch.int8}


@needs_torchao
@torch.inference_mode()
def test_rows_and_samples_of_a_call_do_not_change_each_other() -> None:
    network = mini()
    quantize(network, "w8a8")
    one, other = torch.full((2, 8), 9), torch.arange(5, 21).view(1, 16)
    alone = network([Segment(one)])
    together = network([Segment(one), Segment(other)])
    torch.testing.assert_close(together[:16], alone, atol=1e-5, rtol=1e-5)


@needs_torchao
def test_the_numbers_of_a_loaded_model_are_said_in_words() -> None:
    settings = ModelSettings(path="embedded:mini", quantize="w8a8")
    assert load(settings, LocalSettings(device="cpu")).dtype == "float32 w8a8"
    assert load(ModelSettings(path="embedded:mini"), LocalSettings(device="cpu")).dtype == "float32"


def test_what_is_not_held_in_8_bits_is_refused_before_weights_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CheckpointError, match=r"this network has a mixture of experts; allowed: null"):
        check_quantizable("w8a8", read_config(MODELS / "sdar_moe_a")[1])
    with pytest.raises(ConfigError, match=r"model.layout=causal is one of transformers; allowed here: null"):
        ModelSettings(path="embedded:mini_ar", layout="causal", quantize="w8a8").check()
    with pytest.raises(ConfigError, match=r"model.quantize=int4 is not allowed; allowed: w8a8, or null"):
        ModelSettings(path="embedded:mini", quantize="int4").check()
    served: Any = ServerSettings(name="sglang", url="http://127.0.0.1:1", api="generate")
    with pytest.raises(ConfigError, match=r"model.quantize=w8a8 has no meaning here: it is read with backend=local"):
        check_read(Config(backend=served, model=ModelSettings(path="embedded:mini", quantize="w8a8")))
    monkeypatch.setitem(__import__("sys").modules, "torchao.quantization", None)
    with pytest.raises(CheckpointError, match=r"needs the package torchao.*allowed: null, or pip install"):
        check_quantizable("w8a8", read_config(locate("embedded:mini"))[1])
