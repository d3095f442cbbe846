"""A random checkpoint in each published layout decodes with every decoder that it allows, alone and packed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from decoders import BASES, Decoder, DecoderConfig, DecoderError, Vocabulary, decode, make_decoder
from lopa_bench.backends.local import LocalBackend, Pending
from lopa_bench.models.checkpoint.layouts import read_config
from lopa_bench.models.checkpoint.loader import load_model

GOLDEN = Path(__file__).parent / "golden" / "models"
FILES = sorted((Path(__file__).parents[1] / "conf" / "model").glob("*.yaml"))
# Those with a "model" inside bring a decoder of their own.
PUBLISHED = [facts for path in FILES if "layout" in (facts := yaml.safe_load(path.read_text()))]
LAYOUTS = {(facts["layout"], facts["attention"]) for facts in PUBLISHED}
# layout -> a recorded checkpoint of its network, and what its config.json says otherwise
NETWORKS: dict[str, tuple[str, dict[str, Any]]] = {
    "a2d_qwen2": ("dream_a", {"model_type": "a2d-qwen2"}),
    "a2d_qwen3": ("sdar_a", {"model_type": "a2d-qwen3"}),
    "dream": ("dream_a", {}),
    "dream_reasoner": ("sdar_a", {"model_type": "Dream"}),
    "fast_dllm_v2": ("fdv2_b", {}),
    "llada": ("llada_a", {}),
    "llada2_moe": ("llada2_a", {}),
    "llada_moe": ("llada_moe_a", {}),
    "qwen2": ("dream_a", {"model_type": "qwen2"}),
    "sdar": ("sdar_b", {}),
    "sdar_moe": ("sdar_moe_a", {}),
}
PROMPTS = [[5, 9, 11, 23, 42], [7, 8], [13, 3, 77, 21, 60, 61, 62, 63, 2]]
LENGTH, BLOCK = 8, 4


def allowed(attention: str, grid: str, shifted: bool) -> Iterator[Decoder]:
    """Every decoder alone and as the base of LoPA that fits the model; the others are refused for what does not."""
    for name, base in BASES.items():
        settings: dict[str, Any] = {"gen_length": LENGTH, "attention": attention, "grid": grid}
        if "block_size" in base.window.reads:
            settings["block_size"] = BLOCK
        for chosen in ({"name": name}, {"name": "lopa", "base": name, "k": 2}):
            config = DecoderConfig(**settings, **chosen)
            if grid not in base.window.grids:
                with pytest.raises(DecoderError, match=rf"decoder\.grid={grid} is not supported"):
                    make_decoder(config)
            elif not base.caches_under(attention):
                with pytest.raises(DecoderError, match=rf"decoder\.attention={attention} is not supported"):
                    make_decoder(config)
            elif base.window.hands_over and not shifted:
                with pytest.raises(DecoderError, match="allowed: models whose logits are shifted by one"):
                    make_decoder(config).check_shift(shifted)
            elif chosen.get("k") and (alone := next((rule.alone for rule in base.fills.values() if rule.alone), "")):
                with pytest.raises(DecoderError, match=rf"k=2 is not supported by .* {alone}; allowed: 0"):
                    make_decoder(config)
            else:
                yield make_decoder(config)


def texts(backend: LocalBackend, decoder: Decoder, vocabulary: Vocabulary, batch: int) -> list[tuple[int, ...]]:
    waiting = [Pending(ids, lambda _, ids=ids: decode(decoder, ids, vocabulary)) for ids in PROMPTS]
    found = dict(backend.stream(waiting, batch))
    assert [found[i].error for i in range(len(PROMPTS))] == [None] * len(PROMPTS)
    return [found[i].generation.ids for i in range(len(PROMPTS))]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Products of this size are too small to share."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(("layout", "attention"), sorted(LAYOUTS))
def test_every_published_layout_decodes_with_every_decoder_alone_and_packed(
    layout: str, attention: str, tmp_path: Path
) -> None:
    name, changes = NETWORKS[layout]
    folder = shutil.copytree(GOLDEN / name, tmp_path / "model")
    facts = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(facts | changes))
    read, config = read_config(folder)
    assert read.name == layout
    model = load_model(folder, torch.float32, torch.device("cpu"))
    vocabulary = Vocabulary(config.mask_id, config.end_ids, config.vocab_size)
    decoded = 0
    for decoder in allowed(attention, config.grid, config.shifted):
        alone = texts(LocalBackend(model, 64), decoder, vocabulary, 1)
        assert texts(LocalBackend(model, 64), decoder, vocabulary, len(PROMPTS)) == alone, decoder.config
        for ids in alone:
            assert 0 < len(ids) <= LENGTH
            assert config.mask_id not in ids
        decoded += 1
    assert decoded >= 8
