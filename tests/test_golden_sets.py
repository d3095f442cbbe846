"""Rules that bound how many masks are filled, against step-by-step traces of the released programs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from decoders import DecoderConfig, decode, make_decoder
from decoders.parts.fills import Factor, Fill, View
from decoders.parts.set_fills import EntropyBounded, EntropyThreshold, Frechet
from decoders.state import Borders, Branch
from tests.golden_cases import (
    CONF,
    PROB,
    Replay,
    cases_of,
    check_filled,
    check_masked,
    load,
    replay,
    set_config,
    spy,
)
from tests.toy import MASK, VOCAB, backend, fixed, hashed, run


def check_step(log: Replay, i: int, theirs: dict[str, Any], entropy: int | None) -> None:
    """What was fed, what the network said, what was filled, what was kept. `entropy`: its place in a trace's masks."""
    assert log.generation is not None
    ours, request, prediction = log.generation.steps[i], log.requests[i], log.predictions[i]
    check_masked(log, i, theirs["masked"])
    for position, _token, _prob, *more in theirs["masked"] if entropy is not None else ():
        told = -prediction.measure("neg_entropy")[0, position - request.start]
        assert told == pytest.approx(more[entropy], abs=CONF)
    check_filled(log, i, theirs["commit"])
    assert (request.start, request.ids.shape[1]) == (theirs["forward_start"], theirs["forward_len"])
    kept = theirs["kv_commit"]
    assert ours.kept == ((kept["start"], kept["end"]) if kept else None)


@pytest.mark.parametrize("name", cases_of("eb", "frechet", "entropy_threshold"))
def test_golden_set_size(name: str) -> None:
    case = load(name)
    log = replay(case, set_config(case))
    assert log.generation is not None
    assert log.generation.forwards == case["counts"]["forward_passes"]
    entropy = {"eb": 1, "entropy_threshold": 0}.get(case["decoder"])
    for i, theirs in enumerate(case["steps"]):
        check_step(log, i, theirs, entropy)
    ids = case["final"]["generated_ids"]
    if case["params"].get("stop_until_eos"):  # the program leaves masks behind the end token, our text ends with it
        ids = ids[: ids.index(case["eos_token_id"]) + 1]
    assert list(log.generation.ids) == ids


@pytest.mark.parametrize("name", cases_of("klass"))
def test_golden_klass(name: str) -> None:
    """In klass_05 the program's steps are over with one mask left, which ours fills in one forward more."""
    case = load(name)
    config = set_config(case)
    log = replay(case, config)
    assert log.generation is not None
    ids, left = case["final"]["generated_ids"], case["steps"][-1]["masked_left"]
    assert log.generation.forwards == case["counts"]["forward_passes"] + left
    for i, theirs in enumerate(case["steps"]):
        check_step(log, i, theirs, None)
        for position, _token, _prob, kl, _ready in theirs["masked"]:
            moved = log.predictions[i].measure("kl")[0, position - log.requests[i].start]
            assert moved == pytest.approx(kl, abs=PROB, rel=PROB), (i, position)
    ours = list(log.generation.ids)
    assert [mine for mine, one in zip(ours, ids) if one != case["mask_token_id"]] == [
        one for one in ids if one != case["mask_token_id"]
    ]
    assert ids.count(case["mask_token_id"]) == left == (name == "klass_05")


def test_some_of_the_traces_tell_the_rules_apart() -> None:
    """A trace in which each forward fills one mask would be passed by a rule that never fills two."""
    for decoder in ("eb", "frechet", "entropy_threshold", "klass"):
        counts = [len(step["commit"]["positions"]) for name in cases_of(decoder) for step in load(name)["steps"]]
        assert np.max(counts) > 2


def select(fill: type[Fill], probs: list[float], entropy: list[float], end: int | None = None, **settings: Any) -> Any:
    """What one round fills, best first, of masks with these probabilities and entropies."""
    n, values = len(probs), np.array(probs, dtype=np.float32)
    measures = {"neg_entropy": -np.array(entropy, dtype=np.float32)}
    view = View(np.arange(n), np.ones(n, int), np.zeros(n, int), values, values, np.ones(n, bool), measures)
    branch = replace(Branch.start([0]), end=end)
    return (
        fill(DecoderConfig(**settings), Borders(0, n, n), np.random.default_rng(0).random).select(view, branch).tolist()
    )


ONES = [0.0, 0.0, 0.0, 0.0]


def test_golden_entropy_bound_counts_the_ranks_before() -> None:
    """Best first 1, 2, 0, 3. The sum of the entropies before a rank may be gamma and not more; the rank's own may be
    any."""
    rule = {"probs": [0.5, 0.9, 0.7, 0.3], "entropy": [2.0, 0.25, 0.25, 9.0]}
    assert select(EntropyBounded, **rule, gamma=0.0) == [1]
    assert select(EntropyBounded, **rule, gamma=0.25) == [1, 2]
    assert select(EntropyBounded, **rule, gamma=0.5) == [1, 2, 0]
    assert select(EntropyBounded, **rule, gamma=1e6) == [1, 2, 0, 3]
    assert select(EntropyBounded, [1.0] * 4, ONES, gamma=0.0) == [0, 1, 2, 3]  # certain of all: no bound is needed


