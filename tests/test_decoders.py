"""What a decoder owes its user, with toy models."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from decoders import Base, DecoderConfig, Generation, Request, ScoreConfig, decode, make_decoder
from decoders.families.d2f import D2F
from decoders.parts.schedules import Origin
from decoders.parts.windows import Blocks, Pipeline
from decoders.resolve import resolve
from decoders.state import Borders, Branch
from tests.golden_cases import Replay, spy
from tests.toy import END, MASK, VOCAB, Logits, backend, fixed, hashed, run

BASES = ("greedy", "llada", "dream", "fast_dllm", "d2f")


def order(generation) -> list[int]:
    return [position for step in generation.steps for position in step.positions]


@pytest.mark.parametrize("tau", [1.0, 1.5])
def test_an_unreachable_threshold_fills_one_position_a_forward(tau: float) -> None:
    """Confidences .62 .55 .97 .40 at every step: 2, 0, 1, 3 in four forwards. (1.5 is refused as a setting.)"""
    decoder = make_decoder(DecoderConfig(name="fast_dllm", gen_length=4, block_size=4, tau_conf=1.0))
    decoder = replace(decoder, config=replace(decoder.config, tau_conf=tau))
    outcome = backend(fixed([0.62, 0.55, 0.97, 0.40])).decode(decode(decoder, [0], VOCAB))
    assert outcome.generation is not None
    assert [p - 1 for p in order(outcome.generation)] == [2, 0, 1, 3]
    assert outcome.generation.forwards == 4


def test_threshold_zero_fills_everything_at_once() -> None:
    generation = run(fixed([0.62, 0.55, 0.97, 0.40]), DecoderConfig(name="fast_dllm", gen_length=4, tau_conf=0.0))
    assert generation.forwards == 1


def test_a_confidence_of_one_under_a_threshold_of_one_still_ends() -> None:
    generation = run(fixed([1.0] * 4), DecoderConfig(name="fast_dllm", gen_length=4, tau_conf=1.0))
    assert generation.forwards == 4


def test_a_quota_above_the_masks_left_fills_what_is_left() -> None:
    """Scheduled for 3 tokens with 2 masks left: both are filled, what was filled stays."""
    generation = run(fixed([0.9] * 5), DecoderConfig(name="greedy", gen_length=5, block_size=5, tokens_per_step=3))
    assert [len(step.positions) for step in generation.steps] == [3, 2]


def test_gen_length_is_honoured_exactly() -> None:
    borders = Borders(prompt=3, length=40, block=16)
    assert [borders.end_of(b) - borders.start_of(b) for b in range(1, borders.blocks + 1)] == [16, 16, 8]
    for name in BASES:
        assert len(run(hashed_without_end(1), DecoderConfig(name=name, gen_length=40, **blocks(name, 16))).ids) == 40


@pytest.mark.parametrize(("masks", "steps", "quotas"), [(7, 3, [3, 2, 2]), (3, 5, [1, 1, 1])])
def test_quotas_of_a_fixed_number_of_steps(masks: int, steps: int, quotas: list[int]) -> None:
    """Steps with a quota of zero are no forwards."""
    generation = run(fixed([0.9] * masks), DecoderConfig(name="llada", gen_length=masks, block_size=masks, steps=steps))
    assert [len(step.positions) for step in generation.steps] == quotas


def test_text_stops_at_the_first_end_token_and_nothing_before_it_is_unfilled() -> None:
    """The end token at index 3 is filled first; decoding goes on to its left and then stops."""
    model = fixed([0.6, 0.5, 0.6, 0.95, 0.3, 0.3], tokens=[1, 2, 3, END, 4, 5])
    generation = run(model, DecoderConfig(name="d2f", gen_length=6, block_size=6))
    assert generation.ids == (1, 2, 3, END)
    assert generation.finish_reason == "eos"
    assert generation.window_tokens == 4
    whole = run(model, DecoderConfig(name="d2f", gen_length=6, block_size=6, decode_tail=True))
    assert len(whole.ids) == whole.window_tokens == 6


def test_a_text_without_end_token_ends_by_length() -> None:
    assert run(fixed([0.95] * 6), DecoderConfig(name="d2f", gen_length=6)).finish_reason == "length"


def test_no_block_is_appended_behind_an_end_token() -> None:
    model = fixed([0.95] * 8, tokens=[1, END, 2, 3, 4, 5, 6, 7])
    assert run(model, DecoderConfig(name="d2f", gen_length=8, block_size=4, decode_tail=True)).window_tokens == 4


@pytest.mark.parametrize(("filled", "blocks", "activated"), [(0, 1, [1]), (1, 2, [1]), (2, 2, [1, 2]), (4, 2, [1, 2])])
def test_a_block_is_appended_and_activated_once_its_neighbour_is_filled_so_far(
    filled: int, blocks: int, activated: list[int]
) -> None:
    """Of four positions one for tau_add = .25, two for tau_act = .5; reaching the share is enough."""
    config = make_decoder(DecoderConfig(name="d2f", gen_length=8, block_size=4, tau_add=0.25, tau_act=0.5)).config
    window = Pipeline(config, 1, MASK)
    branch = window.open([0])
    window.advance(branch)
    branch = branch.filled(np.arange(1, 1 + filled), np.zeros(filled, dtype=int), window.borders, VOCAB)
    window.advance(branch)
    assert len(branch.masks) - 1 == blocks
    assert [block for block in range(1, blocks + 1) if branch.activated[block]] == activated


@pytest.mark.parametrize("shifted", [False, True])
@pytest.mark.parametrize("fill", ["threshold", "factor", "quota", "schedule"])
def test_caches_change_no_decision_of_a_model_that_ignores_context(fill: str, shifted: bool) -> None:
    """none, prefix and dual: the same ids, order and forwards per block, also where logits are shifted."""
    model = fixed(list(np.random.default_rng(3).uniform(0.3, 0.99, 12)))
    settings = {"name": "fast_dllm", "gen_length": 12, "block_size": 4, "fill": fill}
    settings |= {"tau_conf": 0.8} if fill == "threshold" else {}
    results = [
        run(model, DecoderConfig(cache=cache, **settings), shifted=shifted) for cache in ("none", "prefix", "dual")
    ]
    for result in results[1:]:
        assert result.ids == results[0].ids
        assert [step.positions for step in result.steps] == [step.positions for step in results[0].steps]


def test_the_exact_cache_changes_nothing_under_block_causal_attention() -> None:
    for name in ("greedy", "fast_dllm"):
        config = DecoderConfig(name=name, gen_length=12, block_size=4, attention="block_causal")
        model = fixed(list(np.random.default_rng(4).uniform(0.3, 0.99, 12)))
        assert run(model, replace(config, cache="exact")).ids == run(model, replace(config, cache="none")).ids


@pytest.mark.parametrize("base", BASES)
def test_lookahead_with_k_0_is_the_base_decoder(base: str) -> None:
    settings = {"gen_length": 20, "attention": "full", **blocks(base, 5)}
    for seed in range(5):
        plain = run(hashed(seed), DecoderConfig(name=base, **settings))
        wrapped = run(hashed(seed), DecoderConfig(name="lopa", base=base, k=0, **settings))
        assert wrapped.ids == plain.ids
        assert order(wrapped) == order(plain)


def test_k_is_clamped_to_the_masks_left() -> None:
    generation = run(fixed([0.5] * 3), DecoderConfig(k=8, gen_length=3, complete="verify"))
    assert [step.branches for step in generation.steps] == [1, 3, 2]


def test_a_branch_without_masks_ends_the_decode_or_is_verified() -> None:
    """Two masks: the forced pick fills one, the only candidate fills the other. Its branch is complete: we stop there;
    the released program spends one more forward on it."""
    assert run(fixed([0.5, 0.4]), DecoderConfig(k=1, gen_length=2)).forwards == 1
    assert run(fixed([0.5, 0.4]), DecoderConfig(k=1, gen_length=2, complete="verify")).forwards == 2


def test_the_floor_keeps_uncertain_candidates_out() -> None:
    model = fixed([0.5, 0.45, 0.2, 0.1])
    assert run(model, DecoderConfig(k=3, gen_length=4, floor=0.4)).steps[1].branches == 2


@pytest.mark.parametrize("cache", ["prefix", "dual", "exact"])
def test_a_cache_keeps_what_the_winner_computed(cache: str) -> None:
    """Keys and values that are kept are those of the branch that goes on, not of the anchor."""
    base = "d2f" if cache == "exact" else "fast_dllm"
    config = DecoderConfig(base=base, k=3, gen_length=12, block_size=4, cache=cache, decode_tail=True)
    seen = set()
    for seed in range(12):
        asked, generation = requests(hashed(seed), config)
        for step, following in zip(generation.steps, asked[1:]):
            assert (step.kept is None) == (following.keep is None)
            if following.keep is not None:
                assert following.keep.row == step.winner
                assert (following.keep.start, following.keep.end) == step.kept
                seen.add(step.winner)
    assert max(seen) > 0


def test_the_origin_sampler_spends_its_steps_also_when_all_is_filled() -> None:
    """Draws of 0 fill everything in the first of five forwards; the released program makes the other four as well."""
    config = DecoderConfig(name="dream", fill="origin", gen_length=5, steps=5, empty_steps="run")
    assert forwards(config, 0.0) == [5, 0, 0, 0, 0]
    assert forwards(config, 1.0) == [0, 0, 0, 0, 5]
    assert forwards(replace(config, empty_steps="skip"), 0.0) == [5]


def test_the_steps_behind_a_full_text_end_with_the_end_token_unless_the_tail_is_asked_for() -> None:
    config = DecoderConfig(name="dream", fill="origin", gen_length=5, steps=5, empty_steps="run")
    assert forwards(config, 0.0, [1, 2, END, 3, 4]) == [5]
    assert forwards(replace(config, decode_tail=True), 0.0, [1, 2, END, 3, 4]) == [5, 0, 0, 0, 0]


def test_each_block_has_steps_of_its_own() -> None:
    """A random sampler over two blocks of two positions and three steps each: six forwards, full or not."""
    blockwise = Base(
        name="blockwise", window=Blocks, fills={"origin": Origin}, caches=("none",), defaults={"empty_steps": "run"}
    )
    decoder = resolve(
        DecoderConfig(name="blockwise", gen_length=4, block_size=2, steps=6), {"blockwise": blockwise}, D2F
    )
    steps = decode(decoder, [0], VOCAB, uniform=np.zeros)
    generation = backend(fixed([0.9] * 4)).decode(steps).generation
    assert generation is not None
    assert [step.positions for step in generation.steps] == [(1, 2), (), (), (3, 4), (), ()]


def test_the_mask_id_is_never_filled() -> None:
    """Even where the model likes it best; kept in the softmax it lowers the probability of the rest."""

    def masked(ids: np.ndarray, start: int) -> np.ndarray:
        out = np.zeros((*ids.shape, VOCAB.size))
        out[..., MASK] = 5.0
        out[..., 1] = 4.0
        return out

    excluded = run(masked, DecoderConfig(name="d2f", gen_length=2))
    kept = run(masked, DecoderConfig(name="d2f", gen_length=2, mask_logit="keep"))
    assert excluded.ids == kept.ids == (1, 1)
    assert excluded.steps[0].probs[0] > 0.8 > 0.3 > kept.steps[0].probs[0]


def test_next_fill_prefers_the_branch_that_will_fill_most() -> None:
    """Filling position 2 makes all others certain; the mean score would not look at how many pass."""

    def logits(ids: np.ndarray, start: int) -> np.ndarray:
        out = np.zeros((*ids.shape, VOCAB.size))
        for row, tokens in enumerate(ids):
            sure = start == 0 and len(tokens) > 3 and tokens[3] != MASK
            out[row, :, 1] = 9.0 if sure else 1.0 - 0.01 * np.arange(len(tokens))
        return out

    settings = {"gen_length": 5, "block_size": 5, "base": "fast_dllm", "score": ScoreConfig(kind="next_fill")}
    generation = run(logits, DecoderConfig(k=3, **settings))
    assert generation.steps[1].winner == 2
    assert len(generation.steps[1].positions) == 3


@pytest.mark.parametrize("name", [*BASES, "sdar", "llada2", "multibd"])
@pytest.mark.parametrize("prompt", [[0], [END], [MASK, END, 3], list(range(7)) * 20])
def test_what_the_prompt_holds_or_how_long_it_is_changes_nothing_right_of_it(name: str, prompt: list[int]) -> None:
    """Mask and end ids in it are text like any other."""
    model = fixed([0.6, 0.8, 0.7], prompt=len(prompt))
    generation = run(model, DecoderConfig(name=name, gen_length=3), prompt=prompt)
    assert (generation.ids, generation.finish_reason) == ((0, 1, 2), "length")
    assert {position - len(prompt) for position in order(generation)} == {0, 1, 2}


@pytest.mark.parametrize("name", [*BASES, "sdar", "llada2", "multibd"])
def test_a_text_may_be_one_position_or_begin_with_its_end(name: str) -> None:
    assert run(fixed([0.5]), DecoderConfig(name=name, gen_length=1)).ids == (0,)
    first = run(fixed([0.99, 0.3, 0.2], [END, 1, 2]), DecoderConfig(name=name, gen_length=3))
    assert (first.ids, first.finish_reason, first.forwards) == ((END,), "eos", 1)


def test_more_branches_than_masks_and_blocks_longer_than_the_text_are_cut_down() -> None:
    generation = run(fixed([0.5] * 4), DecoderConfig(k=1024, gen_length=4, block_size=65536))
    assert [step.branches for step in generation.steps] == [1, 4, 3]
    assert generation.ids == (0, 1, 2, 3)


def test_a_text_that_does_not_fit_the_cache_is_refused_by_its_length() -> None:
    with pytest.raises(ValueError, match=r"a text of 304 positions is too long; allowed: 256 \(model.max_length\)"):
        run(fixed([0.5] * 4, prompt=300), DecoderConfig(name="greedy", gen_length=4), prompt=[0] * 300)


def test_an_empty_prompt_is_refused() -> None:
    with pytest.raises(ValueError, match="empty prompt"):
        decode(make_decoder(DecoderConfig()), [], VOCAB)


def test_filled_positions_never_change() -> None:
    branch = Branch(np.array([1, 2, MASK]), [0, 1], [True, True])
    with pytest.raises(AssertionError, match="never changes"):
        branch.filled(np.array([1]), np.array([3]), Borders(1, 2, 2), VOCAB)


def requests(model: Logits, config: DecoderConfig) -> tuple[list[Request], Generation]:
    """What a decode asks for, and what comes of it."""
    log = Replay()
    outcome = backend(model).decode(spy(decode(make_decoder(config), [0, 1], VOCAB), log))
    assert outcome.generation is not None
    return log.requests, outcome.generation


def forwards(config: DecoderConfig, drawn: float, tokens: list[int] | None = None) -> list[int]:
    """Positions filled by each forward if every random number is `drawn`."""
    model = fixed([0.9] * config.gen_length, tokens)
    steps = decode(make_decoder(config), [0], VOCAB, uniform=lambda n: np.full(n, drawn))
    generation = backend(model).decode(steps).generation
    assert generation is not None
    return [len(step.positions) for step in generation.steps]


def hashed_without_end(seed: int) -> Logits:
    model = hashed(seed)

    def logits(ids: np.ndarray, start: int) -> np.ndarray:
        out = model(ids, start).copy()
        out[..., END] = -40.0
        return out

    return logits


def blocks(base: str, size: int) -> dict[str, int]:
    """Dream's canvas has no blocks."""
    return {} if base == "dream" else {"block_size": size}
