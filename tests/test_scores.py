"""Branch scores: their values, what a complete branch is worth, and that it never matters when that is found out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from decoders import DecoderConfig, DecoderError, Generation, ScoreConfig, make_decoder
from decoders.parts.fills import View
from decoders.parts.first_position import make_fill
from decoders.parts.scores import SCORES, Score
from decoders.state import Borders, Branch, Extra
from tests.toy import MASK, VOCAB, fixed, hashed, run

LAYOUT = Borders(prompt=1, length=8, block=8)
ANCHOR = Branch.start([0])


def lookahead(prob: float, confidence: float) -> Branch:
    return replace(ANCHOR, extra=Extra(position=1, token=0, prob=prob, confidence=confidence))


def score_of(settings: ScoreConfig, confidence: str = "prob", **decoder: object) -> Score:
    made = make_decoder(DecoderConfig(k=1, gen_length=8, confidence=confidence, score=settings, **decoder))
    fill = make_fill(made.rule, made.config, LAYOUT, np.random.default_rng(0).random)
    return made.scorer(made.config, LAYOUT, VOCAB, fill)


def masks(probs: list[float], entropies: list[float] | None = None) -> View:
    n, values = len(probs), np.array(probs, dtype=np.float32)
    measures = {} if entropies is None else {"neg_entropy": np.array(entropies, dtype=np.float32)}
    at = np.arange(1, n + 1)
    return View(at, np.ones(n, dtype=int), np.zeros(n, dtype=int), values, values, np.ones(n, dtype=bool), measures)


def test_the_mean_takes_the_ranking_confidence() -> None:
    """.4 and .6 by probability, -1 and -3 by negative entropy."""
    view = masks([0.4, 0.6], [-1.0, -3.0])
    assert score_of(ScoreConfig()).rate(ANCHOR, view) == pytest.approx(0.5)
    assert score_of(ScoreConfig(), "neg_entropy").rate(ANCHOR, view) == pytest.approx(-2.0)


def test_the_creation_weight_is_the_share_of_the_extra_token() -> None:
    """.25 x .8 + .75 x .4; the anchor counts as 1; without masks the future is 1."""
    score = score_of(ScoreConfig(creation_weight=0.25))
    assert score.rate(lookahead(0.3, 0.8), masks([0.4])) == pytest.approx(0.5)
    assert score.rate(ANCHOR, masks([0.4])) == pytest.approx(0.55)
    assert score.rate(lookahead(0.3, 0.8), masks([])) == pytest.approx(0.95)


def test_mixed_weighs_the_extra_token_by_alpha_and_certainty_by_the_rest() -> None:
    """Entropy half and a quarter of ln V: certainty .625. .2 x .9 + .8 x .625 = .68; the anchor's token counts as 1."""
    view = masks([0.5, 0.5], [-0.5 * np.log(VOCAB.size), -0.25 * np.log(VOCAB.size)])
    score = score_of(ScoreConfig(kind="mixed", alpha=0.2))
    assert score.rate(lookahead(0.9, 0.1), view) == pytest.approx(0.68)
    assert score.rate(ANCHOR, view) == pytest.approx(0.7)
    assert score_of(ScoreConfig(kind="mixed")).rate(ANCHOR, view) == pytest.approx(0.7 + 0.3 * 0.625)


def test_next_fill_counts_what_the_rule_would_fill_and_breaks_ties_by_the_mean() -> None:
    """Two pass .8; none passes: one is forced. Equal counts: the surer text wins, by less than a position."""
    score = score_of(ScoreConfig(kind="next_fill"), tau_conf=0.8)
    assert score.rate(ANCHOR, masks([0.9, 0.85, 0.1])) == pytest.approx(2 + 0.6166667 / 64)
    assert score.rate(ANCHOR, masks([0.3, 0.1])) == pytest.approx(1 + 0.2 / 64)


def test_next_fill_leaves_a_schedule_where_it_stands() -> None:
    score = score_of(ScoreConfig(kind="next_fill"), base="llada", steps=2, block_size=8)
    branch = replace(ANCHOR, memory=(1, 8))
    score.rate(branch, masks([0.5] * 4))
    assert branch.memory == (1, 8)


def test_what_a_score_draws_at_random_moves_no_fill() -> None:
    """The base's random rule is asked what it would fill next: the fills are those of the base all the same."""
    plain = DecoderConfig(name="dream", fill="origin", gen_length=9)
    scored = replace(plain, name="lopa", base="dream", score=ScoreConfig(kind="next_fill"))
    for seed in range(3):
        filled = [step.positions for step in run(hashed(seed), plain).steps]
        assert [step.positions for step in run(hashed(seed), scored).steps] == filled


@pytest.mark.parametrize("kind", SCORES)
def test_a_branch_without_masks_is_worth_at_least_as_much_as_any_with_masks(kind: str) -> None:
    """Whatever its extra token was worth: nothing is left that could go wrong."""
    for confidence in ("prob", "margin", "neg_entropy"):
        assert score_of(ScoreConfig(kind=kind), confidence).settles(lookahead(0.01, -3.0))


