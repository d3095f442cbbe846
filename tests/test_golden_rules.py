"""The rules on exact ties, where no trace of a program can decide: strictness, forced picks, winners.

Together with the traces these are the mutation check: turning `>` into `>=` in the threshold rule, dropping the forced
pick, or taking the runner-up branch makes tests named `golden` fail (tests/README.md has the commands).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from decoders import DecoderConfig, ScoreConfig, make_decoder
from decoders.lookahead.score import unique
from decoders.parts.fills import View
from decoders.parts.first_position import make_fill
from decoders.parts.scores import Mean, Score
from decoders.state import Borders, Branch
from tests.toy import MASK, VOCAB, fixed, run


def view_of(probs: list[float], block: int = 1) -> View:
    n = len(probs)
    values = np.array(probs, dtype=np.float32)
    blocks = np.full(n, block)
    return View(np.arange(n), blocks, np.zeros(n, dtype=int), values, values, np.ones(n, dtype=bool))


def select(probs: list[float], **settings: object) -> list[int]:
    """What one round of Fast-dLLM's block rule fills."""
    decoder = make_decoder(DecoderConfig(name="fast_dllm", gen_length=len(probs), **settings))
    fill = make_fill(decoder.rule, decoder.config, Borders(0, len(probs), len(probs)), np.random.default_rng(0).random)
    return fill.select(view_of(probs), Branch.start([0])).tolist()


def rating(kind: type[Score], score: ScoreConfig, probs: list[float], branch: Branch | None = None) -> float:
    """The score of a branch, by default an anchor, whose masks have these probabilities."""
    decoder = make_decoder(DecoderConfig(confidence="prob", gen_length=8, score=score))
    borders = Borders(0, 8, 8)
    fill = make_fill(decoder.rule, decoder.config, borders, np.random.default_rng(0).random)
    view = view_of(probs)
    entropy = {"neg_entropy": np.log(view.prob) * 0.5}
    return kind(decoder.config, borders, VOCAB, fill).rate(branch or Branch.start([0]), replace(view, measures=entropy))


def test_golden_threshold_is_strict() -> None:
    """prob > tau, never >= (LoPA eq. 1): a mask exactly at the threshold waits."""
    assert select([0.5, 0.75, 0.25], tau_conf=0.5) == [1]


def test_golden_forced_pick_when_nothing_passes() -> None:
    assert select([0.5, 0.75, 0.25], tau_conf=0.75) == [1]


@pytest.mark.parametrize(("forced", "filled"), [("per_block", [1, 2]), ("global", [1])])
def test_golden_forced_pick_per_block_or_global(forced: str, filled: list[int]) -> None:
    """Two activated blocks, nothing passes: one pick in each (released), or one in all (article)."""
    view = replace(view_of([0.1, 0.4, 0.3, 0.2]), block=np.array([1, 1, 2, 2]))
    decoder = make_decoder(DecoderConfig(name="d2f", gen_length=4, block_size=2, forced=forced))
    fill = make_fill(decoder.rule, decoder.config, Borders(0, 4, 2), np.random.default_rng(0).random)
    assert fill.select(view, Branch.start([0])).tolist() == filled


def test_golden_factor_rule() -> None:
    """The largest n with (n + 1)(1 - c_n) < f: here .1, .3, 1.2, so f = 1 takes two and f = .05 the best alone."""
    assert select([0.7, 0.95, 0.9], fill="factor", factor=1.0) == [1, 2]
    assert select([0.7, 0.95, 0.9], fill="factor", factor=0.05) == [1]
    assert select([0.7, 0.95, 0.9], fill="factor_released", factor=1.0) == [1, 2, 0]


def test_golden_factor_rule_is_strict() -> None:
    """3 x (1 - .75) is exactly .75: not below a factor of .75, but below the next greater one."""
    assert select([0.875, 0.75], fill="factor", factor=0.75) == [0]
    assert select([0.875, 0.75], fill="factor", factor=0.7500001) == [0, 1]


def test_golden_budget_carries_over_what_a_step_left() -> None:
    """Six masks in three steps, two a step. Nothing passes at first: one is filled, one is left over, so that the next
    step fills three of the five that pass."""
    decoder = make_decoder(DecoderConfig(name="dream", fill="budget", gen_length=6, steps=3, tau_conf=0.8))
    fill = make_fill(decoder.rule, decoder.config, Borders(0, 6, 6), np.random.default_rng(0).random)
    branch = Branch.start([0])
    assert fill.select(view_of([0.5, 0.7, 0.5, 0.5, 0.5, 0.5]), branch).tolist() == [1]
    assert fill.select(view_of([0.9, 0.95, 0.9, 0.9, 0.9]), branch).tolist() == [1, 0, 2]


def test_golden_equal_branches_go_to_the_anchor_then_to_the_better_rank() -> None:
    """A model that ignores what was filled gives every branch equal scores per mask: the anchor must win."""
    generation = run(fixed([0.5] * 6), DecoderConfig(k=2, gen_length=6, block_size=6, confidence="prob"))
    assert {step.winner for step in generation.steps} == {0}


def test_golden_equal_candidates_in_position_order() -> None:
    """Six masks at .5, k = 2: the forced pick takes position 0, the candidates are the next two."""
    generation = run(fixed([0.5] * 6), DecoderConfig(k=2, gen_length=6, block_size=6, confidence="prob"))
    assert generation.steps[0].positions == (1,)
    assert generation.steps[1].lookahead_positions == (2, 3)


@pytest.mark.parametrize(
    ("score", "expected"),
    [
        ({}, 0.5),
        ({"bottom": 0.5}, 0.3),
        ({"bottom": 0.01}, 0.2),
        ({"window": 2}, 0.4),
        ({"window": 9}, 0.5),
    ],
)
def test_golden_branch_scores(score: dict[str, Any], expected: float) -> None:
    """Mean over the masks, over the lowest fraction (at least one mask), or the lowest sliding mean."""
    assert rating(Mean, ScoreConfig(**score), [0.4, 0.6, 0.2, 0.8]) == pytest.approx(expected)


def test_golden_duplicate_branches_collapse_and_the_first_stays() -> None:
    anchor = Branch(np.array([1, MASK]), [0, 1], [True, True])
    twin, other = anchor.copy(), Branch(np.array([1, 2]), [0, 0], [True, True])
    assert unique([anchor, other, twin]) == [anchor, other]
    assert unique([anchor, other, twin])[0] is anchor


@pytest.mark.parametrize(("probs", "filled"), [([0.5, 0.75, 0.5], [1]), ([0.75, 0.875, 0.5], [0, 1])])
def test_golden_sdars_threshold_is_strict(probs: list[float], filled: list[int]) -> None:
    """conf > tau, and only if as many pass as the step's quota (here 1): a mask exactly at the threshold waits."""
    decoder = make_decoder(DecoderConfig(name="sdar", gen_length=3, block_size=3, tau_conf=0.5))
    fill = make_fill(decoder.rule, decoder.config, Borders(0, 3, 3), np.random.default_rng(0).random)
    assert fill.select(view_of(probs), Branch.start([0])).tolist() == filled
