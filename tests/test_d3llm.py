"""d3LLM: several blocks under way, masks of low entropy filled in all of them, a cache that waits and is refreshed.

There is no trace of the released programs. `released` below tells their rule a second time, as read in the samplers of
github.com/hao-ai-lab/d3LLM (for LLaDA and Dream, without and with a cache), and random toy models are decoded by both.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from decoders import DecoderConfig, DecoderError, Generation, Vocabulary, decode, make_decoder
from decoders.parts.fills import with_forced
from tests.golden_cases import backend as network
from tests.toy import END, MASK, Logits, fixed, hashed, run

PAIRS = DecoderConfig(name="d3llm", gen_length=6, block_size=2, tau_add=0.5, tau_entropy=0.4)


def filled(generation: Generation) -> list[tuple[int, ...]]:
    """Places of the answer, from 0, by forward."""
    return [tuple(position - 1 for position in step.positions) for step in generation.steps]


def test_the_first_unfinished_block_never_stands_still_and_the_others_fill_what_is_sure() -> None:
    """Entropies at .99, .95, .9, .8, .7: .08, .30, .53, .92, 1.23 nats; what is sure has at most .4.

    1. Block 1 alone takes part (it is empty, less than half full), nothing is sure: the lowest entropy, place 0.
    2. Block 1 is half full, so block 2 takes part: place 2 is sure; nothing is in block 1: place 1 all the same.
    3. Block 2 is half full, so block 3 takes part: place 5 is sure; nothing is in block 2: place 3.
    4. What is left.
    """
    assert filled(run(fixed([0.9, 0.8, 0.95, 0.7, 0.7, 0.99]), PAIRS)) == [(0,), (1, 2), (3, 5), (4,)]


@pytest.mark.parametrize(
    ("forced", "expected"),
    [
        ("first", [(0,), (1,), (2,), (3,)]),
        ("first_and_global", [(0,), (1, 2), (3,)]),
        ("global", [(0,), (2,), (3,), (1,)]),
    ],
)
def test_where_nothing_is_sure_anywhere_the_programs_for_dream_and_llada_differ(
    forced: str, expected: list[tuple[int, ...]]
) -> None:
    """From the second forward on places 1 to 3 take part, and place 2 has the lowest entropy of all: LLaDA's program
    fills it too, beside the lowest of the first block.
    """
    config = replace(PAIRS, gen_length=4, forced=forced)
    assert filled(run(fixed([0.9, 0.6, 0.8, 0.7]), config)) == expected


@pytest.mark.parametrize(
    ("passed", "per_block", "everywhere", "first", "both"),
    [
        ("....", "0 2", "2", "0", "0 2"),
        ("...x", "0 3", "3", "0 3", "0 3"),
        (".x..", "1 2", "1", "1", "1"),
        ("xx.x", "0 1 3", "0 1 3", "0 1 3", "0 1 3"),
    ],
)
def test_forced_picks_of_two_blocks_of_two(passed: str, per_block: str, everywhere: str, first: str, both: str) -> None:
    """By rank 2 comes first, then 3, 0 and 1."""
    rank, block, activated = np.array([0.2, 0.1, 0.9, 0.3]), np.array([4, 4, 5, 5]), np.array([True] * 4)
    for how, expected in (
        ("per_block", per_block),
        ("global", everywhere),
        ("first", first),
        ("first_and_global", both),
    ):
        found = with_forced(np.array([mark == "x" for mark in passed]), rank, block, activated, how)
        assert " ".join(map(str, np.flatnonzero(found))) == expected, how


def test_behind_an_end_token_nothing_is_decoded_and_the_model_sees_that_token() -> None:
    """Place 3 is a sure end token: places 4 and 5 never take part, and are fed as end tokens from then on."""
    seen: list[list[int]] = []

    def model(ids: np.ndarray, start: int) -> np.ndarray:
        seen.append(ids[0].tolist())
        return fixed([0.9, 0.8, 0.7, 0.99, 0.99, 0.99], [1, 2, 3, END, 5, 6])(ids, start)

    stopped = run(model, replace(PAIRS, early_stop=True))
    assert (stopped.ids, filled(stopped)) == ((1, 2, 3, END), [(0,), (1, 3), (2,)])
    assert seen[-1] == [0, 1, 2, MASK, END, END, END]
    seen.clear()
    assert filled(run(model, PAIRS)) == [(0,), (1, 3), (2, 4, 5)]
    assert seen[-1] == [0, 1, 2, MASK, END, MASK, MASK]


def test_no_branch_assumes_a_token_behind_the_end_that_was_just_found() -> None:
    """Places 4 and 5 are surer than 2, and as good as any other as long as no end token stands before them."""
    model = fixed([0.9, 0.8, 0.7, 0.99, 0.85, 0.75], [1, 2, 3, END, 5, 6])
    config = replace(PAIRS, name="lopa", base="d3llm", k=4, early_stop=True, block_size=6)
    first, second = run(model, config).steps[:2]
    assert (first.positions, second.lookahead_positions) == ((4,), (1, 2, 3))
    without = run(model, replace(config, early_stop=False)).steps[1]
    assert without.lookahead_positions == (1, 5, 2, 6)


# --- the released rule, told again


def released(model: Logits, config: DecoderConfig) -> list[tuple[int, tuple[int, int] | None, dict[int, int]]]:
    """By forward: the first position that is fed, what of it is kept, and the tokens by position. One token of prompt.

    Two things are ours: an entropy of exactly the threshold is sure in both programs (Dream's wants less), and masks
    behind an end token stop to count at once (they count one forward longer in theirs).
    """
    size, length = config.block_size or 0, config.gen_length
    x = [0] + [MASK] * length
    spans = [(0, 1), *((1 + at, min(1 + at + size, 1 + length)) for at in range(0, length, size))]
    joined, held, forwards = 1, 0, 0
    full_since = {0: 0}
    calls: list[tuple[int, tuple[int, int] | None, dict[int, int]]] = []
    while MASK in x:
        forwards += 1
        has_end = bool(config.early_stop) and END in x[1:]
        if has_end:
            x[x.index(END, 1) :] = [END] * (len(x) - x.index(END, 1))
            if MASK not in x:
                break
        left = [sum(token == MASK for token in x[lo:hi]) for lo, hi in spans]
        newest = 1 - left[joined] / (spans[joined][1] - spans[joined][0])
        if joined + 1 < len(spans) and not has_end and (newest >= config.tau_add or left[joined] == 0):
            joined += 1
        start, kept = 0, None
        if config.cache == "delayed":
            due, waits = [], False
            for block, (_, hi) in enumerate(spans[: joined + 1]):
                if hi <= held:
                    continue
                if left[block]:
                    break
                full_since.setdefault(block, forwards)
                if forwards - full_since[block] >= config.cache_delay:
                    due.append(hi)
                else:
                    waits = True
            if due:
                start, kept = held, (held, max(due))
            elif held and (waits or (config.refresh_interval and forwards % config.refresh_interval == 0)):
                kept = (0, held)
            else:
                start = held
            held = max([held, *due])
        logits = model(np.array([x[start:]]), start)[0].astype(np.float64)
        logits[:, MASK] = -np.inf
        p = np.exp(logits - logits.max(1, keepdims=True))
        p /= p.sum(1, keepdims=True)
        entropy = {start + i: -float((row * np.log(row + 1e-12)).sum()) for i, row in enumerate(p)}
        masks = [i for i in range(1, spans[joined][1]) if x[i] == MASK]
        sure = {i for i in masks if entropy[i] <= config.tau_entropy}
        if config.forced == "first_and_global":
            sure.add(min(masks, key=entropy.__getitem__))
        lo, hi = next(span for block, span in enumerate(spans) if left[block])
        if not sure & set(range(lo, hi)):
            sure.add(min((i for i in masks if lo <= i < hi), key=entropy.__getitem__))
        tokens = {i: int(p[i - start].argmax()) for i in sorted(sure)}
        for i, token in tokens.items():
            x[i] = token
        calls.append((start, kept, tokens))
    return calls


SETTINGS = st.fixed_dictionaries(
    {
        "gen_length": st.integers(1, 16),
        "block_size": st.integers(1, 6),
        "tau_add": st.sampled_from([0.0, 0.1, 0.5, 1.0]),
        "tau_entropy": st.sampled_from([0.0, 0.5, 1.0, 99.0]),
        "forced": st.sampled_from(["first", "first_and_global"]),
        "early_stop": st.booleans(),
        "cache": st.sampled_from(["none", "delayed"]),
    }
)


@given(SETTINGS, st.integers(0, 3), st.sampled_from([None, 1, 2, 5]), st.integers(0, 10**6))
def test_every_forward_is_that_of_the_released_programs(
    settings: dict[str, Any], delay: int, refresh: int | None, seed: int
) -> None:
    if settings["cache"] == "delayed":
        settings = {**settings, "cache_delay": delay, "refresh_interval": refresh}
    config = make_decoder(DecoderConfig(name="d3llm", decode_tail=not settings["early_stop"], **settings)).config
    steps = run(hashed(seed), config).steps
    found = [(step.window_start, step.kept, dict(zip(step.positions, step.tokens))) for step in steps]
    assert found == released(hashed(seed), config)


@given(SETTINGS, st.sampled_from(["first", "first_and_global", "global", "per_block"]), st.integers(0, 10**6))
def test_where_a_block_joins_only_when_all_before_it_are_full_it_is_entropy_decoding(
    settings: dict[str, Any], forced: str, seed: int
) -> None:
    """As the programs' own notes say it of a threshold of 1."""
    shared = {name: settings[name] for name in ("gen_length", "block_size", "tau_entropy")}
    one = run(hashed(seed), DecoderConfig(name="d3llm", tau_add=1.0, forced=forced, **shared))
    other = run(hashed(seed), DecoderConfig(name="entropy", **shared))
    assert one.ids == other.ids
    assert one.steps == other.steps


# --- a network, whose keys and values see what stood there


def decoded(name: str, config: DecoderConfig, prompt: list[int]) -> Generation:
    local = network(name)
    vocab = Vocabulary(local.config.mask_id, (), local.config.vocab_size)
    outcome = local.decode(decode(make_decoder(config), prompt, vocab))
    assert outcome.generation is not None, outcome.error
    return outcome.generation


@pytest.mark.parametrize("name", ["llada_a", "dream_a"])
def test_in_one_block_the_cache_is_fast_dllms_prefix_cache_and_refreshed_every_time_it_is_none(name: str) -> None:
    """The first forward keeps the prompt; there is no other block to keep."""
    one = DecoderConfig(name="d3llm", gen_length=8, block_size=8, tau_entropy=0.01, cache="delayed")
    other = DecoderConfig(name="entropy", gen_length=8, block_size=8, tau_entropy=0.01, cache="prefix")
    prompt = [3, 1, 4, 1, 5]
    cached = decoded(name, one, prompt)
    assert cached.forwards > 2
    assert cached.steps == decoded(name, other, prompt).steps
    fresh = decoded(name, replace(one, refresh_interval=1), prompt)
    whole = decoded(name, replace(one, cache="none"), prompt)
    assert [(step.positions, step.tokens, step.probs) for step in fresh.steps] == [
        (step.positions, step.tokens, step.probs) for step in whole.steps
    ]
    assert cached.steps[-1].probs != whole.steps[-1].probs  # what is kept is not exact


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"early_stop": True, "decode_tail": True}, "early_stop=true has no meaning with decoder.decode_tail=true"),
        ({"tau_act": 0.95}, "decoder.tau_act=0.95 has no meaning for decoder=d3llm"),
        ({"cache": "delayed", "attention": "block_causal"}, "allowed with block_causal: none, exact"),
        ({"cache": "none", "cache_delay": 3}, "decoder.cache_delay=3 has no meaning with decoder.cache=none; allowed"),
        ({"refresh_interval": 4}, "decoder.refresh_interval=4 has no meaning with decoder.cache=none; allowed"),
        ({"cache": "delayed", "refresh_interval": 0}, "an integer from 1"),
        ({"cache": "delayed", "cache_delay": -1}, "an integer from 0"),
        ({"cache": "delayed", "cfg_scale": 1.0}, "cfg_scale=1 is not supported by decoder.cache=delayed"),
        ({"name": "d2f", "early_stop": True}, "decoder.early_stop=True has no meaning for decoder=d2f"),
        ({"name": "d2f", "cache": "delayed"}, "decoder.cache=delayed is not supported by d2f"),
        ({"forced": "last"}, "per_block, global, first, first_and_global"),
        ({"name": "lopa", "base": "d3llm", "k": 2, "select": "exact", "cache": "delayed"}, "which a draft changes"),
        ({"name": "lopa", "base": "d3llm", "k": "auto", "cache": "delayed"}, "decoder.k=auto is not supported"),
    ],
)
def test_what_it_does_not_read_or_cannot_go_with_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(DecoderError, match="allowed") as caught:
        make_decoder(DecoderConfig(**{"name": "d3llm", "gen_length": 8, "block_size": 4, **changes}))
    assert message in str(caught.value)
