"""`eager=true`: drafts of `select=exact` go on where a block ends (FreeDave's eager acceptance), and the text stays."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from decoders import DecoderConfig, DecoderError, Generation, Request, decode, make_decoder
from decoders.types import Decode, Readout
from lopa_bench.backends.local import LocalBackend
from tests.golden_cases import Replay, spy
from tests.golden_cases import backend as network
from tests.toy import END, VOCAB, fixed, run

BLOCK = 4
ONE_A_STEP: dict[str, Any] = {
    "base": "sdar", "grid": "absolute", "block_size": BLOCK, "fill": "static", "denoising_steps": BLOCK,
}  # fmt: skip


def test_predictions_that_stand_still_are_followed_over_the_end_of_a_block() -> None:
    """Eight steps a call from the second on, two blocks of four; each block is kept from the call that went past it, so
    that none costs a forward of its own. Without `eager` a call ends with its block and another one stores it.
    """
    model = fixed([0.25] * 16, prompt=4)
    config = DecoderConfig(k=7, select="exact", gen_length=16, store="forward", **ONE_A_STEP)
    eager = run(model, replace(config, eager=True), (0, 1, 2, 3))
    assert [(s.window_start, s.window_width, s.branches, len(s.base_fills or ()), s.kept) for s in eager.steps] == [
        (0, 16, 1, 1, (0, 4)),  # the first block and two more
        (4, 12, 8, 8, (4, 12)),
        (12, 8, 4, 4, (12, 16)),  # there is one more block to come
        (16, 4, 3, 3, None),
    ]
    plain = run(model, config, (0, 1, 2, 3))
    assert plain.ids == eager.ids
    assert plain.forwards == 11
    some = run(model, replace(config, k=4, eager=True), (0, 1, 2, 3))
    assert some.steps[0].window_width == 4 + 3 * BLOCK  # five steps end in the second block to come


def test_no_block_is_fed_ahead_of_a_text_that_has_its_end() -> None:
    """The end token stands in the first block, whose last positions are still to be filled."""
    model = fixed([0.4, 0.9, 0.3, 0.2, 0.5, 0.5, 0.5, 0.5], tokens=[1, END, 2, 3, 4, 5, 6, 7], prompt=4)
    config = DecoderConfig(k=7, select="exact", eager=True, gen_length=8, decode_tail=True, **ONE_A_STEP)
    generation = run(model, config, (0, 1, 2, 3))
    assert generation.window_tokens == 4
    assert [step.window_width for step in generation.steps] == [12, 4]


def said_of(local: LocalBackend, rows: np.ndarray, blocks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Tokens and probabilities [R, L] of whole texts under block-causal attention, nothing of them cached."""
    found = []

    def ask() -> Decode:
        readout = Readout(mask_logit="keep")
        found.append((yield Request(rows, np.full(len(rows), rows.shape[1]), 0, readout, blocks)))
        return Generation((), "length", 0, ())

    local.decode(ask())
    return found[0].token, found[0].prob


def freedave(local: LocalBackend, prompt: list[int], length: int, drafts: int) -> tuple[list[int], int, int]:
    """FreeDave with eager acceptance, written out: the text, its model calls, and how many drafts were accepted behind
    the first of a call. Calls of its own store the prompt and each block.
    """
    mask, text = local.config.mask_id, np.array(prompt + [local.config.mask_id] * length)
    of = np.arange(len(text)) // BLOCK
    calls, accepted, last = int(len(prompt) >= BLOCK), 0, int(of[-1])

    def best(rows: np.ndarray, end: int, token: np.ndarray, prob: np.ndarray, n: int) -> np.ndarray:
        """Each row with its n best masks before `end`, the earliest block's first."""
        filled = rows.copy()
        for row in range(len(rows)):
            masks = np.flatnonzero(rows[row, :end] == mask)
            order = masks[np.lexsort((-prob[row, masks], of[masks]))][:n]
            filled[row, order] = token[row, order]
        return filled

    for block in range(len(prompt) // BLOCK, last + 1):
        inside = of == block
        end = min(len(text), (block + 1 + -(-drafts // BLOCK)) * BLOCK)
        if (text[inside] == mask).any():
            token, prob = said_of(local, text[None], of)
            calls += 1
        while left := int((text[inside] == mask).sum()):
            count = min(drafts, int((text[:end] == mask).sum()))
            rows = np.concatenate([best(text[None], end, token, prob, n + 1) for n in range(count)])
            if block == last and left == 1:
                text = rows[0]
                break
            tokens, probs = said_of(local, rows, of)
            calls += 1
            targets, row = best(rows, end, tokens, probs, 1), 0
            while row + 1 < count and (rows[row + 1] == targets[row]).all():
                row += 1
            accepted += row
            token, prob = tokens[row : row + 1], probs[row : row + 1]
            text = rows[row] if (rows[row][inside] == mask).any() else targets[row]
        calls += 1  # stores the block
    return text[len(prompt) :].tolist(), calls, accepted


@pytest.mark.parametrize("prompt", [[3, 1, 4, 1, 5, 9], [2, 7], [2, 7, 1, 8]])
@pytest.mark.parametrize("drafts", [3, 8])
def test_the_text_is_freedaves_and_the_bases(prompt: list[int], drafts: int) -> None:
    """It takes no more calls than the program does: the call that goes past a block stores it too, and the first drafts
    of the next block go by what that call said of it.
    """
    local = network("sdar_a")
    vocab = replace(VOCAB, mask_id=96, size=local.config.vocab_size, end_ids=())
    length = 7 * BLOCK - len(prompt)
    plain = DecoderConfig(gen_length=length, k=0, store="forward", mask_logit="keep", **ONE_A_STEP)
    texts, forwards = [], []
    for config in (plain, replace(plain, k=drafts - 1, select="exact", eager=True)):
        log = Replay()
        generation = local.decode(spy(decode(make_decoder(config), prompt, vocab), log)).generation
        assert generation is not None
        texts.append(list(generation.ids))
        forwards.append(generation.forwards)
    ids, calls, accepted = freedave(local, prompt, length, drafts)
    assert texts == [ids, ids]
    assert accepted
    assert forwards[1] <= calls < forwards[0]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"base": "d2f"}, "decoder.eager=true is not supported by decoder.base=d2f, .* or decoder.base=sdar or llada2"),
        ({"base": "fast_dllm_v2"}, "decoder.eager=true is not supported by decoder.base=fast_dllm_v2"),
        ({"base": "sdar", "select": "confirm"}, "decoder.eager=True has no meaning with decoder.select=confirm; "),
        ({"base": "sdar", "select": None}, "allowed: decoder.select=exact, which reads it"),
        ({"base": "sdar", "k": "auto", "select": None}, "decoder.eager=True has no meaning"),
        ({"name": "sdar", "base": None, "k": 0, "select": None}, "decoder.eager=True has no meaning for decoder=sdar"),
        ({"eager": 1}, "decoder.eager=1 is not allowed; allowed: true or false"),
    ],
)
def test_eager_is_refused_where_nothing_is_drafted_or_fed_ahead(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(DecoderError, match=message):
        make_decoder(DecoderConfig(**{"k": 3, "select": "exact", "eager": True, **settings}))


def test_with_k_0_it_is_let_be() -> None:
    assert make_decoder(DecoderConfig(base="d2f", k=0, select="exact", eager=True)).config.k == 0
