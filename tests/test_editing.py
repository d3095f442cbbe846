"""Decoders that change what they have filled: their rules, by hand and against the decoders that they come from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from decoders import Base, DecoderConfig, decode, make_decoder
from decoders.parts.editing_fills import JointThreshold, Saber, Wino
from decoders.parts.fills import Fill, View, top
from decoders.parts.set_fills import Hierarchy
from decoders.parts.windows import Blocks
from decoders.state import REMASK, Borders, Branch
from tests.golden_cases import backend as network
from tests.toy import END, MASK, VOCAB, Logits, hashed, run


def turning(first: list[int], then: list[int], prob: float = 0.9) -> Logits:
    """Says `first` of a position while its left neighbour is a mask, `then` behind a filled one. The prompt is 0."""

    def logits(ids: np.ndarray, start: int) -> np.ndarray:
        out = np.full((*ids.shape, VOCAB.size), np.log((1 - prob) / (VOCAB.size - 2)))
        for row, tokens in enumerate(ids):
            for column in range(len(tokens)):
                i = start + column - 1
                if 0 <= i < len(then):
                    alone = column > 0 and tokens[column - 1] == MASK
                    out[row, column, first[i] if alone else then[i]] = np.log(prob)
        return out

    return logits


def flipping(ids: np.ndarray, start: int) -> np.ndarray:
    """Always sure of the other one of two tokens: whatever is edited is edited again."""
    out = np.full((*ids.shape, VOCAB.size), -9.0)
    rows, columns = np.indices(ids.shape)
    out[rows, columns, np.where(ids == 1, 2, 1)] = 0.0
    return out


def joint(**settings: Any) -> DecoderConfig:
    return DecoderConfig(name="joint_threshold", gen_length=4, block_size=4, **settings)


def test_a_round_fills_and_edits_at_once_and_a_block_ends_when_nothing_changes() -> None:
    """All are filled at once; behind that every neighbour stands, and three of four change their mind."""
    steps = run(turning([1, 1, 1, 1], [1, 2, 3, 4]), joint()).steps
    assert [step.positions for step in steps] == [(1, 2, 3, 4), (), ()]
    assert [[tuple(edit) for edit in step.edits or ()] for step in steps] == [[], [(2, 1, 2), (3, 1, 3), (4, 1, 4)], []]
    assert [step.masks_left for step in steps] == [0, 0, 0]


def test_an_edit_needs_more_than_its_threshold_and_another_token() -> None:
    model = turning([1, 1, 1, 1], [1, 2, 3, 4], prob=0.75)
    assert run(model, joint(tau_edit=0.76)).edits == 0
    assert run(model, joint(tau_edit=0.74)).edits == 3
    assert run(model, joint(tau_edit=0.74)).ids == (1, 2, 3, 4)


@pytest.mark.parametrize("cap", [0, 1, 3])
def test_the_cap_ends_a_block_that_never_stands_still_in_both_ways(cap: int) -> None:
    """`verify` looks once more and changes nothing; `end` leaves the last edits unseen. The text is the same."""
    texts = set()
    for capped, looks in (("verify", cap + 1), ("end", cap)):
        made = run(flipping, joint(max_post_edit=cap, capped=capped))
        texts.add(made.ids)
        assert [len(step.positions) for step in made.steps] == [4, *[0] * looks]
        assert [len(step.edits or ()) for step in made.steps] == [0, *[4] * cap, *[0] * (looks - cap)]
    assert texts == {(1, 1, 1, 1) if cap % 2 == 0 else (2, 2, 2, 2)}


def test_the_slowest_decode_ends_within_its_budget() -> None:
    """One mask a forward, as nothing passes; then as many looks as the cap allows, and the one that changes nothing."""
    for cap in (0, 1, 3):
        assert run(flipping, joint(tau_conf=1.0, max_post_edit=cap)).forwards == 4 + cap + 1


def test_an_end_token_that_is_edited_away_ends_nothing_and_one_that_an_edit_brings_ends_the_text() -> None:
    config, more = replace(joint(), gen_length=8), [5, 6, 5, 6]
    away = run(turning([1, END, 3, 4, *more], [1, 2, 3, 4, *more]), config)
    assert (away.ids, away.finish_reason) == ((1, 2, 3, 4, *more), "length")
    brought = run(turning([1, 2, 3, 4, *more], [1, END, 3, 4, *more]), config)
    assert (brought.ids, brought.finish_reason, brought.window_tokens) == ((1, END), "eos", 4)


@pytest.mark.parametrize("shifted", [False, True])
def test_a_penalty_holds_down_the_token_that_stands_left_in_the_same_block(shifted: bool) -> None:
    """Everywhere 3 is best and 5 the next: they come to alternate, anew in each block."""
    logits = np.log([0.02, 0.02, 0.02, 0.6, 0.01, 0.3, 0.01, 0.01, 0.005, 0.005])
    made = run(
        lambda ids, start: np.tile(logits, (*ids.shape, 1)), replace(joint(penalty=2.0), gen_length=8), shifted=shifted
    )
    assert made.ids == (3, 5, 3, 5) * 2


def test_where_too_few_pass_the_best_are_filled() -> None:
    model = turning([1, 1, 1, 1], [1, 1, 1, 1], prob=0.75)
    assert [len(step.positions) for step in run(model, joint(tau_conf=0.76, tokens_per_step=3)).steps] == [3, 1, 0]
    assert [len(step.positions) for step in run(model, joint(tau_conf=0.74, tokens_per_step=3)).steps] == [4, 0]


quick = settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))


@quick
@given(st.integers(0, 10**6), st.integers(1, 7), st.sampled_from([0.2, 0.5, 0.9]),
       st.sampled_from(["prompt", "absolute"]), st.integers(1, 5), st.booleans())  # fmt: skip
def test_without_edits_joint_threshold_is_llada2_and_one_forward_more_a_block(
    seed: int, block: int, tau: float, grid: str, prompt: int, shifted: bool
) -> None:
    shared: dict[str, Any] = {"gen_length": 12, "block_size": block, "tau_conf": tau, "cache": "none", "grid": grid}
    plain = run(hashed(seed), DecoderConfig(name="llada2", **shared), list(range(prompt)), shifted)
    made = run(
        hashed(seed), DecoderConfig(name="joint_threshold", tau_edit=1.0, **shared), list(range(prompt)), shifted
    )
    assert made.edits == 0
    if END in plain.ids:  # it may end inside a block
        return
    assert made.ids == plain.ids
    assert [step.positions for step in made.steps if step.positions] == [step.positions for step in plain.steps]
    assert made.forwards - plain.forwards == Borders(prompt, 12, block, grid).blocks


class Capped(Fill):
    """A threshold with WINO's cap."""

    reads: ClassVar[Mapping[str, Any]] = {"tau_conf": 0.6}

    def select(self, view: View, branch: Branch) -> np.ndarray:
        cap = min(max(int(0.7 * len(view)), 5), 20)
        best = top(view.prob, cap)
        return best[: max(1, int((view.prob[best] > self.config.tau_conf).sum()))]


