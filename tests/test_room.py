"""Whether a run fits on its device is judged before its weights are read, and what is said would help does help."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from decoders import make_decoder
from decoders.config import DecoderConfig
from decoders.types import Vocabulary
from lopa_bench.engines import masked
from lopa_bench.engines.room import Demand, check_memory, first_calls
from lopa_bench.errors import CheckpointError
from lopa_bench.models.checkpoint.layouts import read_config
from lopa_bench.models.loaded import count_parameters
from lopa_bench.models.memory import cache_bytes
from lopa_bench.models.network.transformer import Transformer
from lopa_bench.system.memory import available
from tests.test_served import engine

CONFIG = read_config(Path(__file__).parent / "golden" / "models" / "dream_a")[1]
VOCABULARY = Vocabulary(CONFIG.mask_id, CONFIG.end_ids, CONFIG.vocab_size)


def demand(**changes: Any) -> Demand:
    decoder = {"name": "lopa", "k": 6, "gen_length": 32, "block_size": 8} | changes.pop("decoder", {})
    start = Demand(
        CONFIG, 1_000_000, 256, make_decoder(DecoderConfig(**decoder)), range(2, 62), VOCABULARY, 4, "float32"
    )
    return replace(start, **changes)


def message(run: Demand, free: int) -> str:
    with pytest.raises(CheckpointError) as caught:
        check_memory(run, free, "cpu")
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_weights_and_caches_are_counted_as_they_will_be() -> None:
    network = Transformer(CONFIG)
    assert count_parameters(CONFIG) == sum(one.numel() for one in network.parameters())
    cache = masked.LocalBackend(network, max_length=100).new_cache()
    assert cache_bytes(CONFIG, 100, 4) == cache.k_LKPE.nbytes + cache.v_LKPE.nbytes


@pytest.mark.parametrize(
    ("decoder", "expected"),
    [
        ({"name": "greedy", "k": 0, "cache": "none"}, [(1, 92, 0)] * 3),
        ({"name": "lopa", "k": 6}, [(1, 68, 0), (7, 16, 60), (7, 16, 60)]),
        ({"name": "lopa", "base": "fast_dllm", "k": 3, "cache": "dual"}, [(1, 92, 0), (4, 8, 60), (4, 8, 60)]),
        ({"name": "lopa", "base": "fast_dllm_v2", "k": 3}, [(1, 60, 0), (1, 8, 60), (4, 8, 60)]),  # the prompt's first
        ({"name": "wino", "k": 0}, [(1, 100, 0)] * 3),  # 92 positions and the shadows of 8
    ],
)
def test_the_calls_of_a_plan_are_those_of_the_decoder(
    decoder: dict[str, Any], expected: list[tuple[int, int, int]]
) -> None:
    calls = first_calls(demand(decoder=decoder).decoder, range(2, 62), VOCABULARY)
    assert [(call.rows, call.width, call.start) for call in calls] == expected


def test_the_logits_of_shadows_are_read_too() -> None:
    """Of 32 masks and 8 shadows, and of one mask less with each position that is filled."""
    wino = demand(decoder={"name": "wino", "k": 0})
    assert [call.logits for call in first_calls(wino.decoder, wino.prompt, VOCABULARY)] == [40, 39, 38]


def test_no_more_texts_are_under_way_than_there_are(tiny_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Demand] = []
    plan = engine(tiny_model).plan
    plan.config.run.batch = 64
    monkeypatch.setattr(masked, "check_memory", lambda run, *_: seen.append(run))
    masked.MaskedEngine(plan)
    assert [run.batch for run in seen] == [len(plan.units)] == [2]


def test_a_run_that_fits_says_nothing_and_one_that_may_not_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    run = demand()
    check_memory(run, None, "mps")
    check_memory(run, run.most().total, "cpu")
    assert capsys.readouterr().err == ""
    check_memory(run, run.need().total, "cpu")
    assert capsys.readouterr().err.startswith("note: with the whole generation in the window the run would take ")


def test_a_run_that_does_not_fit_is_told_its_figures_and_each_setting_that_is_enough() -> None:
    run = demand()
    text = message(run, run.need().total - 1)
    need = run.need()
    assert (need.weights, need.caches) == (4_000_000, 4 * cache_bytes(CONFIG, 256, 4))
    assert f"needs {need.total / 1e6:.2f} MB on cpu" in text
    assert f"weights {need.weights / 1e6:.2f} MB in float32" in text
    for name in ("run.batch=2", "decoder.k=3", "model.dtype=bfloat16", "model.max_length=128"):
        assert name in text.partition("allowed here: ")[2].split(" or ")
    check_memory(replace(run, batch=2), need.total - 1, "cpu")
    check_memory(run.with_decoder(k=3), need.total - 1, "cpu")
    check_memory(replace(run, dtype="bfloat16"), need.total - 1, "cpu")


def test_settings_that_are_only_enough_together_are_told_together() -> None:
    run = demand()
    least = replace(run, batch=1, dtype="bfloat16", positions=92).with_decoder(k=0).need().total
    assert message(run, least).endswith(
        "allowed here: run.batch=1 decoder.k=0 model.dtype=bfloat16 model.max_length=92, all of them"
    )
    assert message(run, least - 1).endswith(f"it still needs {least / 1e6:.2f} MB; allowed: another device or model")


def test_no_weights_are_read_for_a_run_that_does_not_fit(tiny_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(masked, "free_memory", lambda device: 10_000)
    monkeypatch.setattr(masked, "load", lambda *anything: pytest.fail("the weights were loaded"))
    with pytest.raises(CheckpointError, match=r"the run needs .* MB on cpu, where 0\.01 MB are free: weights"):
        engine(tiny_model)


def test_a_part_of_ones_own_that_fails_is_left_to_the_decode() -> None:
    run = demand()

    def broken(*anything: Any) -> Any:
        raise RuntimeError("mine")

    assert first_calls(replace(run.decoder, window=broken), run.prompt, VOCABULARY) == []


def test_the_system_says_what_is_left() -> None:
    left = available()
    assert left is None or 0 < left < 2**50
