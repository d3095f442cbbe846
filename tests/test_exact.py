"""`select=exact` is lossless: the ids and the steps of the base, whatever the base, cache, attention and k."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from decoders import BASES, Decoder, DecoderConfig, Generation, Vocabulary, decode, make_decoder
from decoders.lookahead.forward import Forward
from decoders.parts.fills import View
from decoders.state import Branch
from decoders.types import Decode
from lopa_bench.backends.local import Pending
from tests.golden_cases import backend as network
from tests.test_properties import EDITING, configs, needs_shift
from tests.toy import MASK, VOCAB, Logits, backend, fixed, run

BOOL = st.booleans()


def exact_of(config: DecoderConfig, k: int) -> tuple[DecoderConfig, DecoderConfig]:
    """Any decoder's base alone, and under exact lookahead."""
    resolved = make_decoder(replace(config, k=0)).config
    base = config.base if config.name == "lopa" else config.name
    empty = "skip" if resolved.empty_steps == "run" else resolved.empty_steps
    plain = DecoderConfig(
        name="lopa", base=base or "d2f", k=0, fill_confidence=resolved.fill_confidence, empty_steps=empty, cache="none",
        **{name: getattr(resolved, name) for name in KEPT},
    )  # fmt: skip
    return plain, replace(plain, k=k, select="exact")


KEPT = (
    "gen_length", "block_size", "grid", "attention", "fill", "tokens_per_step", "steps", "factor", "first_position",
    "tau_conf", "tau_add", "tau_act", "forced", "decode_tail", "mask_logit", "denoising_steps", "store",
    "gamma", "delta", "tau_entropy", "early_stop", "tau_run", "behind_end", "buffer_size", "top_p", "top_k", "alg_temp",
    "logits_eos_inf", "eos_penalty",
)  # fmt: skip


def base_steps(generation: Generation) -> list[Any]:
    """But for those that only stored a block, which lookahead may make needless."""
    return [part for step in generation.steps for part in step.base_steps if part[0]]


def of_text(seed: int, nudge: float) -> Logits:
    """Depends on position and on all filled tokens, not on how far a row reaches or is filled up: an arbitrary model
    without a cache. With a small nudge predictions mostly stand still, and drafts come true.
    """
    rng = np.random.default_rng(seed)
    by_position, by_context = (rng.normal(size=(97, VOCAB.size)) * 2 for _ in range(2))
    weights = rng.integers(1, 1000, size=512)

    def logits(ids: np.ndarray, start: int) -> np.ndarray:
        width = ids.shape[1]
        context = ((ids + 1) * (ids != MASK) * weights[:width]).sum(1) % 97
        return by_position[(start + np.arange(width)) % 97][None] + nudge * by_context[context][:, None]

    return logits


@given(configs(set(BASES) - EDITING), st.integers(1, 8), st.integers(0, 10**6), BOOL, BOOL, BOOL)
def test_ids_and_base_steps_equal_those_of_the_base(
    config: DecoderConfig, k: int, seed: int, shifted: bool, drafts_come_true: bool, eager: bool
) -> None:
    """Every base that edits nothing, every fill rule of it, without a cache; over the end of blocks where it can."""
    assume(not needs_shift(config))  # it has no decode without a cache
    assume("klass" not in (config.name, config.base))  # which drafts are refused for
    plain, exact = exact_of(config, k)
    exact = replace(exact, eager=eager and BASES[exact.base or ""].window.goes_ahead)
    model = of_text(seed, nudge=0.1 if drafts_come_true else 1.0)
    alone, ahead = run(model, plain, shifted=shifted), run(model, exact, shifted=shifted)
    assert (ahead.ids, ahead.window_tokens) == (alone.ids, alone.window_tokens)
    assert base_steps(ahead) == base_steps(alone)
    assert ahead.forwards <= alone.forwards
    assert ahead.steps[-1].masks_left == alone.steps[-1].masks_left


CACHED = [
    *[("d2f", attention, cache) for attention in ("full", "block_causal") for cache in ("none", "exact")],
    *[(base, "full", cache) for base in ("fast_dllm", "greedy", "llada") for cache in ("none", "prefix", "dual")],
    *[(base, "full", "vicinity") for base in ("fast_dllm", "greedy")],
    *[(base, "full", cache) for base, cache in (("eb", "dual"), ("frechet", "prefix"), ("entropy", "none"))],
    *[(base, "block_causal", cache) for base in ("fast_dllm", "greedy", "llada") for cache in ("none", "exact")],
    *[("dream", "full", "none"), ("d3llm", "full", "none"), ("d3llm", "block_causal", "exact")],
    *[(base, "block_causal", cache) for base in ("sdar", "llada2", "multibd") for cache in ("none", "exact")],
    *[("fast_dllm_v2", "block_causal", cache) for cache in ("exact", "sub_block")],
]