CAPPED = Base("capped", Blocks, {"capped": Capped}, ("none", "exact", "prefix", "dual"), {"attention": "full"})


@quick
@given(st.integers(0, 10**6), st.sampled_from([0.1, 0.3, 0.6]), st.sampled_from([7, 32]), st.booleans())
def test_wino_that_takes_nothing_back_is_a_threshold_with_a_cap(
    seed: int, tau: float, block: int, shifted: bool
) -> None:
    shared: dict[str, Any] = {"gen_length": 32, "block_size": block, "tau_conf": tau, "decode_tail": True}
    wino = run(hashed(seed), DecoderConfig(name="wino", tau_back=0.0, **shared), shifted=shifted)
    plain = run(hashed(seed), DecoderConfig(name="capped", target=f"{__name__}:CAPPED", **shared), shifted=shifted)
    assert wino.ids == plain.ids
    assert [set(step.positions) for step in wino.steps] == [set(step.positions) for step in plain.steps]
    assert wino.edits == 0
    extra = [a.tokens_processed - b.tokens_processed for a, b in zip(wino.steps, plain.steps)]
    assert set(extra) <= {block, 32 % block}  # the shadows of the block


def test_wino_takes_back_what_a_shadow_doubts_and_never_as_many_as_the_forward_before_has_filled() -> None:
    """All that stands is doubted."""
    wild = run(flipping, DecoderConfig(name="wino", gen_length=12, block_size=12, tau_conf=0.5, tau_back=1.0))
    filled = [len(step.positions) for step in wild.steps]
    taken = [len(step.edits or ()) for step in wild.steps]
    assert filled[0] == int(0.7 * 12)
    assert taken[0] == 0
    assert all(back < before for back, before in zip(taken[1:], filled))
    assert any(taken)
    assert all(back == 0 for back, made in zip(taken, filled) if made == 1)
    assert wild.forwards <= 12


