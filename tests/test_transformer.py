"""The network against the reference tensors, and its branches against each other."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from torch import Tensor

from lopa_bench.models.checkpoint.loader import load_model
from lopa_bench.models.network import attention as network
from lopa_bench.models.network import rotary
from lopa_bench.models.network.segments import KVCache, Segment, block_causal_mask
from lopa_bench.models.network.transformer import Transformer

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
    torch.testing.assert_close(model([block]), expected[6:12], rtol=0, atol=3e-5)  # sums in another order


CAUSAL = {
    "plain": {},
    "another_base": {"rope_parameters": {"rope_type": "default", "rope_theta": 500000.0}},
    "tied": {"tie_word_embeddings": True},
    "eps_and_kv_heads": {"rms_norm_eps": 0.1, "num_key_value_heads": 4},
    "one_kv_head": {"num_key_value_heads": 1, "rope_parameters": {"rope_type": "default", "rope_theta": 77.0}},
}


@pytest.mark.parametrize("case", CAUSAL)
@torch.inference_mode()
def test_the_network_equals_transformers_own_qwen2(case: str, tmp_path: Path) -> None:
    """Dream's layout is Qwen2's: with a causal mask both networks give the same logits, from files as transformers
    writes them today.
    """
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(0)
    sizes = {
        "vocab_size": 60, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "max_position_embeddings": 64, "tie_word_embeddings": False,
    }  # fmt: skip
    theirs = Qwen2ForCausalLM(Qwen2Config(**{**sizes, **CAUSAL[case]})).eval()
    for weight in theirs.parameters():
        torch.nn.init.normal_(weight, std=0.3)
    theirs.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"model_type": "Dream", "mask_token_id": 59}))
    ours = load_model(tmp_path, torch.float32, CPU).eval()
    ids = torch.randint(0, 59, (2, 20))
    causal = torch.full((20, 20), -torch.inf).triu(1)
    torch.testing.assert_close(ours.logits(ours.hidden(ids, causal)), theirs(ids).logits, rtol=0, atol=1e-4)


@torch.inference_mode()
def test_two_rotary_bases_give_two_networks(tmp_path: Path) -> None:
    """The base of `rope_parameters` is used: with another one the same weights give other logits."""
    ids = torch.arange(40)[None]
    found = {}
    for theta in (10000.0, 500000.0):
        folder = shutil.copytree(MODELS / "dream_a", tmp_path / str(theta))
        config = json.loads((folder / "config.json").read_text())
        del config["rope_theta"]
        config["rope_parameters"] = {"rope_type": "default", "rope_theta": theta}
        (folder / "config.json").write_text(json.dumps(config))
        model = load_model(folder, torch.float32, CPU)
        found[theta] = model.hidden(ids)
    torch.testing.assert_close(found[10000.0], load("dream_a").hidden(ids), rtol=0, atol=0)
    assert (found[10000.0] - found[500000.0]).abs().max() > 0.1


@torch.inference_mode()
def test_llada_rotates_in_float32_also_in_half_precision(tmp_path: Path) -> None:
    """`rope_full_precision`: queries and keys are rotated in float32 and rounded once."""
    x = torch.randn(30, 2, 16, generator=torch.Generator().manual_seed(0)).bfloat16()
    cos, sin = rotary.rotary_table(load("llada_a").config, 30)
    exact = rotary.rotate(x.float(), cos, sin).bfloat16()
    assert torch.equal(rotary.rotate(x, cos, sin), exact)
    assert not torch.equal(rotary.rotate(x, cos.bfloat16(), sin.bfloat16()), exact)
    ids = torch.arange(30)[None]
    outputs = []
    for full in (True, False):
        folder = shutil.copytree(MODELS / "llada_a", tmp_path / str(full))
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(config | {"rope_full_precision": full}))
        outputs.append(load_model(folder, torch.bfloat16, CPU).hidden(ids))
    assert outputs[0].dtype == torch.bfloat16
    assert not torch.equal(*outputs)


class Cached:
    """A text of 24 tokens whose first 9 and last 5 are in the cache, and a window of 10 between them."""

    def __init__(self, name: str, mode: str):
        self.model = load(name)
        self.ids = torch.randint(0, 90, (1, 24), generator=torch.Generator().manual_seed(1))
        self.cache = KVCache(self.model.config, 24, CPU, torch.float32)
        whole = Segment(self.ids, cache=self.cache)
        self.model([whole], keep=True)
        whole.commit(0, 0, 24)
        blocks = torch.arange(10) // 5
        self.mask = {"full": None, "block_causal": block_causal_mask(blocks), "short": short_mask(10, 7)}[mode]

    def window(self, suffix: bool) -> Tensor:
        behind = (19, 24) if suffix else None
        return self.model([Segment(self.ids[:, 9:19], 9, self.cache, behind, self.mask)])


def short_mask(width: int, length: int) -> Tensor:
    """Rows shorter than the window, as the backend writes them."""
    mask = torch.zeros(1, 1, width)
    mask[..., length:] = -torch.inf
    return mask


@pytest.mark.parametrize("suffix", [False, True])
@pytest.mark.parametrize("mode", ["full", "block_causal", "short"])
@pytest.mark.parametrize("name", ["dream_a", "dream_b", "llada_a"])
@torch.inference_mode()
def test_the_fused_attention_on_a_cache_equals_the_explicit_one(
    name: str, mode: str, suffix: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    cached = Cached(name, mode)
    monkeypatch.setattr(network, "FUSED_FROM", 10**9)
    explicit = cached.window(suffix)
    monkeypatch.setattr(network, "FUSED_FROM", 0)
    torch.testing.assert_close(cached.window(suffix), explicit, rtol=0, atol=1e-5)


@torch.inference_mode()
def test_a_kernel_can_be_told_and_serves_several_rows() -> None:
    """Fewer scores than the fused kernel pays for, in three rows on one past, the mask of each row its own."""
    generator = torch.Generator().manual_seed(3)
    q, k, v = (torch.randn(3, 2, *size, 8, generator=generator) for size in ((3, 5), (5,), (5,)))
    past = (torch.randn(2, 4, 8, generator=generator), torch.randn(2, 4, 8, generator=generator))
    mask = torch.zeros(3, 1, 5).masked_fill(torch.arange(5) >= torch.tensor([5, 4, 2])[:, None, None], -torch.inf)
    for of_past in (past, None):
        products, fused = (network.attend(q, k, v, of_past, mask, kernel=name) for name in ("products", "fused"))
        torch.testing.assert_close(fused, products, rtol=0, atol=1e-5)
        assert not torch.equal(fused, products)


@pytest.mark.parametrize("fused_from", [0, 10**9])
@torch.inference_mode()
def test_attention_is_the_softmax_over_past_and_window(fused_from: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against its definition, head by head: query head h reads key-value head h // G, the mask rules the window."""
    monkeypatch.setattr(network, "FUSED_FROM", fused_from)
    generator = torch.Generator().manual_seed(2)
    K, G, W, P, E = 2, 3, 5, 4, 8
    q = torch.randn(1, K, G, W, E, generator=generator)
    k, v = torch.randn(2, 1, K, W, E, generator=generator)
    past = tuple(torch.randn(2, K, P, E, generator=generator))
    mask = torch.full((W, W), -torch.inf).triu(1)
    out = network.attend(q, k, v, (past[0], past[1]), mask)
    for head in range(K):
        keys, values = torch.cat([past[0][head], k[0, head]]), torch.cat([past[1][head], v[0, head]])
        for group in range(G):
            for row in range(W):
                seen = P + row + 1
                weight = torch.softmax(keys[:seen] @ q[0, head, group, row] / E**0.5, 0)
                torch.testing.assert_close(out[0, head, group, row], weight @ values[:seen], rtol=0, atol=1e-5)


@torch.inference_mode()
def test_a_window_of_256_on_a_cache_equals_the_text_in_one_piece() -> None:
    """The default size at which the fused kernel takes over, and the one just below it."""
    model = load("dream_a")
    ids = torch.randint(0, 90, (1, 300), generator=torch.Generator().manual_seed(3))
    blocks = torch.cat([torch.zeros(44), 1 + torch.arange(256) // 64])
    whole = model([Segment(ids, mask=block_causal_mask(blocks))])
    for start in (44, 108):
        cache = KVCache(model.config, 300, CPU, torch.float32)
        first = Segment(ids[:, :start], cache=cache, mask=block_causal_mask(blocks[:start]))
        model([first], keep=True)
        first.commit(0, 0, start)
        rest = model([Segment(ids[:, start:], start, cache, mask=block_causal_mask(blocks[start:]))])
        torch.testing.assert_close(rest, whole[start:], rtol=0, atol=1e-4)
