"""What many tests share: a checkpoint of a few kilobytes, and commands that start in milliseconds."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import benchmark_files
from tests.warm import Warm


def pytest_configure() -> None:
    """A shell's background job begins with Ctrl-C ignored; the tests of Ctrl-C mean one that is not."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


TEXTS = Path(__file__).parents[1] / "tasks" / "embedded" / "gsm8k_train.jsonl"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of whole benchmark files run where these are. A folder that was named must have them."""
    missing = benchmark_files.missing()
    if missing and benchmark_files.NAMED:
        raise pytest.UsageError(f"LOPA_BENCH_DATA={benchmark_files.NAMED}: no {', '.join(missing)} there")
    if missing:
        reason = f"whole benchmark files are needed (LOPA_BENCH_DATA): {', '.join(missing)}"
        for item in items:
            if item.get_closest_marker("data"):
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint in the Dream layout with random weights and a tokenizer: two layers, hidden size 32."""
    import torch
    from safetensors.torch import save_file
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    from lopa_bench.models.config import ModelConfig
    from lopa_bench.models.mini.training.export import published_config, published_weights
    from lopa_bench.models.network.transformer import Transformer

    folder = tmp_path_factory.mktemp("tiny")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = ["<pad>", "<eos>", "<mask>", "<sep>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=320, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator([json.loads(line)["question"] for line in TEXTS.open()][:200], trainer)
    tokenizer.save(str(folder / "tokenizer.json"))
    template = "{% for message in messages %}{{ message['content'] }}<sep>{% endfor %}"
    facts = {"eos_token": "<eos>", "pad_token": "<pad>", "mask_token": "<mask>", "chat_template": template}
    (folder / "tokenizer_config.json").write_text(json.dumps(facts))

    config = ModelConfig(
        vocab_size=tokenizer.get_vocab_size(), hidden_size=32, intermediate_size=64, layers=2, heads=4, kv_heads=2,
        head_dim=8, rope_theta=10000.0, rms_eps=1e-6, qkv_bias=True, qk_norm=False, tied=True, shift="shifted",
        mask_id=2, end_ids=(1,), pad_id=0, max_positions=512, block_size=8,
    )  # fmt: skip
    torch.manual_seed(0)
    model = Transformer(config)
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.5)
    save_file(
        {name: weight.contiguous() for name, weight in published_weights(model).items()}, folder / "model.safetensors"
    )
    (folder / "config.json").write_text(json.dumps(published_config(config, "dream")))
    return folder


@pytest.fixture(scope="session")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warm]:
    """Runs `lopa_bench` commands in forked processes."""
    warm = Warm(tmp_path_factory.mktemp("warm"))
    yield warm
    warm.close()


@pytest.fixture(scope="session")
def settings(tiny_model: Path) -> list[str]:
    """Overrides for a run of the tiny model on the first problems of the embedded set."""
    return [
        "model=dream", f"model.path={tiny_model}", "model.toy=true", "model.max_length=512", "decoder.gen_length=16",
        "decoder.block_size=8", "decoder.k=2", "task.source=embedded", "task.limit=10", "backend.device=cpu",
        "backend.threads=1",
    ]  # fmt: skip


@pytest.fixture
def no_wandb_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """None of W&B's own settings comes in from outside."""
    for name in ("WANDB_MODE", "WANDB_API_KEY", "WANDB_BASE_URL", "WANDB_DIR", "WANDB_PROJECT"):
        monkeypatch.delenv(name, raising=False)