def view_of(position: list[int], prob: list[float]) -> View:
    n, values = len(position), np.array(prob, dtype=np.float32)
    return View(np.array(position, int), np.ones(n, int), np.zeros(n, int), values, values, np.ones(n, bool))


def with_standing(masks: View, standing: View) -> View:
    return View(**{**vars(masks), "standing": standing})


def rule(fill: type[Fill], length: int, **changes: Any) -> Fill:
    return fill(DecoderConfig(**changes), Borders(1, length, length), np.random.default_rng(0).random)


def test_saber_fills_above_the_mean_and_takes_back_what_fell_most() -> None:
    """By hand, positions 1 to 4. First two are filled, .9 and .7 (nothing passes before the first), and of them one is
    taken back: .7 rose least from nothing. Then the mean is .8, .7 still in it.
    """
    saber, branch = rule(Saber, 4, tokens_per_step=2), Branch.start([0])
    chosen, revision = saber.decide(with_standing(view_of([1, 2, 3, 4], [0.9, 0.5, 0.7, 0.6]), view_of([], [])), branch)
    assert chosen.tolist() == [0]
    assert revision is not None
    assert revision.positions.tolist() == []
    masks, standing = view_of([2, 3, 4], [0.85, 0.65, 0.82]), view_of([1], [0.3])
    chosen, revision = saber.decide(with_standing(masks, standing), branch)
    assert chosen.tolist() == [0, 2]  # .85 and .82 are above .8; position 3 is not
    assert revision is not None
    assert (revision.positions.tolist(), revision.tokens.tolist()) == ([1], [REMASK])  # from .9 to .3
    masks, standing = view_of([1, 3], [0.2, 0.1]), view_of([2, 4], [0.0, 0.0])
    chosen, revision = saber.decide(with_standing(masks, standing), branch)
    assert sorted(chosen.tolist()) == [0, 1]  # the two best, which leaves no mask: nothing is taken back
    assert revision is not None
    assert revision.positions.tolist() == []


@pytest.mark.parametrize(("filled", "taken"), [(2, 1), (8, 1), (9, 2), (17, 3)])
def test_saber_takes_back_an_eighth_of_what_it_fills(filled: int, taken: int) -> None:
    saber, branch = rule(Saber, 30, tokens_per_step=2), Branch.start([0])
    saber.decide(with_standing(view_of(list(range(1, 31)), [0.5, 0.5] + [0.1] * 28), view_of([], [])), branch)
    masks = view_of(list(range(3, 31)), [0.6] * filled + [0.1] * (28 - filled))
    chosen, revision = saber.decide(with_standing(masks, view_of([1, 2], [0.5, 0.5])), branch)
    assert revision is not None
    assert filled - len(chosen) + len(revision.positions) == taken


