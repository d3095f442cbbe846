"""Two runs are the same run exactly if nothing that changes a row differs between them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from decoders.config import DecoderConfig
from lopa_bench import identity
from lopa_bench.backends.config import LocalSettings
from lopa_bench.config import Config, ConfigError, ModelSettings
from lopa_bench.plan import make_plan
from lopa_bench.units import Shard, Unit, sample_seed
from tasks.base import TaskConfig

Change = Callable[[Config], object]


@pytest.fixture
def config(tiny_model: Path) -> Config:
    return Config(
        decoder=DecoderConfig(name="lopa", k=2, gen_length=16, block_size=8, attention="full"),
        task=TaskConfig(source="embedded", limit=3),
        model=ModelSettings(name="tiny", path=str(tiny_model), max_length=512),
        backend=LocalSettings(device="cpu"),
    )


def key(config: Config) -> str:
    return make_plan(config, {}).identity.key


@pytest.mark.parametrize(
    "change",
    [
        lambda c: setattr(c.decoder, "tau_conf", 0.8),
        lambda c: setattr(c.decoder, "k", 3),
        lambda c: setattr(c.decoder.score, "bottom", 0.5),
        lambda c: setattr(c.model, "dtype", "bfloat16"),
        lambda c: setattr(c.model, "add_bos", True),
        lambda c: setattr(c.model, "max_length", 256),
        lambda c: setattr(c.backend, "device", "cuda:1"),
        lambda c: setattr(c.backend, "compile", True),
        lambda c: setattr(c.run, "seed", 1),
        lambda c: setattr(c.run, "batch", 2),
        lambda c: setattr(c.run, "shard", "0/2"),
        lambda c: setattr(c.task, "limit", 2),
        lambda c: setattr(c.task, "samples", 2),
        lambda c: setattr(c.task, "prompt_style", "plain"),
        lambda c: setattr(c.task, "scorer", "lopa_bench_strict"),
    ],
)
def test_a_setting_that_changes_a_row_is_another_run(config: Config, change: Change) -> None:
    before = key(config)
    change(config)
    assert key(config) != before


@pytest.mark.parametrize(
    "change",
    [
        lambda c: setattr(c.run, "out", "elsewhere"),
        lambda c: setattr(c.run, "preset", "lopa_dream"),
        lambda c: setattr(c.run, "progress", False),
        lambda c: setattr(c.tracker, "name", "wandb"),
        lambda c: setattr(c.decoder, "base", "d2f"),  # the default, said aloud
        lambda c: setattr(c.model, "gen_length", 9),  # a default of decoders that this one does not use
        lambda c: setattr(c, "fail_fast", True),
    ],
)
def test_a_setting_that_changes_no_row_is_the_same_run(config: Config, change: Change) -> None:
    before = key(config)
    change(config)
    assert key(config) == before


def test_other_weights_another_template_and_other_code_are_other_runs(
    config: Config, tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tmp_path / "model"
    shutil.copytree(tiny_model, model)
    config.model.path = str(model)
    keys = {key(config)}
    with (model / "model.safetensors").open("ab") as file:
        file.write(b"\0")
    keys.add(key(config))
    (model / "chat_template.jinja").write_text("{{ messages[0].content }}")
    keys.add(key(config))
    monkeypatch.setattr(identity, "code_sha256", lambda: "changed")
    keys.add(key(config))
    monkeypatch.setattr(identity, "product_version", lambda: "9.9.9")
    keys.add(key(config))
    assert len(keys) == 5


def test_shards_are_disjoint_and_complete() -> None:
    parts = [Shard.parse(f"{index}/3").units(10, 2) for index in range(3)]
    together = [unit for part in parts for unit in part]
    assert len(together) == len(set(together)) == 20
    assert set(together) == set(Shard.parse(None).units(10, 2))
    assert parts[1][:3] == [Unit(1, 0), Unit(1, 1), Unit(4, 0)]


@pytest.mark.parametrize("text", ["8/8", "-1/2", "1", "a/b", "0/0", "1/2/3", ""])
def test_a_wrong_shard_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="0 <= i < n"):
        Shard.parse(text)


def test_the_seed_of_a_sample_depends_on_run_seed_problem_and_number_alone() -> None:
    seeds = {sample_seed(seed, problem, number) for seed in (0, 1) for problem in ("a", "b") for number in (0, 1)}
    assert len(seeds) == 8
    assert sample_seed(0, "gsm8k-test-0", 0) == 1_285_823_718_892_963_047  # for ever
