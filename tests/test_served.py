"""That every setting of a model reaches what is loaded."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from decoders.config import DecoderConfig
from lopa_bench.engines.masked import MaskedEngine
from lopa_bench.errors import CheckpointError
from lopa_bench.models import loaded
from lopa_bench.models.checkpoint.folders import TEXTS, WEIGHTS, locate
from lopa_bench.models.device import default_threads, pick_device, pick_dtype
from lopa_bench.models.loaded import check_prompts, load, open_checkpoint
from lopa_bench.models.network.transformer import Transformer
from lopa_bench.plan.plan import make_plan
from lopa_bench.settings.backend import LocalSettings
from lopa_bench.settings.config import Config
from lopa_bench.settings.model import ModelSettings
from tasks.types import Prompt, TaskConfig

Q = "model.layers.1.self_attn.q_proj"
CPU = LocalSettings(device="cpu", threads=1)


def model_of(folder: Path, **settings: Any) -> loaded.LoadedModel:
    return load(ModelSettings(path=str(folder), **settings), CPU)


def queries(network: Transformer) -> Tensor:
    return network.get_submodule("layers.1.attention").qkv_proj.weight[:32]


@pytest.fixture
def adapter(tmp_path: Path) -> Path:
    """An adapter that adds 6 to every query weight of the last layer."""
    folder = tmp_path / "adapter"
    folder.mkdir()
    settings = {"peft_type": "LORA", "r": 2, "lora_alpha": 6, "target_modules": [Q]}
    (folder / "adapter_config.json").write_text(json.dumps(settings))
    pair = {"A": torch.ones(2, 32), "B": torch.ones(32, 2)}
    save_file(
        {f"base_model.model.{Q}.lora_{side}.weight": value for side, value in pair.items()},
        folder / "adapter_model.safetensors",
    )
    return folder


def test_the_adapter_of_the_settings_is_merged(tiny_model: Path, adapter: Path) -> None:
    without, with_it = model_of(tiny_model).network, model_of(tiny_model, lora=str(adapter)).network
    torch.testing.assert_close(queries(with_it), queries(without) + 6, rtol=0, atol=1e-5)
    assert torch.equal(with_it.embed.weight, without.embed.weight)


def engine(folder: Path, prompt_style: str = "plain", gen_length: int = 16, **settings: Any) -> MaskedEngine:
    """What a run decodes with."""
    config = Config(
        decoder=DecoderConfig(name="greedy", gen_length=gen_length, block_size=8, attention="full"),
        task=TaskConfig(source="embedded", limit=2, prompt_style=prompt_style),
        model=ModelSettings(name="tiny", path=str(folder), **settings),
        backend=CPU,
    )
    return MaskedEngine(make_plan(config, {}))


def test_a_run_decodes_with_the_settings_of_its_model(tiny_model: Path, adapter: Path) -> None:
    plain, other = engine(tiny_model), engine(tiny_model, lora=str(adapter), dtype="bfloat16", end_ids=[1])
    torch.testing.assert_close(
        queries(other.backend.model).float(), queries(plain.backend.model) + 6, rtol=0, atol=0.05
    )
    assert (plain.dtype, other.dtype, other.backend.dtype) == ("float32", "bfloat16", torch.bfloat16)
    assert (plain.end_ids, other.end_ids) == ((1, 3), (1,))


def test_a_run_never_writes_behind_the_checkpoints_positions(tiny_model: Path) -> None:
    assert [engine(tiny_model, max_length=length).max_length for length in (100, 512, 2048)] == [100, 512, 512]
    with pytest.raises(CheckpointError, match=r"gen_length=512 leaves no room for a prompt in the 512 positions"):
        engine(tiny_model, gen_length=512)


def test_a_run_without_the_template_that_its_prompts_need_loads_no_weights(tiny_model: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(tiny_model, tmp_path / "model")
    facts = json.loads((folder / "tokenizer_config.json").read_text())
    del facts["chat_template"]
    (folder / "tokenizer_config.json").write_text(json.dumps(facts))
    assert engine(folder).prompt_ids.keys() == {0, 1}
    save_file({"nothing": torch.zeros(1)}, folder / "model.safetensors")
    with pytest.raises(CheckpointError, match="has no chat template"):
        engine(folder, prompt_style="chat")


def test_a_prompt_that_spells_the_mask_is_refused(tiny_model: Path) -> None:
    opened = open_checkpoint(ModelSettings(path=str(tiny_model)))
    check_prompts(opened, {0: opened.codec.encode(Prompt("a mask"))})
    with pytest.raises(CheckpointError, match=r"the prompt of problem 7 holds the mask token <mask> \(id 2\)"):
        check_prompts(opened, {0: [5], 7: opened.codec.encode(Prompt("a <mask>"))})


@pytest.mark.parametrize("spoilt", ["config.json", "model.safetensors", "adapter_config.json"])
def test_a_model_that_cannot_run_is_said_before_data_is_looked_for(
    spoilt: str, tiny_model: Path, adapter: Path, tmp_path: Path
) -> None:
    """The first cause first: with both missing it is the model's fault that is told."""
    folder = shutil.copytree(tiny_model, tmp_path / "model")
    ((adapter if spoilt.startswith("adapter") else folder) / spoilt).unlink()
    config = Config(
        task=TaskConfig(source=str(tmp_path / "nowhere.jsonl")),
        model=ModelSettings(path=str(folder), lora=str(adapter)),
        backend=CPU,
    )
    with pytest.raises(CheckpointError, match=re.escape(spoilt)):
        make_plan(config, {})


