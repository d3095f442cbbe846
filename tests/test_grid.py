"""The absolute grid of blocks: counted from position 0, with the prompt inside the blocks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from decoders import DecoderConfig, DecoderError, Request, decode, make_decoder
from decoders.state import Borders
from tests.golden_cases import Replay, spy
from tests.toy import MASK, VOCAB, backend, fixed, run


def pairs(borders: Borders) -> list[tuple[int, int]]:
    return [(borders.start_of(block), borders.end_of(block)) for block in range(1, borders.blocks + 1)]


@pytest.mark.parametrize(
    ("prompt", "absolute"),
    [
        (8, [(8, 12), (12, 16), (16, 18)]),
        (10, [(10, 12), (12, 16), (16, 20)]),
        (3, [(3, 4), (4, 8), (8, 12), (12, 13)]),
    ],
    ids=["the prompt ends a block", "a tail of two", "a prompt shorter than a block"],
)
def test_the_first_block_is_what_the_prompt_leaves_of_its_own(prompt: int, absolute: list[tuple[int, int]]) -> None:
    """Ten positions in blocks of four; `gen_length` is honoured on either grid, by a shorter last block."""
    assert pairs(Borders(prompt, 10, 4, "absolute")) == absolute
    assert pairs(Borders(prompt, 10, 4)) == [
        (prompt, prompt + 4),
        (prompt + 4, prompt + 8),
        (prompt + 8, prompt + 10),
    ]


def asked(config: DecoderConfig, prompt: int) -> list[Request]:
    """What a decoder asks of a model that is as sure as can be of everything."""
    log = Replay()
    backend(fixed([0.99] * config.gen_length, prompt=prompt)).decode(
        spy(decode(make_decoder(config), list(range(1, prompt + 1)), VOCAB), log)
    )
    return log.requests


def test_the_prompt_is_block_causal_itself_and_its_tail_sees_the_first_block() -> None:
    config = DecoderConfig(
        name="d2f", gen_length=5, block_size=4, tau_add=1.0, tau_act=1.0, decode_tail=True, grid="absolute"
    )
    first, second = asked(config, prompt=7)[:2]
    assert first.blocks is not None
    assert first.blocks.tolist() == [0, 0, 0, 0, 1, 1, 1, 1]
    assert second.keep is not None
    assert (second.keep.start, second.keep.end) == (0, 4)  # the tail has seen a mask and is fed again
    assert second.start == 4
    prompt_grid = asked(DecoderConfig(name="d2f", gen_length=4, block_size=4), prompt=7)[0]
    assert prompt_grid.blocks is not None
    assert prompt_grid.blocks.tolist() == [0] * 7 + [1] * 4


def test_a_refreshed_cache_feeds_the_prompts_tail_with_its_block() -> None:
    config = DecoderConfig(name="greedy", gen_length=5, block_size=4, cache="dual", decode_tail=True, grid="absolute")
    assert [(r.start, r.ids.shape[1]) for r in asked(config, prompt=6)] == [(0, 11), (4, 4), (0, 11), (8, 3), (8, 3)]


def test_an_earlier_prompt_gives_its_whole_blocks_alone() -> None:
    """Seven positions are taken over, of which the last three stood in a block with an earlier text."""
    config = DecoderConfig(name="d2f", gen_length=4, block_size=4, grid="absolute")
    request = next(decode(make_decoder(config), list(range(1, 9)), VOCAB, cached=7))
    assert request.start == 4


def test_a_canvas_has_no_blocks_to_count() -> None:
    with pytest.raises(DecoderError, match=r"decoder.grid=absolute is not supported by dream.*allowed: prompt"):
        make_decoder(DecoderConfig(name="dream", grid="absolute"))
    assert np.array_equal(Borders(3, 4, 4).attention_of(np.arange(7)), [0, 0, 0, 1, 1, 1, 1])


# --- one block after the other: sdar, llada2, fast_dllm_v2


def forwards(config: DecoderConfig, prompt: int = 4, shifted: bool = False) -> list[tuple[int, int, int, object]]:
    """(start, width, filled, kept) of each forward of a model that is nine tenths sure of everything."""
    generation = run(fixed([0.9] * 16, prompt=prompt), config, range(prompt), shifted)
    return [(s.window_start, s.window_width, len(s.positions), s.kept) for s in generation.steps]


def test_sdar_stores_a_block_by_a_forward_of_its_own_and_need_not() -> None:
    """Two blocks of four, nothing passes .95, two steps a block; the last one is stored for nobody."""
    config = DecoderConfig(name="sdar", gen_length=8, block_size=4, denoising_steps=2, tau_conf=0.95, grid="absolute")
    fed_alone = [(0, 8, 2, (0, 4)), (4, 4, 2, None), (4, 4, 0, (4, 8)), (8, 4, 2, None), (8, 4, 2, None)]
    assert forwards(config) == fed_alone
    merged = [(0, 8, 2, (0, 4)), (4, 4, 2, None), (4, 8, 2, (4, 8)), (8, 4, 2, None)]
    assert forwards(replace(config, store="merged")) == merged


def test_the_quota_of_sdar_is_counted_in_steps_not_in_masks() -> None:
    """Five steps for eight positions: 2 2 2 1 1. A block that begins with three prompt tokens is full in its third."""
    config = DecoderConfig(name="sdar", fill="static", gen_length=13, block_size=8, denoising_steps=5, grid="absolute")
    assert [filled for _, _, filled, _ in forwards(config, prompt=3)] == [2, 2, 1, 0, 2, 2, 2, 1, 1]


@pytest.mark.parametrize(("probs", "filled"), [([0.9, 0.5, 0.5, 0.6], {0, 3}), ([0.9, 0.9, 0.5, 0.9], {0, 1, 3})])
def test_the_threshold_of_sdar_counts_if_as_many_as_the_quota_pass(probs: list[float], filled: set[int]) -> None:
    config = DecoderConfig(name="sdar", gen_length=4, block_size=4, denoising_steps=2, tau_conf=0.8)
    assert {position - 1 for position in run(fixed(probs), config).steps[0].positions} == filled
    config = replace(config, fill="sequential", tau_conf=None)
    assert {position - 1 for position in run(fixed(probs), config).steps[0].positions} == {0, 1}


def test_fast_dllm_v2_takes_a_blocks_first_token_from_the_forward_that_stores_the_block_before() -> None:
    """Its probability is not asked for. The prompt that ends a block is stored first, another with the first block."""
    config = DecoderConfig(
        name="fast_dllm_v2", gen_length=6, block_size=4, sub_block_size=2, tau_conf=0.8, grid="absolute"
    )
    assert forwards(config, prompt=4, shifted=True) == [
        (0, 4, 1, (0, 4)), (4, 4, 1, None), (4, 4, 2, None), (4, 4, 1, (4, 8)), (8, 2, 1, None),
    ]  # fmt: skip
    assert forwards(config, prompt=6, shifted=True)[0] == (0, 8, 2, (0, 4))
    with pytest.raises(DecoderError, match=r"decoder=fast_dllm_v2 takes .* allowed: models whose logits are shifted"):
        forwards(config)


def test_fast_dllm_v2s_block_cache_feeds_the_sub_block_once_its_first_position_is_filled() -> None:
    config = DecoderConfig(
        name="fast_dllm_v2", gen_length=8, block_size=8, sub_block_size=4, cache="sub_block", grid="absolute"
    )
    # Less sure the further to the right: one position a forward.
    generation = run(fixed([0.8 - i / 50 for i in range(8)], prompt=8), config, range(8), shifted=True)
    assert [(step.window_start, step.window_width) for step in generation.steps] == [
        (0, 8), (8, 8), (8, 4), (8, 4), (8, 8), (12, 4), (12, 4), (12, 4),
    ]  # fmt: skip


def test_llada2_fills_what_is_above_the_threshold_without_a_forward_that_only_stores() -> None:
    config = DecoderConfig(name="llada2", gen_length=8, block_size=4, tau_conf=0.8, grid="absolute")
    assert forwards(config) == [(0, 8, 4, (0, 4)), (4, 8, 4, (4, 8))]


@pytest.mark.parametrize("name", ["sdar", "llada2", "fast_dllm_v2"])
def test_lopa_with_no_branches_is_the_block_diffusion_decoder_and_with_some_saves_forwards(name: str) -> None:
    shared = {"gen_length": 12, "block_size": 4, "grid": "absolute", "tau_conf": 0.95}
    alone = run(fixed([0.9] * 12, prompt=6), DecoderConfig(name=name, **shared), range(6), True)
    none, three = (
        run(fixed([0.9] * 12, prompt=6), DecoderConfig(base=name, k=k, **shared), range(6), True) for k in (0, 3)
    )
    assert replace(none, steps=()) == replace(alone, steps=())
    assert [s.positions for s in none.steps] == [s.positions for s in alone.steps]
    assert three.ids == alone.ids
    assert three.forwards < alone.forwards


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"name": "sdar", "attention": "full", "cache": "exact"}, "attention=full is not supported by sdar; "),
        ({"name": "lopa", "base": "llada2", "attention": "full"}, "attention=full is not supported by llada2"),
        ({"name": "sdar", "block_size": 4, "denoising_steps": 5}, "denoising_steps=5 is not allowed; allowed: 1 to"),
        ({"name": "sdar", "fill": "static", "tau_conf": 0.5}, "tau_conf=0.5 has no meaning with decoder.fill=static"),
        ({"name": "fast_dllm_v2", "sub_block_size": 5}, "sub_block_size=5 is not allowed; allowed: divisors of"),
        ({"name": "fast_dllm_v2", "cache": "dual"}, "cache=dual is not supported by fast_dllm_v2"),
        ({"name": "fast_dllm_v2", "store": "merged"}, "store=merged has no meaning for decoder=fast_dllm_v2"),
        ({"name": "d2f", "denoising_steps": 4}, "denoising_steps=4 has no meaning for decoder=d2f"),
    ],
)
def test_what_a_block_diffusion_decoder_cannot_be_is_said(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(DecoderError, match=message):
        make_decoder(DecoderConfig(gen_length=32, **settings))


@pytest.mark.parametrize("cache", ["exact", "sub_block"])
def test_a_mask_id_in_the_prompts_tail_is_text_also_where_it_begins_a_sub_block(cache: str) -> None:
    config = DecoderConfig(
        name="fast_dllm_v2", gen_length=9, block_size=8, sub_block_size=2, cache=cache, grid="absolute"
    )
    prompt = [1, 2, 3, 4, MASK, 5, MASK]
    generation = run(fixed([0.5] * 9, prompt=7), config, prompt, shifted=True)
    assert generation.ids == (0, 1, 2, 3, 4, 5, 6, 0, 1)
    assert sorted(position for step in generation.steps for position in step.positions) == list(range(7, 16))
