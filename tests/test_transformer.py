"""The network against the reference tensors, and its branches against each other."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from torch import Tensor

from lopa_bench.models import transformer as network
from lopa_bench.models.loader import load_model
from lopa_bench.models.transformer import KVCache, Segment, Transformer, block_causal_mask

MODELS = Path(__file__).parent / "golden" / "models"
CPU = torch.device("cpu")


def load(name: str) -> Transformer:
    return load_model(MODELS / name, torch.float32, CPU).eval()


class Probe:
    """The reference tensors of one checkpoint."""

    def __init__(self, name: str):
        with safe_open(MODELS / name / "probe.safetensors", "pt") as file:
            self.tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118  # no mapping
            self.prompt = int(file.metadata()["prompt_length"])
            block = int(file.metadata()["block_size"])
        length = len(self.tensors["input_ids"])
        self.blocks = torch.cat([torch.zeros(self.prompt), 1 + torch.arange(length - self.prompt) // block])

    def mask(self, mode: str, start: int = 0) -> Tensor | None:
        return None if mode == "full" else block_causal_mask(self.blocks[start:])

    def check(self, name: str, value: Tensor) -> None:
        torch.testing.assert_close(value, self.tensors[name], rtol=0, atol=1e-4)


@pytest.mark.parametrize("mode", ["full", "block_causal"])
@pytest.mark.parametrize("name", ["dream_a", "dream_b", "llada_a"])
@torch.inference_mode()
def test_golden_probe(name: str, mode: str) -> None:
    """Logits, the cache after committing the prompt, and logits on top of that cache."""
    model, probe = load(name), Probe(name)
    cache = KVCache(model.config, 64, CPU, torch.float32)
    first = Segment(probe.tensors["input_ids"][None], cache=cache, mask=probe.mask(mode))
    probe.check(f"logits_{mode}", model.logits(model([first], keep=True)))
    first.commit(0, 0, probe.prompt)
    if model.config.shifted:  # LLaDA's reference caches keys before their rotation
        for layer in range(model.config.layers):
            probe.check(f"cache_{mode}.key.{layer}", cache.k_LKPE[layer, :, : probe.prompt])
            probe.check(f"cache_{mode}.value.{layer}", cache.v_LKPE[layer, :, : probe.prompt])
    if f"logits_suffix_{mode}" in probe.tensors:
        suffix = probe.tensors["input_ids_suffix"][None]
        second = Segment(suffix, probe.prompt, cache, mask=probe.mask(mode, probe.prompt))
        probe.check(f"logits_suffix_{mode}", model.logits(model([second])))


@torch.inference_mode()
def test_branches_of_one_call_do_not_see_each_other() -> None:
    """Each row gives what it gives alone, on the shared prefix, and so does a second sample in the same call."""
    model = load("dream_a")
    generator = torch.Generator().manual_seed(0)
    cache = KVCache(model.config, 64, CPU, torch.float32)
    prompt = Segment(torch.randint(0, 90, (1, 9), generator=generator), cache=cache)
    model([prompt], keep=True)
    prompt.commit(0, 0, 9)
    rows = torch.randint(0, 90, (5, 8), generator=generator)
    other = Segment(torch.randint(0, 90, (2, 6), generator=generator))
    together = model([Segment(rows, 9, cache), other])
    for row in range(5):
        alone = model([Segment(rows[row : row + 1], 9, cache)])
        torch.testing.assert_close(together[row * 8 : row * 8 + 8], alone, rtol=0, atol=1e-5)
    torch.testing.assert_close(together[40:], model([other]), rtol=0, atol=1e-5)


@torch.inference_mode()
def test_the_fused_and_the_explicit_attention_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    model, probe = load("dream_a"), Probe("dream_a")
    ids = probe.tensors["input_ids"][None]
    explicit = {mode: model([Segment(ids, mask=probe.mask(mode))]) for mode in ("full", "block_causal")}
    monkeypatch.setattr(network, "FUSED_FROM", 0)
    for mode, expected in explicit.items():
        torch.testing.assert_close(model([Segment(ids, mask=probe.mask(mode))]), expected, rtol=0, atol=1e-5)


@torch.inference_mode()
def test_a_cached_suffix_is_seen_like_a_fed_one() -> None:
    """Dual cache: positions behind the window count as if they were in it, with the values they were computed with."""
    model = load("llada_a")
    ids = torch.arange(20)[None]
    cache = KVCache(model.config, 20, CPU, torch.float32)
    whole = Segment(ids, cache=cache)
    expected = model([whole], keep=True)
    whole.commit(0, 0, 20)
    block = Segment(ids[:, 6:12], 6, cache, suffix=(12, 20))
    torch.testing.assert_close(model([block]), expected[6:12], rtol=0, atol=1e-5)


@torch.inference_mode()
def test_the_network_equals_transformers_own_qwen2(tmp_path: Path) -> None:
    """Dream's layout is Qwen2's: with a causal mask both networks must give the same logits."""
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(0)
    theirs = Qwen2ForCausalLM(
        Qwen2Config(vocab_size=60, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
                    num_key_value_heads=2, max_position_embeddings=64, tie_word_embeddings=False)
    ).eval()  # fmt: skip
    theirs.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    theta = config.get("rope_theta") or config["rope_parameters"]["rope_theta"]
    config |= {"model_type": "Dream", "mask_token_id": 59, "rope_theta": theta}
    (tmp_path / "config.json").write_text(json.dumps(config))
    ours = load_model(tmp_path, torch.float32, CPU).eval()
    ids = torch.randint(0, 59, (2, 20))
    causal = torch.full((20, 20), -torch.inf).triu(1)
    torch.testing.assert_close(ours.logits(ours.hidden(ids, causal)), theirs(ids).logits, rtol=0, atol=1e-4)