def test_the_dtype_of_the_settings_is_that_of_every_weight(tiny_model: Path, adapter: Path) -> None:
    for name in ("float32", "bfloat16", "float16"):
        model = model_of(tiny_model, dtype=name, lora=str(adapter))
        assert {weight.dtype for weight in model.network.parameters()} == {getattr(torch, name)}
        assert (model.dtype, model.device) == (name, "cpu")
    assert model_of(tiny_model, dtype="auto").dtype == "float32"


@pytest.mark.parametrize(
    ("name", "device", "expected"),
    [
        ("auto", "cpu", torch.float32), ("auto", "cuda", torch.bfloat16), ("auto", "cuda:1", torch.bfloat16),
        ("auto", "mps", torch.bfloat16), ("float32", "cuda", torch.float32), ("float16", "cpu", torch.float16),
        ("bfloat16", "cpu", torch.bfloat16),
    ],
)  # fmt: skip
def test_auto_is_float32_on_a_cpu_and_bfloat16_on_an_accelerator(name: str, device: str, expected: torch.dtype) -> None:
    assert pick_dtype(name, torch.device(device)) == expected


def test_a_device_that_is_not_here_is_one_sentence() -> None:
    for name in ("cuda:99", "npu"):
        with pytest.raises(CheckpointError, match=rf"backend\.device={name}") as caught:
            pick_device(name)
        assert "\n" not in str(caught.value)
    assert pick_device("cpu") == torch.device("cpu")


def test_the_start_token_of_the_settings_reaches_the_prompts(tiny_model: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(tiny_model, tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"bos_token_id": 3}))
    without, with_it = model_of(folder), model_of(folder, add_bos=True)
    ids = without.encode(Prompt("Jane"))
    assert with_it.encode(Prompt("Jane")) == [3, *ids]
    assert with_it.decode(with_it.encode(Prompt("Jane"))) == without.decode(ids) == "Jane"


def test_the_vocabulary_is_that_of_the_files(tiny_model: Path) -> None:
    vocabulary = model_of(tiny_model).vocabulary
    assert (vocabulary.mask_id, vocabulary.size) == (2, 320)
    assert vocabulary.end_ids == (1, 3)  # <eos> of config.json, and the <sep> behind every turn of the template
    assert model_of(tiny_model, end_ids=[1]).vocabulary.end_ids == (1,)


def test_the_length_of_the_settings_bounds_the_positions(tiny_model: Path) -> None:
    assert len(model_of(tiny_model, max_length=100).network.cos) == 100
    assert len(model_of(tiny_model, max_length=100_000).network.cos) == 512
    assert model_of(tiny_model, max_length=100_000).network.config.max_positions == 512


def test_a_layout_that_is_not_the_checkpoints_is_refused(tiny_model: Path) -> None:
    assert open_checkpoint(ModelSettings(path=str(tiny_model), layout="dream")).config.vocab_size == 320
    with pytest.raises(CheckpointError, match=r"has the dream layout, model\.layout=llada was asked for"):
        open_checkpoint(ModelSettings(path=str(tiny_model), layout="llada"))


def test_faults_of_small_files_are_found_before_weights_are_read(tiny_model: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(tiny_model, tmp_path / "model")
    save_file({"nothing": torch.zeros(1)}, folder / "model.safetensors")
    (folder / "tokenizer.json").write_text("{")
    with pytest.raises(CheckpointError, match=r"tokenizer\.json is not valid JSON"):
        model_of(folder)


def test_a_small_network_takes_one_thread_unless_samples_are_packed(tiny_model: Path) -> None:
    network = model_of(tiny_model).network
    assert [default_threads(network, batch, 16) for batch in (1, 7, 8)] == [1, 1, 16]
    load(ModelSettings(path=str(tiny_model)), LocalSettings(device="cpu", threads=2))
    assert torch.get_num_threads() == 2
    load(ModelSettings(path=str(tiny_model)), LocalSettings(device="cpu"))
    assert torch.get_num_threads() == 1


def test_the_hub_is_asked_for_the_revision_and_no_code(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import huggingface_hub

    asked: list[tuple[Any, ...]] = []

    def download(path: str, revision: str | None, allow_patterns: list[str], etag_timeout: int) -> str:
        asked.append((path, revision, tuple(allow_patterns)))
        return str(tmp_path)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    assert locate("owner/name", "abc") == tmp_path
    assert locate("owner/name", weights=False) == tmp_path
    assert asked == [("owner/name", "abc", (*TEXTS, *WEIGHTS)), ("owner/name", None, tuple(TEXTS))]
    assert not any(pattern.endswith((".py", ".bin", "*")) for pattern in TEXTS + WEIGHTS)


def test_adapter_and_model_are_located_with_their_own_revisions(
    monkeypatch: pytest.MonkeyPatch, tiny_model: Path, adapter: Path
) -> None:
    asked = []

    def fake(path: str, revision: str | None = None) -> Path:
        asked.append((path, revision))
        return {"a/model": tiny_model, "b/lora": adapter}[path]

    monkeypatch.setattr(loaded, "locate", fake)
    open_checkpoint(ModelSettings(path="a/model", revision="1", lora="b/lora", lora_revision="2"))
    assert asked == [("a/model", "1"), ("b/lora", "2")]
    assert load_file(adapter / "adapter_model.safetensors")
