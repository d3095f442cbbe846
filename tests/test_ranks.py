"""A decode on several ranks is the decode of one: ids, winners, scores and steps, whatever k, the ranks, the protocol.

Ranks are threads here, with a link of plain memory (ranks_in_threads.py); tests/test_ranks_processes.py has processes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from decoders import DecoderConfig, Vocabulary, decode, make_decoder
from decoders.types import Decode, Keep
from lopa_bench.backends.local import LocalBackend, Pending
from lopa_bench.backends.outcome import Outcome
from lopa_bench.backends.ranks.backend import RankedBackend
from lopa_bench.backends.ranks.session import RankedSession
from lopa_bench.backends.ranks.share import Share, pack, unpack
from lopa_bench.errors import BackendError
from lopa_bench.models.checkpoint.folders import locate
from lopa_bench.models.checkpoint.loader import load_model
from tests.ranks_in_threads import on_ranks

MODELS = Path(__file__).parent / "golden" / "models"
PROMPTS = [[3, 17, 21], [40, 2, 9, 9, 61, 5, 33], [1]]
Jobs = list[Callable[..., Decode]]


def network(name: str = "dream_a") -> LocalBackend:
    return LocalBackend(load_model(MODELS / name, torch.float32, torch.device("cpu")), 128)


def jobs(local: LocalBackend, prompts: Sequence[Sequence[int]] = PROMPTS[:2], seed: int = 0, **settings: Any) -> Jobs:
    config = DecoderConfig(**{"gen_length": 10, "block_size": 5, "attention": "block_causal"} | settings)
    decoder = make_decoder(config)
    vocab = Vocabulary(local.config.mask_id, local.config.end_ids, local.config.vocab_size)
    return [partial(decode, decoder, prompt, vocab, seed=seed) for prompt in prompts]


def alone(local: LocalBackend, decodes: Jobs, prompts: Sequence[Sequence[int]] | None = None) -> list[Outcome]:
    waiting = [Pending(prompt, one) for prompt, one in zip(prompts or [()] * len(decodes), decodes)]
    return [outcome for _, outcome in local.stream(waiting)]


def check_equal(expected: list[Outcome], found: list[list[Outcome]]) -> None:
    """All ranks tell bit for bit the same, and the same as one process but for the last bits of scores."""
    for rank in found:
        assert [outcome.generation for outcome in rank] == [outcome.generation for outcome in found[0]]
    for one, other in zip(expected, found[0], strict=True):
        a, b = one.generation, other.generation
        assert a is not None
        assert b is not None
        assert (a.ids, a.finish_reason, a.forwards, a.rows) == (b.ids, b.finish_reason, b.forwards, b.rows)
        for step, same in zip(a.steps, b.steps, strict=True):
            assert (step.winner, step.branches, step.positions, step.tokens, step.kept) == (
                same.winner, same.branches, same.positions, same.tokens, same.kept,
            )  # fmt: skip
            assert (step.lookahead_positions, step.lookahead_tokens) == (
                same.lookahead_positions,
                same.lookahead_tokens,
            )
            np.testing.assert_allclose(step.scores, same.scores, rtol=0, atol=1e-5)
            np.testing.assert_allclose(step.probs, same.probs, rtol=0, atol=1e-5)


@pytest.mark.parametrize("ranks", range(1, 9))
def test_rows_are_spread_evenly_and_each_has_one_owner(ranks: int) -> None:
    for rows in range(1, 20):
        share = Share(rows, ranks)
        owned = [list(share.owned(rank)) for rank in range(ranks)]
        assert [row for part in owned for row in part] == list(range(rows))
        assert max(map(len, owned)) - min(map(len, owned)) <= 1
        assert [share.owner(row) for row in range(rows)] == [rank for rank in range(ranks) for _ in owned[rank]]
        spare = [list(share.computed(rank, spare=True)) for rank in range(ranks)]
        assert all(spare)  # every rank has keys and values of its own
        idle = [list(share.computed(rank, spare=False)) for rank in range(ranks)]
        assert idle == ([[0]] * ranks if rows == 1 else owned)


def test_what_is_sent_arrives_bit_for_bit() -> None:
    values = {"token": np.array([7, 151666, 0]), "prob": np.array([0.1, np.nan, 1e-30], np.float32)}
    found = unpack(
        [pack(values, 5), pack({name: value[:1] for name, value in values.items()}, 5)], [3, 1], list(values)
    )
    np.testing.assert_array_equal(found["token"], [7, 151666, 0, 7])
    assert found["prob"].tobytes() == np.concatenate([values["prob"], values["prob"][:1]]).tobytes()


@pytest.mark.parametrize(("k", "ranks"), [(0, 2), (3, 2), (8, 3)])
@pytest.mark.parametrize("protocol", ["two_phase", "single_phase"])
def test_ranks_decode_as_one_process(k: int, ranks: int, protocol: str) -> None:
    local = network()
    given = jobs(local, k=k)
    check_equal(alone(local, given), on_ranks(local, ranks, given, protocol))


@pytest.mark.slow
@pytest.mark.parametrize("model", ["dream_a", "llada_a", "sdar_a", "mini"])
@pytest.mark.parametrize("k", [0, 1, 3, 7, 8])
def test_the_whole_grid(k: int, model: str) -> None:
    """k x ranks x attention x protocol, on golden models and the embedded one."""
    if model == "mini":
        local = LocalBackend(load_model(locate("embedded:mini"), torch.float32, torch.device("cpu")), 256)
        prompts = [[104, 260, 33, 90, 12, 300, 41], [77, 12, 30, 8, 400, 219]]
    else:
        local, prompts = network(model), PROMPTS
    for attention, base in (("block_causal", "d2f"), ("block_causal", "greedy"), ("full", "d2f")):
        given = jobs(local, prompts, k=k, attention=attention, base=base, gen_length=32, block_size=8)
        expected = alone(local, given)
        for ranks in (1, 2, 3, 4):
            for protocol in ("two_phase", "single_phase") if attention == "block_causal" else ("two_phase",):
                check_equal(expected, on_ranks(local, ranks, given, protocol))


@pytest.mark.parametrize(
    "settings",
    [
        {"attention": "full"},
        {"base": "fast_dllm", "cache": "dual", "attention": "full"},
        {"base": "fast_dllm", "cache": "prefix", "attention": "full"},
        {"base": "greedy", "cache": "none", "attention": "full"},
        {"base": "sdar", "grid": "absolute", "confidence": "margin"},
        {"base": "sdar", "grid": "absolute", "select": "exact", "eager": True},
        {"base": "fast_dllm", "cache": "vicinity", "attention": "full", "warmup_steps": 2},
        {"base": "d3llm", "cache": "delayed", "attention": "full", "refresh_interval": 3, "tau_entropy": 0.1},
        {"base": "fast_dllm", "fill": "schedule", "attention": "full", "eos_penalty": 3.0},
        {"select": "gate"},
        {"select": "exact"},
        {"select": "confirm", "confirm": 0.5},
        {"floor": 0.2, "complete": "verify"},
    ],
    ids=lambda settings: "-".join(map(str, settings.values())),
)
def test_every_attention_cache_and_select_by_two_phases(settings: dict[str, Any]) -> None:
    local = network()
    given = jobs(local, k=3, **settings)
    check_equal(alone(local, given), on_ranks(local, 3, given))


def test_tokens_that_are_drawn_are_those_of_one_process() -> None:
    local = network()
    given = jobs(local, k=4, temperature=1.0, seed=5)
    check_equal(alone(local, given), on_ranks(local, 3, given))
    assert alone(local, given)[0].generation != alone(local, jobs(local, k=4, temperature=1.0, seed=6))[0].generation


def test_distributions_that_are_compared_stay_where_they_are_without_lookahead() -> None:
    local = network()
    given = jobs(local, k=0, base="klass", attention="full")
    check_equal(alone(local, given), on_ranks(local, 2, given))


@pytest.mark.parametrize("protocol", ["two_phase", "single_phase"])
def test_samples_in_one_call_are_spread_one_by_one(protocol: str) -> None:
    local = network()
    given = jobs(local, PROMPTS, k=3)
    check_equal(alone(local, given), on_ranks(local, 2, given, protocol, batch=3))


def test_an_earlier_prompt_is_reused_on_all_ranks() -> None:
    local = LocalBackend(network().model, 128, "exact")
    prompts = [PROMPTS[1], PROMPTS[1], PROMPTS[0]]
    given = jobs(local, prompts, k=2)
    found = on_ranks(local, 2, given, prompts=prompts, reuse="exact")
    check_equal(alone(local, given, prompts), found)
    assert [outcome.cached > 0 for outcome in found[1]] == [False, True, False]


def test_only_masked_positions_and_three_numbers_for_each_are_sent() -> None:
    """Ids, probabilities, confidences; the vocabulary stays where it is."""
    local = network()
    links: dict[int, Any] = {}
    given = jobs(local, PROMPTS[:1], k=3)
    found = on_ranks(local, 2, given, check=False, meddle=lambda rank, backend: links.update({rank: backend.link}))
    generation, traffic = found[0][0].generation, found[0][0].traffic
    assert generation is not None
    assert traffic is not None
    assert len(traffic) == generation.forwards
    assert {shape[0] for shape in links[0].shapes} == {3}
    assert max(shape[1] for shape in links[0].shapes) <= 2 * max(step.window_width for step in generation.steps)
    assert all(bytes_.readout % 12 == 0 and bytes_.readout > 0 for bytes_ in traffic)


@pytest.mark.parametrize(
    ("protocol", "settings"),
    [
        ("two_phase", {"attention": "full", "gen_length": 24, "block_size": 8}),
        ("two_phase", {"base": "greedy", "block_size": 3}),
        ("single_phase", {"base": "greedy", "block_size": 3}),
    ],
)
@pytest.mark.parametrize("ranks", [2, 3])
def test_what_one_of_several_rows_keeps_reaches_all_ranks(ranks: int, protocol: str, settings: dict[str, Any]) -> None:
    """By one message of all layers from the winner's rank; or by each rank's own row, without any."""
    local = network()
    given = jobs(local, PROMPTS[:1], k=2, **settings)
    found = on_ranks(local, ranks, given, protocol)
    check_equal(alone(local, given), found)
    generation = found[0][0].generation
    assert generation is not None
    kept = [step.kept[1] - step.kept[0] for step in generation.steps if step.kept and step.branches > 1]
    assert kept, "a case without a commit of several rows shows nothing"
    per_position = 2 * local.config.layers * local.config.kv_heads * local.config.head_dim * 4
    for (outcome,) in found:
        sent = sum(bytes_.commit for bytes_ in outcome.traffic or ())
        assert sent == (sum(kept) * per_position if protocol == "two_phase" else 0)


def test_a_cache_that_differs_is_found_by_the_check() -> None:
    local = network()

    def meddle(rank: int, backend: RankedBackend) -> None:
        if rank == 1:
            backend.model = load_model(MODELS / "dream_a", torch.float32, torch.device("cpu"))
            with torch.no_grad():
                backend.model.layers[0].attention.qkv_proj.weight[-1] += 1.0

    with pytest.raises(
        BackendError, match=r"branch_check: rank 1 keeps other keys and values than rank 0 for positions"
    ):
        on_ranks(local, 2, jobs(local, k=3), "single_phase", meddle=meddle)


def test_a_cache_that_is_damaged_later_is_found_behind_the_next_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    commit = RankedSession._commit

    def damaging(session: RankedSession, keep: Keep) -> None:
        if session.link.rank == 1 and keep.start > 3:
            session.cache.v_LKPE[-1, 0, 2, 0] += 0.01
        commit(session, keep)

    monkeypatch.setattr(RankedSession, "_commit", damaging)
    with pytest.raises(BackendError, match=r"rank 1 keeps other keys and values than rank 0 for positions \[0, \d+\)"):
        on_ranks(network(), 2, jobs(network(), k=3, gen_length=24, block_size=4))


def test_single_phase_is_left_where_branches_differ_in_what_is_kept() -> None:
    """Settings refuse it; a decoder of one's own may still ask for it."""
    local = network()
    with pytest.raises(
        BackendError, match=r"single_phase: the branches differ before position \d+.*allowed: two_phase"
    ):
        on_ranks(local, 2, jobs(local, k=3, attention="full", gen_length=24, block_size=8), "single_phase")


def test_a_model_whose_numbers_are_not_finite_fails_the_sample_on_all_ranks() -> None:
    local = network()
    with torch.no_grad():
        local.model.norm.weight[:] = torch.nan
    found = on_ranks(local, 3, jobs(local, k=3))
    assert [[outcome.status for outcome in rank] for rank in found] == [["non_finite"] * 2] * 3
