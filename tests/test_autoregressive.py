"""Autoregressive decoding in this process: the same ids as `transformers` itself, one token a forward, same records."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from decoders import DecoderConfig
from lopa_bench.backends.autoregressive import CausalModel, decode_text, load_causal
from lopa_bench.backends.outcome import Outcome
from lopa_bench.engines import autoregressive
from lopa_bench.errors import CheckpointError
from lopa_bench.plan.plan import make_plan
from lopa_bench.settings.backend import LocalSettings
from lopa_bench.settings.config import Config
from tasks.types import TaskConfig
from tests.served_runs import MINI_AR

PROMPT = "Adam has 3 cards. Betty has 2 times as many. Kate has 4 less than Betty. How many does Kate have?<sep>"


@pytest.fixture(scope="module")
def model() -> CausalModel:
    return load_causal(MINI_AR, LocalSettings(device="cpu", threads=1))


def test_ids_are_those_of_transformers_own_greedy_decoding(model: CausalModel) -> None:
    prompt = model.codec.ids_of(PROMPT)
    outcome = decode_text(model, prompt, 64, temperature=0.0, seed=0)
    assert outcome.generation is not None
    expected = model.network.generate(torch.tensor([prompt]), max_new_tokens=64, do_sample=False)[0, len(prompt) :]
    assert list(outcome.generation.ids) == expected.tolist()
    assert model.codec.decode(outcome.generation.ids).endswith("#### 2")
    assert outcome.status == "eos"


def test_every_token_is_one_step_and_the_first_one_reads_the_prompt(model: CausalModel) -> None:
    prompt = model.codec.ids_of(PROMPT)
    outcome = decode_text(model, prompt, 64, temperature=0.0, seed=0)
    generation = outcome.generation
    assert generation is not None
    n, length = len(generation.ids), len(prompt)
    assert generation.forwards == generation.rows == generation.window_tokens == n == len(outcome.step_s)
    assert [step.positions for step in generation.steps] == [(length + i,) for i in range(n)]
    assert [step.tokens_processed for step in generation.steps] == [length] + [1] * (n - 1)
    assert [step.cached for step in generation.steps] == [0] + [length + i for i in range(n - 1)]
    assert all(0 < step.probs[0] <= 1 for step in generation.steps)
    assert outcome.prefill_s == outcome.step_s[0]
    assert outcome.total_s is not None
    assert sum(outcome.step_s) <= outcome.total_s


def test_a_text_is_cut_at_the_length(model: CausalModel) -> None:
    before = model.forwards
    outcome = decode_text(model, model.codec.ids_of(PROMPT), 3, temperature=0.0, seed=0)
    assert outcome.generation is not None
    assert (outcome.status, outcome.generation.forwards) == ("length", 3)
    assert model.forwards - before == 3


def test_with_a_temperature_the_seed_decides(model: CausalModel) -> None:
    def draw(seed: int) -> tuple[int, ...]:
        outcome = decode_text(model, model.codec.ids_of(PROMPT), 32, temperature=3.0, seed=seed)
        assert outcome.generation is not None
        return outcome.generation.ids

    assert draw(1) == draw(1)
    assert len({draw(seed) for seed in range(4)}) == 4


def test_a_run_decodes_with_its_length_its_temperature_and_the_seed_of_each_sample(
    model: CausalModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(autoregressive, "load_causal", lambda *_: model)
    monkeypatch.setattr(autoregressive, "decode_text", lambda *rest: asked.append(rest[2:]) or Outcome(None, "error"))
    config = Config(
        decoder=DecoderConfig(name="ar", gen_length=7, temperature=0.5), task=TaskConfig(source="embedded", limit=2),
        model=MINI_AR, backend=LocalSettings(device="cpu"),
    )  # fmt: skip
    engine = autoregressive.AutoregressiveEngine(make_plan(config, {}))
    samples = list(engine.samples(engine.plan.units))
    seeds = [sample.seed for sample in samples]
    assert asked == [(7, 0.5, seed) for seed in (seeds[0], *seeds)]  # the first one warms up
    assert len(set(seeds)) == 2


def test_a_diffusion_checkpoint_is_refused_by_name() -> None:
    from dataclasses import replace

    with pytest.raises(CheckpointError, match=r"mini is no causal checkpoint that transformers can load"):
        load_causal(replace(MINI_AR, path="embedded:mini"), LocalSettings(device="cpu"))