@pytest.mark.parametrize(("base", "attention", "cache"), CACHED)
@pytest.mark.parametrize(("name", "grid"), [("dream_a", "prompt"), ("llada_a", "absolute"), ("fdv2_a", "absolute")])
def test_what_the_cache_holds_is_what_it_holds_for_the_base(
    name: str, grid: str, base: str, attention: str, cache: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A real network, whose cached keys and values have seen what stood there when they were kept: packed decodes of
    several prompts, shifted (dream_a) and not. Their steps are the base's, probabilities to the last bits of float32.
    Random weights never stand still, so the drafts are made to come true: they see what the base will see.
    """
    if base == "fast_dllm_v2" and not network(name).config.shifted:
        pytest.skip("it needs shifted logits")
    size: dict[str, Any] = {} if base == "dream" else {"block_size": 5, "grid": grid}
    common: dict[str, Any] = {"base": base, "attention": attention, "cache": cache, "gen_length": 19, **size}
    if base in ("d2f", "fast_dllm", "sdar", "llada2", "fast_dllm_v2", "multibd"):
        common["tau_conf"] = 0.99  # several forwards a block
    if base == "fast_dllm_v2":
        common |= {"block_size": 8, "sub_block_size": 4}
    if cache == "vicinity":
        common |= {"prefix_look": 2, "after_look": 3, "warmup_steps": 2}
    plain, *ahead = (DecoderConfig(k=k, select="exact" if k else None, **common) for k in (0, 1, 4))
    if BASES[base].window.goes_ahead:
        ahead.append(replace(ahead[-1], eager=True))
    prompts = [[3, 1, 4, 1, 5], [9, 2], [6, 5, 3]]
    seen = remembered(monkeypatch)
    alone = packed(name, plain, prompts)
    foreseen(monkeypatch, seen)
    for config in ahead:
        found = packed(name, config, prompts)
        assert any(step.winner for other in found for step in other.steps)
        for one, other in zip(alone, found):
            assert one.ids == other.ids
            for mine, theirs in zip(base_steps(other), base_steps(one), strict=True):
                assert mine[:2] == theirs[:2]
                assert mine[2] == pytest.approx(theirs[2], abs=1e-5)


Seen = dict[bytes, View]


def remembered(monkeypatch: pytest.MonkeyPatch) -> Seen:
    """What is seen from now on of each text."""
    seen: Seen = {}

    def see(forward: Forward, row: int, branch: Branch) -> View:
        return seen.setdefault(branch.ids.tobytes(), SEE(forward, row, branch))

    monkeypatch.setattr(Forward, "seen_by", see)
    return seen


def foreseen(monkeypatch: pytest.MonkeyPatch, seen: Seen) -> None:
    """Drafts see of a text what is known of it; the rows of a call go by their own numbers as ever."""

    def see(forward: Forward, row: int, branch: Branch) -> View:
        view = SEE(forward, row, branch)
        return view if branch is forward.branches[row] else seen.get(branch.ids.tobytes(), view)

    monkeypatch.setattr(Forward, "seen_by", see)


SEE = Forward.seen_by


def _start(decoder: Decoder, prompt: list[int], vocab: Vocabulary, cached: int) -> Decode:
    return decode(decoder, prompt, vocab)


def packed(name: str, config: DecoderConfig, prompts: list[list[int]]) -> list[Generation]:
    local, decoder = network(name), make_decoder(config)
    vocab = replace(VOCAB, mask_id=local.config.mask_id, size=local.config.vocab_size, end_ids=())
    jobs = [Pending(prompt, partial(_start, decoder, prompt, vocab)) for prompt in prompts]
    outcomes = dict(local.stream(jobs, len(jobs)))
    return [outcomes[i].generation for i in range(len(jobs))]


def test_predictions_that_stand_still_are_filled_k_plus_1_steps_a_forward() -> None:
    """One forward before there is anything to draft from; then greedy's steps by fours."""
    config = DecoderConfig(base="greedy", k=3, select="exact", gen_length=9, block_size=3)
    generation = run(fixed([0.9, 0.5, 0.7, 0.3, 0.8, 0.6, 0.95, 0.2, 0.4]), config)
    assert [step.base_fills for step in generation.steps] == [(1,), (1, 1, 1, 1), (1, 1, 1, 1)]
    assert [step.winner for step in generation.steps] == [0, 3, 3]
    assert generation.steps[1].taken_positions == (3, 2, 5)
    assert generation.steps[1].lookahead_positions == (3, 2, 5)
    assert generation.steps[1].fresh_probs == pytest.approx((0.7, 0.5, 0.8))


def test_a_wrong_draft_costs_rows_and_nothing_else() -> None:
    """Each filled position turns all other predictions over."""
    config = DecoderConfig(base="greedy", k=4, select="exact", gen_length=6, block_size=6)
    plain = replace(config, k=0, select=None)
    for seed in range(20):
        alone, ahead = run(of_text(seed, 1.0), plain), run(of_text(seed, 1.0), config)
        assert base_steps(ahead) == base_steps(alone)
    assert ahead.rows > alone.rows


def test_a_draft_is_told_what_the_row_before_it_gives_its_tokens() -> None:
    """Where it came true that is the probability with which the base fills them."""
    config, several = DecoderConfig(base="greedy", k=4, select="exact", gen_length=8, block_size=8), 0
    for seed in range(20):
        for step in run(of_text(seed, nudge=0.1), config).steps:
            taken = step.taken_probs or ()
            assert (step.fresh_probs or ())[: len(taken)] == taken
            several += len(taken) > 1
    assert several


def test_random_fills_draw_the_numbers_that_the_base_draws() -> None:
    """Drafts read the random numbers ahead and take none."""
    config = DecoderConfig(base="dream", fill="origin", k=3, select="exact", gen_length=12, steps=6, decode_tail=True)
    for seed in range(5):
        jobs = [decode(make_decoder(replace(config, k=k)), [0], VOCAB, seed=seed) for k in (0, 3)]
        alone, ahead = (backend(of_text(seed, nudge=0.1)).decode(job).generation for job in jobs)
        assert alone is not None
        assert ahead is not None
        assert base_steps(alone) == base_steps(ahead)
        assert ahead.forwards < alone.forwards
