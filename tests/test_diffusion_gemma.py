"""DiffusionGemma by transformers' own sampler: the same text and counts, as rows like those of every other decoder."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from decoders.config import DecoderConfig, DecoderError
from decoders.families.unmasked import resolve_unmasked
from lopa_bench.backends.autoregressive import CausalModel, load_causal
from lopa_bench.backends.diffusion_gemma import CLASS, _since, decode_canvases
from lopa_bench.errors import BackendError, CheckpointError
from lopa_bench.models.checkpoint.check import check_model
from lopa_bench.records.reading import read_samples, read_steps
from lopa_bench.settings.backend import LocalSettings, check_together
from lopa_bench.settings.model import ModelSettings
from tests.warm import Warm

transformers = pytest.importorskip("transformers")
CANVAS, STEPS = 16, 6
TEXT = {
    "vocab_size": 320, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2,
    "num_key_value_heads": 1, "head_dim": 16, "global_head_dim": 16, "max_position_embeddings": 512,
    "sliding_window": 64, "layer_types": ["sliding_attention", "full_attention"], "num_experts": 4, "top_k_experts": 2,
    "moe_intermediate_size": 16, "pad_token_id": 0, "eos_token_id": 1, "bos_token_id": None,
}  # fmt: skip
VISION = {
    "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2,
    "num_key_value_heads": 2, "head_dim": 8,
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random checkpoint of the class with the tokenizer of the tiny model."""
    path = tmp_path_factory.mktemp("gemma")
    config = transformers.DiffusionGemmaConfig(text_config=TEXT, vision_config=VISION, canvas_length=CANVAS)
    torch.manual_seed(0)
    network = getattr(transformers, CLASS)(config)
    network.generation_config.max_denoising_steps = STEPS
    network.save_pretrained(path)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(tiny_model / name, path)
    return path


def settings(folder: Path) -> ModelSettings:
    return ModelSettings(name="gemma", path=str(folder), layout="diffusion_gemma")


@pytest.fixture(scope="module")
def model(folder: Path) -> CausalModel:
    return load_causal(settings(folder), LocalSettings(device="cpu", threads=1), CLASS)


def test_text_and_forwards_are_those_of_its_own_generate(model: CausalModel) -> None:
    prompt, before = [5, 6, 7, 8, 9], model.forwards
    outcome = decode_canvases(model, prompt, 40, seed=3)
    assert outcome.generation is not None
    assert model.forwards - before == outcome.generation.forwards
    torch.manual_seed(3)
    theirs = model.network.generate(
        torch.tensor([prompt]), max_new_tokens=40, eos_token_id=list(model.end_ids), pad_token_id=0
    )
    generation = outcome.generation
    assert generation is not None
    assert outcome.step_s is not None
    written = theirs.sequences[0, len(prompt) :].tolist()
    assert list(generation.ids) == written[: len(generation.ids)]
    assert len(generation.ids) == 40 or generation.ids[-1] in model.end_ids
    valid = sum(token != 0 for token in written)
    assert valid / generation.forwards == pytest.approx(theirs.tokens_per_forward.item())
    assert len(outcome.step_s) == generation.forwards
    filled = [position for step in generation.steps for position in step.positions]
    assert sorted(filled) == list(range(len(prompt), len(prompt) + generation.window_tokens))
    assert generation.window_tokens % CANVAS == 0


def test_a_seed_is_a_text(model: CausalModel) -> None:
    one, again, other = (decode_canvases(model, [5, 6, 7], CANVAS, seed).generation for seed in (1, 1, 2))
    assert one == again != other


def test_a_position_is_filled_when_its_prediction_no_longer_changes() -> None:
    assert [_since(tokens) for tokens in ([4], [4, 4, 4], [3, 4, 4], [4, 3, 4])] == [0, 0, 1, 2]


@pytest.mark.slow
def test_its_rows_stand_in_the_same_tables(folder: Path, tmp_path: Path, warm: Warm) -> None:
    done = warm.start(
        "model=diffusion_gemma", f"model.path={folder}", "model.toy=true", "model.max_length=256",
        "model.gen_length=20",
        "backend.device=cpu", "backend.threads=1", "task.source=embedded", "task.limit=2", "task.prompt_style=plain",
        "task.shots=0", f"run.out={tmp_path}", cwd=tmp_path,
    ).wait()  # fmt: skip
    assert done.code == 0, done.err
    (run,) = (path for path in (tmp_path / "runs").iterdir() if path.is_dir())
    samples = read_samples(run).to_pylist()
    assert [row["forwards"] for row in samples] == [row["rounds"] for row in samples]
    assert all(2 <= row["forwards"] <= 2 * STEPS and row["window_tokens"] == 2 * CANVAS for row in samples)
    assert len(read_steps(run).to_pylist()) == sum(row["forwards"] for row in samples)
    assert done.values["decoder"] == "diffusion_gemma"


@pytest.mark.parametrize(
    ("decoder", "layout"), [("lopa", "diffusion_gemma"), ("ar", "diffusion_gemma"), ("diffusion_gemma", "dream")]
)
def test_what_does_not_fit_is_refused_by_name(decoder: str, layout: str) -> None:
    with pytest.raises(BackendError, match=rf"decoder={decoder} .*allowed: "):
        check_together(LocalSettings(), decoder, "some", layout)


def test_other_temperatures_folders_and_adapters_are_refused(folder: Path, tiny_model: Path, tmp_path: Path) -> None:
    with pytest.raises(DecoderError, match=r"decoder\.temperature=0\.5 has no meaning .* allowed: 0"):
        resolve_unmasked(DecoderConfig(name="diffusion_gemma", temperature=0.5))
    with pytest.raises(CheckpointError, match=r'model_type="Dream"; allowed: "diffusion_gemma"'):
        check_model(settings(tiny_model))
    changed: dict[str, Any] = json.loads((folder / "config.json").read_text())
    broken = shutil.copytree(folder, tmp_path / "broken")
    changed["text_config"]["num_hidden_layers"] = 3
    changed["text_config"]["layer_types"] = ["sliding_attention", "full_attention", "full_attention"]
    changed["text_config"].pop("per_layer_config", None)
    (broken / "config.json").write_text(json.dumps(changed))
    with pytest.raises(CheckpointError, match=r"does not fit its config\.json: missing|no DiffusionGemma"):
        load_causal(settings(broken), LocalSettings(device="cpu"), CLASS)
