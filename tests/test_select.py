"""Choices among branches that do not go by a score: what they confirm, and what a score is made of."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from decoders import DecoderConfig, make_decoder
from decoders.lookahead.auto import AUTO, AUTO_ROWS
from tests.toy import MASK, VOCAB, fixed, hashed, run

SEEDS = range(12)


def on(base: str, **changes: object) -> DecoderConfig:
    size = {} if base == "dream" else {"block_size": 6}
    return DecoderConfig(**{"base": base, "gen_length": 11, **size, **changes})


@pytest.mark.parametrize("base", ["d2f", "fast_dllm", "greedy", "dream", "joint_threshold"])
def test_a_gate_that_nothing_passes_leaves_the_base(base: str) -> None:
    """No probability is above 1: the anchor wins every round, and no complete branch ends the text unconfirmed."""
    for seed in SEEDS:
        plain, gated = run(hashed(seed), on(base, k=0)), run(hashed(seed), on(base, k=3, select="gate", gate=1.0))
        assert gated.ids == plain.ids
        assert [(step.positions, step.edits) for step in gated.steps] == [
            (step.positions, step.edits) for step in plain.steps
        ]
        assert not any(step.winner for step in gated.steps)


def test_a_branch_wins_the_gate_only_with_a_token_that_the_anchors_row_still_holds_best() -> None:
    won = 0
    for seed in range(40):
        for step in run(hashed(seed), on("fast_dllm", k=3, select="gate", gate=0.4)).steps:
            if step.winner:
                won += 1
                assert step.fresh_probs is not None
                assert (step.fresh_probs[step.winner - 1] or 0) > 0.4
    assert won > 20


def test_a_confirmed_branch_gains_its_own_position() -> None:
    """Predictions stand still: the anchor, whose masks are surer, would fill one, the branch has then filled two."""
    made = run(fixed([0.9, 0.8, 0.7, 0.6, 0.55]), on("greedy", gen_length=5, k=1, select="gate"))
    assert [step.winner for step in made.steps] == [0, 1, 1]


def test_confirmed_drafts_over_greedy_are_greedy() -> None:
    """One token a step: what the rule confirms is what it fills."""
    for seed in SEEDS:
        plain, ahead = run(hashed(seed), on("greedy", k=0)), run(hashed(seed), on("greedy", k=4, select="confirm"))
        assert ahead.ids == plain.ids
        assert [fill for step in ahead.steps for fill in step.base_steps] == [
            fill for step in plain.steps for fill in step.base_steps
        ]


def test_a_threshold_confirms_what_the_rule_alone_would_not_fill() -> None:
    """Fast-dLLM forces one mask a step, the draft holds three such steps. Where predictions stand still the rule
    confirms all of them; where their order turns round, it confirms none, a threshold of .5 all; the one most confident
    mask of the block is another.
    """
    config = on("fast_dllm", gen_length=6, k=3, select="confirm")
    still, likely = fixed([0.95, 0.7, 0.68, 0.66, 0.64, 0.62]), replace(config, confirm=0.5)
    assert run(still, config).steps[1].base_fills == (1, 1, 1, 1)
    assert run(turning, config).steps[1].base_fills == (1,)
    assert run(turning, likely).steps[1].base_fills == (1, 1, 1, 1)
    assert run(turning, likely).steps[1].taken_probs == pytest.approx((0.62, 0.64, 0.66))
    assert run(turning, replace(likely, confirm_best=True)).steps[1].base_fills == (1,)
    least = (run(turning, likely).steps[1].taken_probs or ())[0]
    assert run(turning, replace(config, confirm=least)).steps[1].base_fills == (1,)  # at exactly its threshold it waits


def turning(ids: np.ndarray, start: int) -> np.ndarray:
    """The order of the masks by confidence turns round once a position is filled."""
    out = np.empty((*ids.shape, VOCAB.size))
    for row, tokens in enumerate(ids):
        order = [0.7, 0.68, 0.66, 0.64, 0.62]
        is_filled = (tokens != MASK).sum() > 1
        out[row] = fixed([0.95, *(reversed(order) if is_filled else order)])(ids[row : row + 1], start)[0]
    return out


def test_auto_is_what_it_stands_for() -> None:
    for seed in SEEDS:
        spelt = run(hashed(seed), on("d2f", k=AUTO_ROWS, **AUTO))
        assert run(hashed(seed), on("d2f", k="auto")) == spelt
    assert make_decoder(on("d2f", k="auto")).config.k == "auto"


def test_a_score_is_the_removal_bonus_and_the_paired_gain() -> None:
    """In one block no branch has masks that the anchor has not: nothing else is in the difference of the means."""
    told = 0
    for seed in SEEDS:
        for step in run(hashed(seed), on("greedy", k=3, block_size=11, confidence="neg_entropy")).steps:
            for score, bonus, gain in zip(step.scores[1:], step.bonus or (), step.gain or ()):
                assert bonus is not None
                assert gain is not None
                assert score - step.scores[0] == pytest.approx(bonus + gain, abs=1e-6)
                told += 1
    assert told > 100


def test_the_bonus_is_for_the_mask_that_left_whatever_the_token_is() -> None:
    """Predictions stand still: .8 fills first; of .6, .5, .25 (mean .45) a branch gains (.45 - c) / 2 and no more."""
    generation = run(fixed([0.8, 0.6, 0.5, 0.25]), on("greedy", gen_length=4, k=3, confidence="prob"))
    step = generation.steps[1]
    assert step.bonus == pytest.approx((-0.075, -0.025, 0.1), abs=1e-6)
    assert step.gain == pytest.approx((0, 0, 0), abs=1e-6)
    assert step.winner == 3  # the least certain
    assert step.fresh_probs == pytest.approx((0.6, 0.5, 0.25))
