"""Shadows: masks beside the text that do not see what stands at their place."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from decoders import DecoderConfig, decode, make_decoder
from lopa_bench.models.network.segments import KVCache, Segment, shadow_mask
from tests.golden_cases import Replay, spy
from tests.golden_cases import backend as network
from tests.toy import MASK, VOCAB, backend, hashed


@pytest.mark.parametrize("shifted", [False, True])
def test_a_shadow_says_what_its_position_would_say_if_it_were_a_mask(shifted: bool) -> None:
    """With a model that does not look at the other shadows or through other positions: the toy's."""
    model, log = hashed(7), Replay()
    config = DecoderConfig(name="wino", gen_length=10, block_size=10, tau_conf=0.5, decode_tail=True)
    backend(model, shifted).decode(spy(decode(make_decoder(config), [0, 1], VOCAB), log))
    seen = 0
    for request, prediction in zip(log.requests, log.predictions):
        assert request.shadow is not None
        for position in range(*request.shadow):
            token = request.ids[0, position]
            if token == MASK:
                continue
            without = request.ids.copy()
            without[0, position] = MASK
            logits = model(without, 0)[0, position]
            logits[MASK] = -np.inf
            prob = np.exp(logits[token] - np.logaddexp.reduce(logits))
            assert prediction.measure("shadow")[0, position] == pytest.approx(prob, abs=1e-6)
            seen += 1
    assert seen > 5


def test_a_shadow_sees_everything_but_its_position_and_is_seen_by_nobody() -> None:
    """Blocks [0 0 1 1 2], of which the second one (columns 2 and 3) has shadows."""
    blocks = torch.tensor([0, 0, 1, 1, 2])
    mask = shadow_mask(blocks[None] <= blocks[:, None], 2, 2)
    assert (mask == 0).int().tolist() == [
        [1, 1, 0, 0, 0, 0, 0],
        [1, 1, 0, 0, 0, 0, 0],
        [1, 1, 1, 1, 0, 0, 0],
        [1, 1, 1, 1, 0, 0, 0],
        [1, 1, 1, 1, 1, 0, 0],
        [1, 1, 0, 1, 0, 1, 1],
        [1, 1, 1, 0, 0, 1, 1],
    ]


def test_shadows_change_nothing_of_the_text_and_may_stand_on_a_cached_prefix() -> None:
    """The tiny LLaDA: the text with and without shadows, and shadows over a whole text and over its cached half."""
    model = network("llada_a").model
    ids = torch.randint(0, 90, (1, 12), generator=torch.Generator().manual_seed(1))
    blocks = torch.tensor([0] * 4 + [1] * 8)
    visible = blocks[None] <= blocks[:, None]
    mask = torch.zeros(12, 12).masked_fill(~visible, -torch.inf)
    shadows = torch.full((1, 8), 96)
    cache = KVCache(model.config, 32, torch.device("cpu"), torch.float32)
    with torch.inference_mode():
        plain = Segment(ids, cache=cache, mask=mask)
        text = model([plain], keep=True)
        whole = model([Segment(torch.cat([ids, shadows], 1), mask=shadow_mask(visible, 4, 8), shadow=(4, 12))])
        plain.commit(0, 0, 4)
        rest = torch.cat([ids[:, 4:], shadows], 1)
        half = model([Segment(rest, 4, cache, mask=shadow_mask(visible[4:, 4:], 0, 8), shadow=(4, 12))])
    torch.testing.assert_close(whole[:12], text, rtol=0, atol=1e-5)
    torch.testing.assert_close(half, whole[4:], rtol=0, atol=1e-5)
