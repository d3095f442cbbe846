"""The networks of all published families against recorded logits and against transformers' own classes."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from torch import Tensor

from decoders import Generation, Readout, Request
from decoders.types import Decode, Keep
from lopa_bench.backends.local import LocalBackend, Pending
from lopa_bench.models.checkpoint.layouts import read_config
from lopa_bench.models.checkpoint.loader import load_model
from lopa_bench.models.network.segments import KVCache, Segment, block_causal_mask
from lopa_bench.models.network.transformer import Transformer

MODELS = Path(__file__).parent / "golden" / "models"
CPU = torch.device("cpu")
BLOCK = 8  # of the recorded block-causal logits, on the absolute grid
ON_THE_GRID = ["sdar_a", "sdar_b", "fdv2_a", "fdv2_b", "llada2_a", "sdar_moe_a"]
EXACT: dict[str, Any] = {"rtol": 0, "atol": 1e-4}


def load(folder: Path) -> Transformer:
    return load_model(folder, torch.float32, CPU).eval()


def probe(name: str) -> dict[str, Tensor]:
    """The logits that the released network computed for this checkpoint."""
    with safe_open(MODELS / name / "probe.safetensors", "pt") as file:
        return {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118  # no mapping


@pytest.mark.parametrize("name", [*ON_THE_GRID, "llada_moe_a"])
@torch.inference_mode()
def test_the_network_gives_the_recorded_logits(name: str) -> None:
    """Full and block-causal, the cache after one committed block, and the rest of the text on top of that cache."""
    model, recorded = load(MODELS / name), probe(name)
    ids = recorded["input_ids"][None]
    torch.testing.assert_close(model.logits(model([Segment(ids)])), recorded["logits_full"], **EXACT)
    if name not in ON_THE_GRID:
        return
    blocks = torch.arange(ids.shape[1]) // BLOCK
    cache = KVCache(model.config, 64, CPU, torch.float32)
    whole = Segment(ids, cache=cache, mask=block_causal_mask(blocks))
    torch.testing.assert_close(model.logits(model([whole], keep=True)), recorded["logits_block_causal"], **EXACT)
    whole.commit(0, 0, BLOCK)
    for layer in range(model.config.layers):
        for kind, held in (("key", cache.k_LKPE), ("value", cache.v_LKPE)):
            torch.testing.assert_close(held[layer, :, :BLOCK], recorded[f"cache_block_causal.{kind}.{layer}"], **EXACT)
    rest = Segment(recorded["input_ids_suffix"][None], BLOCK, cache, mask=block_causal_mask(blocks[BLOCK:]))
    torch.testing.assert_close(model.logits(model([rest])), recorded["logits_suffix_block_causal"], **EXACT)


class Calls:
    """Decodes that make the recorded calls: whole text full, whole text block-causal, and the rest on its cache."""

    def __init__(self, name: str):
        recorded = probe(name)
        whole, rest = recorded["input_ids"].numpy()[None], recorded["input_ids_suffix"].numpy()[None]
        blocks = np.arange(whole.shape[1]) // BLOCK
        full, causal = self.request(whole), self.request(whole, blocks=blocks)
        suffix = self.request(rest, start=BLOCK, blocks=blocks[BLOCK:], keep=Keep(0, 0, BLOCK))
        self.calls = [[full], [causal, suffix], [full, causal]]
        self.logits = {
            id(full): recorded["logits_full"],
            id(causal): recorded["logits_block_causal"],
            id(suffix): recorded["logits_suffix_block_causal"],
        }

    def request(self, ids: np.ndarray, start: int = 0, **more: Any) -> Request:
        return Request(ids, np.array([ids.shape[1]]), start, Readout(), **more)

    def jobs(self) -> Iterator[Pending]:
        for calls in self.calls:

            def decode(_: int, calls: list[Request] = calls) -> Decode:
                for call in calls:  # noqa: UP028  # a list takes no answers
                    yield call
                return Generation((), "length", 0, ())

            yield Pending((), decode)

    def expected(self, batch: int, shifted: bool) -> list[Tensor]:
        """The logits that each call of the network reads: those at the masks, or one before in a shifted model."""
        rounds = [[call] for calls in self.calls for call in calls]
        if batch > 1:
            rounds = [[calls[i] for calls in self.calls if i < len(calls)] for i in range(2)]
        return [torch.cat([self._read(call, shifted) for call in calls]) for calls in rounds]

    def _read(self, call: Request, shifted: bool) -> Tensor:
        at = np.nonzero(call.ids[0, 1:] == 96 if shifted else call.ids[0] == 96)[0]
        return self.logits[id(call)][torch.from_numpy(at)]


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("name", ON_THE_GRID)
def test_the_backend_reads_the_recorded_logits_alone_and_packed(
    name: str, batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    local, calls = LocalBackend(load(MODELS / name), max_length=64), Calls(name)
    seen: list[Tensor] = []
    compute = local.model.logits

    def logits(hidden: Tensor) -> Tensor:
        seen.append(compute(hidden))
        return seen[-1].clone()

    monkeypatch.setattr(local.model, "logits", logits)
    outcomes = dict(local.stream(calls.jobs(), batch=batch))
    assert [outcomes[i].error for i in range(3)] == [None] * 3
    expected = calls.expected(batch, local.config.shift != "none")
    assert len(seen) == len(expected)
    for found, recorded in zip(seen, expected, strict=True):
        torch.testing.assert_close(found, recorded, **EXACT)


SIZES = {
    "vocab_size": 60, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 64, "tie_word_embeddings": False,
}  # fmt: skip
QWEN3: dict[str, Any] = {"head_dim": 12}
EXPERTS: dict[str, Any] = {"num_experts": 6, "num_experts_per_tok": 3, "moe_intermediate_size": 20, **QWEN3}
TWINS = {
    "qwen2": ("Qwen2", {}, {"model_type": "qwen2"}),
    "fast_dllm_v2": ("Qwen2", {"tie_word_embeddings": True}, {"model_type": "Fast_dLLM_Qwen"}),
    "a2d_qwen2": ("Qwen2", {"num_key_value_heads": 1}, {"model_type": "a2d-qwen2"}),
    "a2d_qwen3": ("Qwen3", {**QWEN3, "tie_word_embeddings": True}, {"model_type": "a2d-qwen3"}),
    "a2d_llama": ("Llama", {}, {"model_type": "a2d-llama"}),
    "sdar": ("Qwen3", QWEN3, {"model_type": "sdar"}),
    "dream_reasoner": ("Qwen3", {"head_dim": 8}, {"model_type": "Dream"}),
    "dream_reasoner by its weights": ("Qwen3", QWEN3, {"model_type": "Dream", "attention_bias": None}),
    "sdar_moe": ("Qwen3Moe", {**EXPERTS, "norm_topk_prob": True}, {"model_type": "sdar_moe"}),
    "sdar_moe but dense layers": (
        "Qwen3Moe",
        {**EXPERTS, "norm_topk_prob": False, "decoder_sparse_step": 2},
        {"model_type": "sdar_moe"},
    ),
}


@pytest.mark.parametrize("family", TWINS)
@torch.inference_mode()
def test_the_network_equals_transformers_own(family: str, tmp_path: Path) -> None:
    """With a causal mask, from files as transformers writes them, under the family's model_type."""
    import transformers

    kind, sizes, told = TWINS[family]
    torch.manual_seed(0)
    made = getattr(transformers, f"{kind}Config")(**SIZES | sizes)
    theirs = getattr(transformers, f"{kind}ForCausalLM")(made).eval()
    for weight in theirs.parameters():
        torch.nn.init.normal_(weight, std=0.3)
    theirs.save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | told | {"mask_token_id": 59, "eos_token_id": 1}))
    assert read_config(tmp_path)[0].name == family.split()[0]
    ours = load(tmp_path)
    ids = torch.randint(0, 59, (2, 20))
    causal = torch.full((20, 20), -torch.inf).triu(1)
    torch.testing.assert_close(ours.logits(ours.hidden(ids, causal)), theirs(ids).logits, **EXACT)


@torch.inference_mode()
def test_scaled_logits_are_divided_by_the_root_of_the_width(tmp_path: Path) -> None:
    folder = shutil.copytree(MODELS / "llada_a", tmp_path / "model")
    plain = load(folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"scale_logits": True}))
    scaled = load(folder)
    hidden = plain.hidden(torch.arange(20)[None])
    torch.testing.assert_close(scaled.logits(hidden) * 8, plain.logits(hidden), rtol=1e-6, atol=0)
