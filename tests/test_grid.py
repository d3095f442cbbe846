"""The absolute grid of blocks: counted from position 0, with the prompt inside the blocks."""

from __future__ import annotations

import numpy as np
import pytest

from decoders import DecoderConfig, DecoderError, Request, decode, make_decoder
from decoders.state import Layout
from tests.golden_cases import Replay, spy
from tests.toy import VOCAB, backend, fixed


def borders(layout: Layout) -> list[tuple[int, int]]:
    return [(layout.start_of(block), layout.end_of(block)) for block in range(1, layout.blocks + 1)]


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
    assert borders(Layout(prompt, 10, 4, "absolute")) == absolute
    assert borders(Layout(prompt, 10, 4)) == [(prompt, prompt + 4), (prompt + 4, prompt + 8), (prompt + 8, prompt + 10)]


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
    assert np.array_equal(Layout(3, 4, 4).attention_of(np.arange(7)), [0, 0, 0, 1, 1, 1, 1])