def test_golden_masks_behind_the_end_wait_for_those_before_it() -> None:
    rule: dict[str, Any] = {"probs": [0.5, 0.9, 0.7, 0.3], "entropy": ONES, "gamma": 0.0}
    assert select(EntropyBounded, **rule, end=2, behind_end="wait") == [1, 0]
    assert select(EntropyBounded, **rule, end=2, behind_end="fill") == [1, 2, 0, 3]
    assert select(EntropyBounded, **rule, end=0, behind_end="wait") == [1, 2, 0, 3]  # none are left before it


def test_golden_frechet_is_strict_and_with_equal_probabilities_the_factor_rule() -> None:
    """Ranks .875 .75 .5: L_n - U_n is .75, .375, -.375."""
    probs = [0.75, 0.875, 0.5]
    assert select(Frechet, probs, ONES, delta=0.75) == [1]  # none passes: the best alone
    assert select(Frechet, probs, ONES, delta=0.375) == [1]
    assert select(Frechet, probs, ONES, delta=0.374) == [1, 0]
    assert select(Frechet, probs, ONES, delta=-0.376) == [1, 0, 2]
    assert select(Frechet, [1.0] * 3, ONES, delta=0.999) == [0, 1, 2]
    for equal in (0.5, 0.75, 0.875, 0.9375):
        for delta in (0.1, 0.3, 0.7):
            count = len(select(Frechet, [equal] * 12, ONES, delta=delta))
            assert count == len(select(Factor, [equal] * 12, ONES, factor=1 - delta))


def test_golden_entropy_threshold_takes_the_threshold_itself_and_the_lowest() -> None:
    rule: dict[str, Any] = {"probs": [0.5] * 3, "entropy": [0.75, 0.5, 0.5]}
    assert select(EntropyThreshold, **rule, tau_entropy=0.5) == [1, 2]
    assert select(EntropyThreshold, **rule, tau_entropy=0.25) == [1]  # the first of equals
    assert select(EntropyThreshold, [0.5], [5.0], tau_entropy=0.0) == [0]


def test_golden_klass_waits_until_a_distribution_has_stood_still() -> None:
    """A model that says the same whatever stands there: a block's first forward follows on nothing, or on the block
    before. Sure of all but one mask, it fills one a forward until two have gone by without a move.
    """
    model = fixed([0.9, 0.8, 0.95, 0.5, 0.9, 0.8, 0.95, 0.5])
    settings: dict[str, Any] = {"gen_length": 8, "block_size": 4, "tau_conf": 0.6, "tau_kl": 1e-4}
    steps = run(model, DecoderConfig(name="klass", **settings)).steps
    assert [step.positions for step in steps] == [(3,), (1,), (2,), (4,), (7,), (5, 6), (8,)]
    longer = run(model, DecoderConfig(name="klass", kl_steps=9, **settings)).steps
    assert [step.positions for step in longer] == [(3,), (1,), (2,), (4,), (7,), (5,), (6,), (8,)]


@pytest.mark.parametrize("cache", ["none", "prefix", "dual"])
def test_what_a_row_moved_is_told_against_the_row_that_won(cache: str) -> None:
    """Lookahead over klass on an arbitrary model: each round's `kl` by hand from the logits of the rows before."""
    model = hashed(3)

    def distributions(ids: np.ndarray, start: int) -> np.ndarray:
        logits = model(ids, start)
        logits[..., MASK] = -np.inf
        weights = np.exp(logits - logits.max(-1, keepdims=True))
        return weights / weights.sum(-1, keepdims=True)

    config = DecoderConfig(
        base="klass", k=2, gen_length=9, block_size=3, tau_kl=1.0, confidence="prob", attention="full", cache=cache
    )
    log = Replay()
    outcome = backend(model).decode(spy(decode(make_decoder(config), [0], VOCAB), log))
    assert outcome.generation is not None
    before = np.zeros((10, VOCAB.size))
    winners = set()
    for request, prediction, step in zip(log.requests, log.predictions, outcome.generation.steps):
        now, masked = distributions(request.ids, request.start), request.ids == MASK
        window = before[request.start : request.start + request.ids.shape[1]]
        moved = (now * (np.log(now + 1e-12) - np.log(window + 1e-12))).sum(-1)
        assert prediction.measure("kl")[masked] == pytest.approx(moved[masked], abs=1e-4)
        window[masked[step.winner]] = now[step.winner][masked[step.winner]]
        winners.add(step.winner)
    assert len(winners) > 1
    assert len({request.start for request in log.requests}) == (1 if cache == "none" else 4)