def test_saber_may_open_a_finished_block_again() -> None:
    """And then that block's masks take part with those of the newest."""
    opened = 0
    for seed in range(20):
        made = run(hashed(seed), DecoderConfig(name="saber", gen_length=12, block_size=4, decode_tail=True))
        newest = 0
        for step in made.steps:
            newest = max([newest, *((position - 1) // 4 for position in step.positions)])
            opened += any((edit.position - 1) // 4 < newest for edit in step.edits or ())
        assert made.forwards <= 12
        assert len(made.ids) == 12
    assert opened


def test_hierarchy_fills_the_best_of_every_run_of_masks() -> None:
    """Runs 1-3, 5, 7-8; the last one's best is not above .5. All above .9 are filled besides."""
    choose = rule(Hierarchy, 8, tau_conf=0.9, tau_run=0.5)
    view = view_of([1, 2, 3, 5, 7, 8], [0.95, 0.96, 0.6, 0.51, 0.5, 0.4])
    assert choose.select(view, Branch.start([0])).tolist() == [0, 1, 3]
    low = view_of([1, 2, 4], [0.1, 0.2, 0.3])
    assert choose.select(low, Branch.start([0])).tolist() == [2]  # the best of all, whatever it is
    blocks = View(**{**vars(view_of([1, 2], [0.6, 0.7])), "block": np.array([1, 2])})
    assert choose.select(blocks, Branch.start([0])).tolist() == [0, 1]  # a run ends with its block


@pytest.mark.parametrize("name", ["joint_threshold", "wino"])
def test_caches_change_nothing_of_an_editing_decode(name: str) -> None:
    """The tiny LLaDA2, block-causal on its grid: ids, fills and edits with the exact cache and with none."""
    made = []
    for cache in ("none", "exact"):
        for capped in ("verify", "end"):
            settings: dict[str, Any] = {
                "cache": cache,
                "grid": "absolute",
                "attention": "block_causal",
                "tau_conf": 0.3,
            }
            settings |= {"capped": capped, "max_post_edit": 2, "penalty": 2.0} if name == "joint_threshold" else {}
            config = DecoderConfig(name=name, gen_length=24, block_size=8, **settings)
            outcome = network("llada2_a").decode(decode(make_decoder(config), [5, 9, 11], VOCABULARY))
            assert outcome.generation is not None
            made.append([(step.positions, step.tokens, step.edits) for step in outcome.generation.steps])
    assert made[:2] == made[2:]
    assert any(edits for _, _, edits in made[0])


VOCABULARY = type(VOCAB)(mask_id=96, end_ids=(), size=97)


def test_thresholds_of_editing_are_strict() -> None:
    """At exactly three quarters nothing is edited, and WINO takes nothing back."""
    branch = Branch(np.array([0, 1, 2, MASK, MASK]), [0, 2], [True, True])
    standing = view_of([1, 2], [0.75, 0.8125])
    masks = view_of([3, 4], [0.75, 0.8125])
    for tau, filled, edited in ((0.75, [1], [2]), (0.5, [0, 1], [1, 2])):
        fill = rule(JointThreshold, 4, tau_conf=tau, tau_edit=tau, max_post_edit=9, capped="end", tokens_per_step=1)
        chosen, revision = fill.decide(with_standing(masks, standing), branch.copy())
        assert revision is not None
        assert (chosen.tolist(), revision.positions.tolist()) == (filled, edited)
    shadows = View(**{**vars(standing), "measures": {"shadow": np.array([0.75, 0.5])}})
    for back, taken in ((0.5, []), (0.75, [2]), (0.8, [1, 2])):
        chosen, revision = rule(Wino, 4, tau_conf=0.5, tau_back=back).decide(
            with_standing(masks, shadows), branch.copy()
        )
        assert revision is not None
        assert (chosen.tolist(), revision.positions.tolist()) == ([0, 1], taken)
