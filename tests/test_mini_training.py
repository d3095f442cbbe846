"""Tokenizer, batches, learning and export of the embedded models, at a tiny size."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer

from lopa_bench.models.checkpoint.loader import load_model
from lopa_bench.models.mini.architecture import BLOCK, mini_config
from lopa_bench.models.mini.problems.mixture import Mixture, training_problems
from lopa_bench.models.mini.problems.problem import Problem
from lopa_bench.models.mini.tokenizer import END_ID, MASK_ID, SEP_ID, save_tokenizer, train_tokenizer
from lopa_bench.models.mini.training.batches import Batcher, encode
from lopa_bench.models.mini.training.export import export
from lopa_bench.models.mini.training.learner import Learner, batch_loss, initialise
from lopa_bench.models.mini.training.muon import orthogonalise
from lopa_bench.models.mini.training.noising import NoiseConfig, causal_batch, diffusion_batch
from lopa_bench.models.mini.training.train import STAGES, Training
from lopa_bench.models.network.transformer import Transformer


@pytest.fixture(scope="module")
def problems() -> list[Problem]:
    return list(islice(training_problems(Mixture(variety=0.5), 0), 1500))


@pytest.fixture(scope="module")
def tokenizer(problems: list[Problem]) -> Tokenizer:
    return train_tokenizer(f"{problem.question}\n{problem.answer}" for problem in problems)


@pytest.fixture
def batcher(problems: list[Problem], tokenizer: Tokenizer) -> Batcher:
    rng = np.random.default_rng(0)
    return Batcher(encode(problems, tokenizer, rng), 512, rng)


@pytest.fixture
def tiny() -> Transformer:
    return initialise(mini_config(layers=2, hidden_size=64, intermediate_size=128), seed=0)


def from_folder(folder: Path) -> Any:
    return pytest.importorskip("transformers").AutoTokenizer.from_pretrained(folder)


def test_text_survives_the_tokenizer(problems: list[Problem], tokenizer: Tokenizer, tmp_path: Path) -> None:
    save_tokenizer(tokenizer, tmp_path)
    loaded = from_folder(tmp_path)
    odd = ["  two  spaces , and . stops !\n\n\tTab", "1234 05 199 200", "naïve 東京 🙂", "def f(x):\n    return x # 7"]
    for text in [*odd, *(problem.question + problem.answer for problem in problems[:200])]:
        ids = loaded(text, add_special_tokens=False)["input_ids"]
        assert loaded.decode(ids) == text
        assert ids == tokenizer.encode(text).ids


def test_numbers_are_single_tokens(tokenizer: Tokenizer) -> None:
    assert all(len(tokenizer.encode(str(number)).ids) == 1 for number in range(200))
    assert tokenizer.encode("50-27=23").tokens == ["50", "-", "27", "=", "23"]


def test_chat_template(tokenizer: Tokenizer, tmp_path: Path) -> None:
    save_tokenizer(tokenizer, tmp_path)
    loaded = from_folder(tmp_path)
    question = "Tom has 57 apples.\nHow many?"
    plain = loaded(question, add_special_tokens=False)["input_ids"]
    messages = [{"role": "user", "content": question}]
    text = loaded.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    assert loaded(text, add_special_tokens=False)["input_ids"] == [*plain, SEP_ID]
    messages.append({"role": "assistant", "content": "#### 57"})
    assert loaded.apply_chat_template(messages, tokenize=False) == text + "#### 57<eos>"
    assert (loaded.eos_token_id, loaded.mask_token_id, loaded.pad_token_id) == (END_ID, MASK_ID, 0)


def test_batches_have_bare_prompts_and_repeat_the_end_token(batcher: Batcher) -> None:
    for _ in range(20):
        rows = batcher.draw()
        assert rows.window % BLOCK == 0
        for row, length in zip(rows.tokens, rows.lengths, strict=True):
            answer = row[rows.prompt :]
            assert (answer[length - 1 :] == END_ID).all()
            assert END_ID not in answer[: length - 1]
            assert not np.isin(row[: rows.prompt], [END_ID, MASK_ID, 0]).any()


def test_diffusion_batches_mask_answers_only(batcher: Batcher) -> None:
    rng, kinds = np.random.default_rng(1), set()
    for _ in range(40):
        rows = batcher.draw()
        batch = diffusion_batch(rows, NoiseConfig(), rng)
        kinds.add(batch.kind)
        assert not batch.predict[:, : rows.prompt].any()
        assert batch.predict.any(1).all()
        assert torch.equal(batch.inputs == MASK_ID, batch.predict)
        assert len(batch.targets) == len(batch.weights) == int(batch.predict.sum())
    assert kinds == {"bidirectional", "block_causal"}


def test_block_causal_attention_shows_no_later_block(batcher: Batcher) -> None:
    rows = batcher.draw()
    batch = diffusion_batch(rows, NoiseConfig(bidirectional=0), np.random.default_rng(0))
    assert batch.attention is not None
    visible = batch.attention == 0
    prompt = rows.prompt
    assert visible[:prompt, :prompt].all()
    assert not visible[:prompt, prompt:].any()
    assert visible[prompt, : prompt + BLOCK].all()
    assert not visible[prompt, prompt + BLOCK :].any()


def test_learning_lowers_the_loss(batcher: Batcher, tiny: Transformer) -> None:
    rng = np.random.default_rng(2)
    for batch in (causal_batch(batcher.draw()), diffusion_batch(batcher.draw(), NoiseConfig(), rng)):
        learner = Learner(tiny, rate=5e-3)
        with torch.no_grad():
            before = float(batch_loss(tiny, batch))
        for _ in range(6):
            learner.step(batch, progress=0.0)
        with torch.no_grad():
            assert float(batch_loss(tiny, batch)) < before - 0.1


def test_a_stage_goes_on_from_the_average(batcher: Batcher, tiny: Transformer) -> None:
    learner = Learner(tiny, rate=5e-3)
    for _ in range(3):
        learner.step(causal_batch(batcher.draw()), progress=0.0)
    learner.start(1e-3)
    for ours, average in zip(learner.model.parameters(), learner.average.parameters(), strict=True):
        assert torch.equal(ours, average)


def test_orthogonalised_matrices_have_singular_values_near_one() -> None:
    values = torch.linalg.svdvals(orthogonalise(torch.randn(2, 48, 16, generator=torch.Generator().manual_seed(0))))
    assert 0.6 < float(values.min()) < float(values.max()) < 1.3


def test_the_causal_share_falls_to_its_floor() -> None:
    first = STAGES[0]
    shares = [first.causal_share(progress) for progress in (0, 0.29, 0.4, 0.9, 1)]
    assert shares[:2] == [1, 1]
    assert first.causal_floor < shares[2] < 1
    assert shares[3:] == [first.causal_floor] * 2
    assert sum(stage.share for stage in STAGES) == pytest.approx(1)


def test_a_run_reports_without_losses(capsys: pytest.CaptureFixture[str]) -> None:
    Training("dream", Path("out"), 0, 1000, 1.0).report(0)
    assert "tokens 0" in capsys.readouterr().out


def test_the_exported_diffusion_model_loads_with_the_same_logits(
    tiny: Transformer, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    tiny.to(torch.bfloat16).float()  # what the file can hold
    export(tiny, tokenizer, "dream", tmp_path)
    loaded = load_model(tmp_path, torch.float32, torch.device("cpu"))
    ids = torch.arange(40).view(2, 20)
    with torch.no_grad():
        ours, theirs = tiny.logits(tiny.hidden(ids)), loaded.logits(loaded.hidden(ids))
    torch.testing.assert_close(theirs, ours, rtol=1e-4, atol=1e-4)
    assert loaded.config == tiny.config
    assert json.loads((tmp_path / "config.json").read_text())["model_type"] == "Dream"


def test_the_twin_loads_in_transformers_with_the_same_logits(
    tiny: Transformer, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    transformers = pytest.importorskip("transformers")
    tiny.to(torch.bfloat16).float()
    export(tiny, tokenizer, "ar", tmp_path)
    twin = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    ids = torch.arange(40).view(2, 20)
    causal = torch.full((20, 20), -torch.inf).triu(1)
    with torch.no_grad():
        ours = tiny.logits(tiny.hidden(ids, causal))
        torch.testing.assert_close(twin(ids).logits, ours, rtol=1e-4, atol=1e-4)
    assert twin.config.tie_word_embeddings
