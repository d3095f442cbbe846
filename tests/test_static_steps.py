"""Steps of static shape: what is filled up changes neither numbers nor ids, and makes few shapes of many."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from decoders import DecoderConfig, Vocabulary, decode, make_decoder
from decoders.types import Readout, Request
from lopa_bench.backends.local import LocalBackend
from lopa_bench.errors import BackendError, ConfigError
from lopa_bench.models.checkpoint.folders import locate
from lopa_bench.models.checkpoint.loader import load_model
from lopa_bench.models.network import static
from lopa_bench.models.network.segments import KVCache, Segment, block_causal_mask
from lopa_bench.models.network.static import WIDEST, Bucket, StaticSteps, bucket_of, step
from lopa_bench.models.network.transformer import Transformer
from lopa_bench.settings.backend import LocalSettings
from lopa_bench.settings.config import Config, RunSettings
from lopa_bench.settings.model import ModelSettings
from lopa_bench.settings.validate import validate

MODELS = Path(__file__).parent / "golden" / "models"
PROMPTS = [[40, 2, 9, 9, 61, 5, 33]]
CPU = torch.device("cpu")


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Of networks this small, threads that wait for each other take longer than the products."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def load(name: str) -> Transformer:
    return load_model(MODELS / name, torch.float32, CPU)


def texts(backend: LocalBackend, config: DecoderConfig, prompts: list[list[int]] = PROMPTS) -> list[Any]:
    c = backend.config
    vocabulary = Vocabulary(c.mask_id, c.end_ids, c.vocab_size)
    found = [backend.decode(decode(make_decoder(config), prompt, vocabulary)).generation for prompt in prompts]
    return [one and (one.ids, [(step.positions, step.winner) for step in one.steps]) for one in found]


def cached(network: Transformer, positions: int) -> KVCache:
    """A cache that holds a random text."""
    cache = KVCache(network.config, 300, CPU, torch.float32)
    tokens = torch.randint(4, 60, (1, positions), generator=torch.Generator().manual_seed(1))
    segment = Segment(tokens, 0, cache)
    network([segment], keep=True)
    segment.commit(0, 0, positions)
    return cache


@pytest.mark.parametrize(
    ("rows", "width", "start", "suffix", "mask"),
    [(1, 8, 0, None, None), (3, 20, 5, None, None), (2, 16, 5, (21, 37), None), (4, 16, 16, None, "blocks"),
     (3, 12, 7, None, "lengths"), (1, 200, 40, None, None)],
)  # fmt: skip
@torch.inference_mode()
def test_a_call_filled_up_has_the_numbers_of_the_call(
    rows: int, width: int, start: int, suffix: tuple[int, int] | None, mask: str | None
) -> None:
    network = load("dream_b")
    steps, cache = StaticSteps(network, "plain"), cached(network, 40)
    tokens = torch.randint(4, 60, (rows, width), generator=torch.Generator().manual_seed(0))
    beyond_RW = torch.arange(width) >= width - torch.arange(rows)[:, None]
    masks = {
        None: None,
        "blocks": block_causal_mask(torch.arange(width) // 4),
        "lengths": torch.zeros(rows, 1, width).masked_fill(beyond_RW[:, None], -torch.inf),
    }
    one, other = (Segment(tokens, start, cache, suffix, masks[mask]) for _ in range(2))
    expected, found = network([one], keep=True), steps([other], keep=True)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    assert one.window is not None
    assert other.window is not None
    for (k, v), (k_found, v_found) in zip(one.window, other.window, strict=True):
        torch.testing.assert_close(k_found, k, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(v_found, v, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", ["dream_b", "llada2_a"])
@pytest.mark.parametrize(
    "config",
    [
        DecoderConfig(k=3, gen_length=24, block_size=8),
        DecoderConfig(k=2, gen_length=24, block_size=8, attention="block_causal"),
        DecoderConfig(name="fast_dllm", gen_length=24, block_size=8, cache="dual"),
        DecoderConfig(name="fast_dllm", gen_length=24, block_size=8, cache="vicinity", prefix_look=3, after_look=5),
        DecoderConfig(name="wino", gen_length=16, block_size=8, cache="dual", tau_conf=0.05, tau_back=0.5),
        DecoderConfig(name="llada", gen_length=16, block_size=8, cfg_scale=1.5),
    ],
    ids=["lopa_full", "lopa_block_causal", "dual", "vicinity", "shadows", "guided"],
)
def test_ids_winners_and_fills_are_those_of_calls_as_they_are(name: str, config: DecoderConfig) -> None:
    network = load(name)
    assert texts(LocalBackend(StaticSteps(network, "plain"), 128), config) == texts(LocalBackend(network, 128), config)


def test_the_embedded_model_gives_the_same_texts() -> None:
    network = load_model(locate("embedded:mini"), torch.float32, CPU)
    config = DecoderConfig(k=4, gen_length=64, block_size=16, attention="block_causal")
    prompts = [[5 + (7 * i * j) % 1200 for i in range(40)] for j in (1, 2)]
    expected = texts(LocalBackend(network, 512), config, prompts)
    assert texts(LocalBackend(StaticSteps(network, "plain"), 512), config, prompts) == expected


def test_a_compiler_gives_the_same_ids() -> None:
    """Without inductor, which takes seconds a shape."""
    network, config = load("dream_a"), DecoderConfig(k=3, gen_length=24, block_size=8)
    steps = StaticSteps(network, "compile", "aot_eager")
    assert texts(LocalBackend(steps, 128), config) == texts(LocalBackend(network, 128), config)


def test_a_compiler_gets_few_shapes(monkeypatch: pytest.MonkeyPatch) -> None:
    network, seen, shapes = load("dream_a"), set(), set()
    steps = StaticSteps(network, "plain")

    def noted(*inputs: Any) -> Any:
        seen.add(tuple(one.shape for one in inputs[1:]))
        return step(*inputs)

    def bucket(segment: Segment) -> Bucket:
        shapes.add((*segment.tokens_RW.shape, segment.start))
        return bucket_of(segment)

    monkeypatch.setattr(steps, "run", noted)
    monkeypatch.setattr(static, "bucket_of", bucket)
    prompts = [[5 + i] * i for i in range(1, 9)]
    texts(LocalBackend(steps, 128), DecoderConfig(k=3, gen_length=32, block_size=8), prompts)
    assert len(seen) <= 4 < 12 < len(shapes)


def test_sizes_grow_in_steps_and_never_beyond_the_cache() -> None:
    network = load("dream_a")
    cache = KVCache(network.config, 300, CPU, torch.float32)

    def bucket(rows: int, width: int, start: int, suffix: tuple[int, int] | None = None) -> Bucket:
        return bucket_of(Segment(torch.zeros(rows, width, dtype=torch.int64), start, cache, suffix))

    assert bucket(1, 1, 0) == Bucket(1, 32, 0)
    assert bucket(2, 33, 1) == Bucket(4, 64, 256)
    assert bucket(9, 64, 257) == Bucket(12, 64, 300)
    assert bucket(4, 32, 0, (8, 40)) == Bucket(4, 32, 256)


def test_a_wide_call_and_several_samples_run_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    network = load("dream_a")
    steps = StaticSteps(network, "plain")
    monkeypatch.setattr(steps, "run", None)
    short, wide = (torch.full((1, width), 5) for width in (4, WIDEST + 1))
    steps([Segment(wide)])
    steps([Segment(short), Segment(short)])
    with pytest.raises(TypeError):
        steps([Segment(short)])


def test_the_cache_of_a_sample_that_went_wrong_is_not_used_again() -> None:
    """A mask's zero times a number that is none is none."""
    local = LocalBackend(load("dream_a"), 64)
    request = Request(np.array([[5, local.config.mask_id]]), np.array([2]), 0, Readout())

    def broken() -> Any:
        local.model.embed.weight[5] = torch.nan
        yield request

    assert local.decode(broken()).status == "non_finite"
    assert local._free == []


def test_what_cannot_run_is_refused_before_it_does(monkeypatch: pytest.MonkeyPatch) -> None:
    network = load("dream_a")
    with pytest.raises(BackendError, match=r"backend.compile=graphs captures CUDA graphs.*allowed here: none, compile"):
        StaticSteps(network, "graphs")
    with pytest.raises(BackendError, match=r"torch.compile does not work here.*allowed: none"):
        StaticSteps(network, "compile", "no_such_compiler")
    model = ModelSettings(path="embedded:mini")
    config = Config(backend=LocalSettings(compile="compile"), run=RunSettings(batch=2), model=model)
    with pytest.raises(ConfigError, match=r"run.batch=2; allowed: run.batch=1"):
        validate(config)
    with pytest.raises(BackendError, match=r"backend.compile=true is not allowed; allowed: none, graphs, compile"):
        LocalSettings(compile="true").check()
    causal = ModelSettings(path="embedded:mini_ar", layout="causal")
    with pytest.raises(BackendError, match=r"decoder=ar runs one of transformers"):
        validate(Config(decoder=DecoderConfig(name="ar"), backend=LocalSettings(compile="graphs"), model=causal))
