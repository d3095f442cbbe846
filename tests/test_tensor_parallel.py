"""A network on several ranks has the numbers of one, and every rank reads the same ones."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from decoders import DecoderConfig, Vocabulary, decode, make_decoder
from lopa_bench.backends.local import LocalBackend
from lopa_bench.errors import BackendError, ConfigError
from lopa_bench.models.checkpoint.folders import locate
from lopa_bench.models.checkpoint.layouts import read_config
from lopa_bench.models.checkpoint.loader import load_model
from lopa_bench.models.config import Experts
from lopa_bench.models.network.tensor_parallel import shared
from lopa_bench.models.network.transformer import Transformer
from lopa_bench.records.finding import find_runs
from lopa_bench.records.reading import read_samples
from lopa_bench.settings.backend import LocalSettings
from lopa_bench.settings.config import Config
from lopa_bench.settings.model import ModelSettings
from lopa_bench.settings.validate import validate
from tests.ranks_in_threads import Table
from tests.warm import Warm

MODELS = Path(__file__).parent / "golden" / "models"


class ThreadGroup:
    """The tensor ranks of threads, which lay their parts down in one table."""

    def __init__(self, table: Table, rank: int) -> None:
        self.table, self.rank, self.size = table, rank, len(table.places)

    def _all(self, mine: Tensor) -> list[Tensor]:
        self.table.places[self.rank] = mine
        self.table.barrier.wait()
        found = list(self.table.places)
        self.table.barrier.wait()
        return found

    def sum(self, tensor: Tensor) -> Tensor:
        return torch.stack(self._all(tensor)).sum(0)

    def first(self, tensor: Tensor) -> Tensor:
        return self._all(tensor)[0]


def load(name: str) -> Transformer:
    folder = locate(name) if name.startswith("embedded:") else MODELS / name
    return load_model(folder, torch.float32, torch.device("cpu"))


def on_ranks(name: str, ranks: int, work: Callable[[Transformer], Any]) -> list[Any]:
    """What `work` makes of each rank's part, in the order of the ranks."""
    table, found = Table(ranks), [None] * ranks

    def one(rank: int) -> None:
        torch.set_num_threads(1)
        with torch.inference_mode():
            found[rank] = work(shared(load(name), ThreadGroup(table, rank)))

    threads = [threading.Thread(target=one, args=(rank,)) for rank in range(ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def logits(network: Transformer) -> Tensor:
    return network.logits(network.hidden(torch.arange(5, 45).view(2, 20)))


def text(network: Transformer) -> Any:
    c = network.config
    decoder = make_decoder(DecoderConfig(k=3, gen_length=24, block_size=8))
    generation = LocalBackend(network, 128).decode(
        decode(decoder, [40, 9, 9, 61, 5], Vocabulary(c.mask_id, c.end_ids, c.vocab_size))
    ).generation  # fmt: skip
    assert generation is not None
    return generation.ids, [(step.positions, step.winner, step.scores) for step in generation.steps]


@pytest.mark.parametrize("name", ["embedded:mini", "dream_a", "llada2_a", "sdar_moe_a"])
@torch.inference_mode()
def test_two_ranks_have_the_logits_of_one(name: str) -> None:
    expected = logits(load(name))
    one, other = on_ranks(name, 2, logits)
    torch.testing.assert_close(one, expected, atol=1e-4, rtol=1e-4)
    assert torch.equal(one, other)


@pytest.mark.parametrize("name", ["embedded:mini", "dream_a"])
def test_a_decode_on_two_ranks_is_the_decode_of_one(name: str) -> None:
    with torch.inference_mode():
        ids, steps = text(load(name))
    first, other = on_ranks(name, 2, text)
    assert first == other
    assert first[0] == ids
    for (positions, winner, scores), step in zip(first[1], steps, strict=True):
        assert (positions, winner) == step[:2]
        assert scores == pytest.approx(step[2], abs=1e-4)


def test_a_rank_holds_its_part_of_the_layers_and_of_the_cache() -> None:
    whole = load("embedded:mini")

    def sizes(network: Transformer) -> tuple[int, int]:
        layers = sum(parameter.numel() for parameter in network.layers.parameters())
        return layers, LocalBackend(network, 64).new_cache().k_LKPE.numel()

    layers, cache = sizes(whole)
    norms = sum(parameter.numel() for name, parameter in whole.layers.named_parameters() if "norm" in name)
    for part in on_ranks("embedded:mini", 2, sizes):
        assert part == ((layers - norms) // 2 + norms, cache // 2)


@pytest.mark.slow
def test_processes_write_the_rows_of_one(warm: Warm, tmp_path: Path) -> None:
    common = (
        *("model=mini", "decoder=lopa", "decoder.k=3", "decoder.gen_length=32", "task.limit=2", "run.progress=false"),
        *("backend.device=cpu", "backend.threads=1", "run.warmup=0"),
    )
    two = ("backend.tensor_ranks=2", "backend.rank_timeout_s=120")

    def rows(name: str, *further: str) -> tuple[list[Any], list[Any]]:
        out = tmp_path / name
        done = warm.run(*common, *further, f"run.out={out}")
        assert done.code == 0, done.err
        (run,) = find_runs(out)
        found = read_samples(run.folder).sort_by("problem_index")
        return found["token_ids"].to_pylist(), found["forwards"].to_pylist()

    expected = rows("one")
    assert rows("two", *two) == expected
    assert rows("four", *two, "backend.branch_ranks=2") == expected


def test_what_cannot_be_shared_is_refused_before_weights_are_read() -> None:
    with pytest.raises(BackendError, match=r"tensor_ranks=2 does not divide the network's 1 KV heads; allowed: 1"):
        read_config(MODELS / "dream_b")[1].check_shares(2)
    with pytest.raises(BackendError, match=r"tensor_ranks=3 does not divide the network's 4 query heads, 2 KV heads"):
        read_config(locate("embedded:mini"))[1].check_shares(3)
    experts = Experts(8, 2, size=6, layers=(True,), shared_size=9)
    mixed = replace(
        read_config(locate("embedded:mini"))[1], heads=12, kv_heads=12, intermediate_size=12, experts=experts
    )
    with pytest.raises(BackendError, match=r"4 does not divide the network's 6 .* expert, 9 .* network; allowed: 1, 3"):
        mixed.check_shares(4)
    for settings, model, decoder, message in (
        ({}, {"quantize": "w8a8"}, "lopa", "matrices of 8 bits are not shared"),
        ({"compile": "compile"}, {}, "lopa", "backend.compile=compile is not allowed with backend.tensor_ranks=2"),
        ({}, {"path": "embedded:mini_ar", "layout": "causal"}, "ar", "decoder=ar runs one of transformers"),
    ):
        with pytest.raises(ConfigError, match=message):
            validate(
                Config(
                    decoder=DecoderConfig(name=decoder),
                    backend=LocalSettings(tensor_ranks=2, **settings),
                    model=ModelSettings(**({"path": "embedded:mini"} | model)),
                )
            )