def test_a_branch_without_masks_can_be_beaten_where_its_own_token_counts() -> None:
    """By probability .5 x .2 + .5 = .6 against at most 1; by negative entropy .25 x -1 + .75 = .5 against at most .25,
    and .25 x -3 + .75 = 0."""
    by_probability = score_of(ScoreConfig(creation_weight=0.5))
    assert not by_probability.settles(lookahead(0.2, 0.2))
    assert by_probability.settles(lookahead(1.0, 1.0))
    by_entropy = score_of(ScoreConfig(creation_weight=0.25), "neg_entropy")
    assert by_entropy.settles(lookahead(0.9, -1.0))
    assert not by_entropy.settles(lookahead(0.2, -3.0))


@pytest.mark.parametrize("kind", SCORES)
def test_the_last_mask_is_filled_by_its_branch_and_costs_no_forward(kind: str) -> None:
    """.9, .5, .4 under a threshold of .95: the first is forced; then .5, and the branch of .4 is the whole text."""
    config = DecoderConfig(k=1, gen_length=3, tau_conf=0.95, score=ScoreConfig(kind=kind))
    generation = run(fixed([0.9, 0.5, 0.4]), config)
    assert [step.positions for step in generation.steps] == [(1,), (2,)]
    verified = run(fixed([0.9, 0.5, 0.4]), replace(config, complete="verify"))
    assert [step.positions for step in verified.steps] == [(1,), (2,), ()]
    assert (verified.ids, verified.steps[-1].winner) == (generation.ids, 1)


def pairs(score: ScoreConfig, confidence: str) -> list[tuple[Generation, Generation]]:
    found = []
    for seed in range(24):
        base, k = ("d2f", "fast_dllm", "greedy", "dream")[seed % 4], 1 + seed % 3
        block = {} if base == "dream" else {"block_size": 3 + seed % 5}
        config = DecoderConfig(base=base, k=k, gen_length=3 + seed % 11, confidence=confidence, score=score, **block)
        found.append((run(hashed(seed), config), run(hashed(seed), replace(config, complete="verify"))))
    return found


@pytest.mark.parametrize("confidence", ["prob", "neg_entropy"])
@pytest.mark.parametrize(
    "score",
    [
        *(ScoreConfig(kind=kind) for kind in SCORES),
        ScoreConfig(kind="mixed", alpha=0.0),
        ScoreConfig(kind="mixed", alpha=1.0),
        ScoreConfig(creation_weight=0.5),
        ScoreConfig(creation_weight=1.0),
    ],
    ids=str,
)
def test_verifying_a_complete_branch_never_changes_the_text(score: ScoreConfig, confidence: str) -> None:
    """It costs a forward at most, which fills nothing."""
    for ended, verified in pairs(score, confidence):
        assert ended.ids == verified.ids
        assert ended.forwards <= verified.forwards <= ended.forwards + 1


@pytest.mark.parametrize("kind", SCORES)
def test_no_forward_fills_nothing(kind: str) -> None:
    for ended, _ in pairs(ScoreConfig(kind=kind), "prob"):
        assert all(step.positions for step in ended.steps)


def test_a_draw_goes_to_the_complete_branch_in_both_ways() -> None:
    """The anchor's last mask is certain (a score of exactly 1), but for another token than its branch holds."""

    def logits(ids: np.ndarray, start: int) -> np.ndarray:
        out = np.full((*ids.shape, VOCAB.size), -40.0)
        open_masks = (ids == MASK).sum(1)
        out[..., 1] = 0.0
        out[open_masks == 1, :, 2] = 200.0
        out[open_masks != 1, :, 3] = -1.0
        return out

    config = DecoderConfig(k=1, gen_length=2, tau_conf=0.9, confidence="prob")
    ended, verified = run(logits, config), run(logits, replace(config, complete="verify"))
    assert ended.ids == verified.ids == (1, 1)
    assert verified.steps[1].scores == (1.0, 1.0)


def test_a_draw_that_only_the_call_shows_goes_to_the_complete_branch_as_well() -> None:
    """Two masks at .5, half the extra token: .5 x .5 + .5 x 1 for the branch, .5 x 1 + .5 x .5 for the anchor."""
    config = DecoderConfig(k=1, gen_length=2, confidence="prob", score=ScoreConfig(creation_weight=0.5))
    verified = run(fixed([0.5, 0.5]), replace(config, complete="verify"))
    assert (verified.steps[1].scores, verified.steps[1].winner) == (pytest.approx((0.75, 0.75)), 1)
    ended = run(fixed([0.5, 0.5]), config)
    assert [step.positions for step in ended.steps] == [(1,), ()]


def test_a_score_that_is_not_a_number_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SCORES["mean"], "open", lambda *_: float("nan"))
    with pytest.raises(DecoderError, match=r"decoder.score.kind=mean scored a branch nan; allowed: a number"):
        run(fixed([0.5] * 3), DecoderConfig(k=1, gen_length=3))
