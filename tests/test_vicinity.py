"""`cache=vicinity`: every forward computes the block and some positions beside it anew, on the rest as it was kept."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from decoders import DecoderConfig, DecoderError, decode, make_decoder
from decoders.types import Readout
from lopa_bench.backends.local import LocalBackend
from lopa_bench.backends.readout import read_out
from lopa_bench.models.network.segments import Segment
from tests.golden_cases import Replay, spy
from tests.golden_cases import backend as network
from tests.toy import VOCAB, backend, fixed, hashed

PROMPT = [3, 1, 4, 1, 5, 9, 2]
GENERATED, BLOCK, TAU = 20, 4, 0.6


def config_of(look: tuple[int, int], warmup: int, **settings: Any) -> DecoderConfig:
    return DecoderConfig(
        name="fast_dllm", gen_length=GENERATED, block_size=BLOCK, cache="vicinity", tau_conf=TAU, decode_tail=True,
        prefix_look=look[0], after_look=look[1], warmup_steps=warmup, **settings,
    )  # fmt: skip


def told(local: LocalBackend, config: DecoderConfig) -> Replay:
    """What is asked and answered when the prompt is decoded."""
    assert local.config.mask_id is not None
    vocab = replace(VOCAB, mask_id=local.config.mask_id, size=local.config.vocab_size, end_ids=())
    log = Replay()
    log.generation = local.decode(spy(decode(make_decoder(config), PROMPT, vocab), log)).generation
    assert log.generation is not None
    return log


def said_of(local: LocalBackend, text: np.ndarray, near: np.ndarray, at: int) -> tuple[np.ndarray, np.ndarray]:
    """Tokens and probabilities [L] from one forward without a cache: `near`, which stands at positions from `at` on,
    sees itself and what lies around it of `text`; `text` sees nothing but itself. Without `near`, what `text` says.
    """
    length, width = len(text), len(near)
    around = np.ones(length, dtype=bool)
    around[at : at + width] = False
    visible = np.zeros((length + width, length + width), dtype=bool)
    visible[:length, :length], visible[length:, :length], visible[length:, length:] = True, around, True
    mask = torch.zeros(visible.shape).masked_fill(~torch.from_numpy(visible), -torch.inf)
    tokens = torch.from_numpy(np.concatenate([text, near]))[None]
    with torch.inference_mode():
        hidden = local.model([Segment(tokens, 0, mask=mask, shadow=(at, at + width))])
        logits = local.model.logits(hidden)
    columns = np.arange(length)
    columns[at : at + width] = length + np.arange(width)
    if local.config.shifted:
        columns = np.append(0, columns[:-1])
    said = read_out(logits[torch.from_numpy(columns)], Readout(), local.config.mask_id)
    return said["token"], said["prob"]


def plainly(local: LocalBackend, look: tuple[int, int], warmup: int) -> tuple[list[int], list[Any]]:
    """dInfer's loop, written out: the text of the answer, and for each forward the positions that it computes, None for
    all of them.
    """
    mask = local.config.mask_id
    text = np.array(PROMPT + [mask] * GENERATED)
    kept, kept_for, forwards = text, -1, []
    for start in range(len(PROMPT), len(text), BLOCK):
        end = start + BLOCK
        while (text[start:end] == mask).any():
            fed = None
            if len(forwards) >= warmup and kept_for == start:
                fed = max(0, start - look[0]), min(len(text), end + look[1])
                token, prob = said_of(local, kept, text[slice(*fed)], fed[0])
            else:
                token, prob = said_of(local, text, text[:0], 0)
                kept, kept_for = (text.copy(), start) if len(forwards) >= warmup else (kept, kept_for)
            forwards.append(fed)
            masks = start + np.flatnonzero(text[start:end] == mask)
            passing = masks[prob[masks] > TAU]
            fill = passing if len(passing) else masks[[np.argmax(prob[masks])]]
            text[fill] = token[fill]
    return text[len(PROMPT) :].tolist(), forwards


CASES = [("llada_a", (0, 0)), ("llada_a", (3, 5)), ("dream_b", (1, 0)), ("dream_b", (9, 2))]


@pytest.mark.parametrize(("model", "look"), CASES)
@pytest.mark.parametrize("warmup", [0, 6])
def test_the_text_and_the_windows_are_those_of_the_rule_written_out(
    model: str, look: tuple[int, int], warmup: int
) -> None:
    """A network whose keys and values depend on all of the text, and go stale."""
    local = network(model)
    log = told(local, config_of(look, warmup))
    assert log.generation is not None
    ids, forwards = plainly(local, look, warmup)
    assert list(log.generation.ids) == ids
    whole = (0, len(PROMPT) + GENERATED)
    assert [(r.start, r.start + r.ids.shape[1]) for r in log.requests] == [fed or whole for fed in forwards]
    assert any(forwards)


def test_what_it_looks_at_changes_what_the_block_sees() -> None:
    """Keys and values beside the block are of another text than the dual cache's."""
    probs = [[p.prob for p in told(network("llada_a"), config_of(look, 0)).predictions] for look in ((0, 0), (3, 5))]
    assert probs[0][0] == pytest.approx(probs[1][0])
    assert probs[0][1][0, :BLOCK] != pytest.approx(probs[1][1][0, 3 : 3 + BLOCK])


def test_nothing_is_kept_while_it_warms_up_and_then_once_a_block() -> None:
    """One position a forward in blocks of four: six forwards of warm-up reach into the second block."""
    log = toy(config_of((2, 3), 6))
    assert [(r.start, r.ids.shape[1], r.suffix, bool(r.keep)) for r in log.requests] == [
        *[(0, 27, None, False)] * 7,  # the last one refreshes
        (9, 9, (18, 27), True), *[(0, 27, None, False)],
        *[(13, 9, (22, 27), True), *[(13, 9, (22, 27), False)] * 2, (0, 27, None, False)],
        *[(17, 9, (26, 27), True), *[(17, 9, (26, 27), False)] * 2, (0, 27, None, False)],
        *[(21, 6, None, True), *[(21, 6, None, False)] * 2],
    ]  # fmt: skip
    assert log.generation is not None
    assert [step.kept for step in log.generation.steps if step.kept] == [(0, 27)] * 4


def toy(config: DecoderConfig, seed: int | None = None) -> Replay:
    """A decode with a toy model: one that is half sure of everything, or an arbitrary one."""
    model = fixed([0.25] * GENERATED, prompt=len(PROMPT)) if seed is None else hashed(seed)
    log = Replay()
    log.generation = backend(model).decode(spy(decode(make_decoder(config), PROMPT, VOCAB), log)).generation
    return log


@pytest.mark.parametrize("base", ["fast_dllm", "greedy", "llada", "eb", "klass", "wino"])
def test_with_nothing_to_look_at_and_no_warm_up_it_is_the_dual_cache(base: str) -> None:
    common: dict[str, Any] = {"gen_length": 12, "block_size": 5, "decode_tail": True}
    near = DecoderConfig(name=base, cache="vicinity", prefix_look=0, after_look=0, warmup_steps=0, **common)
    for seed in range(3):
        mine, other = toy(near, seed), toy(DecoderConfig(name=base, cache="dual", **common), seed)
        assert mine.generation == other.generation
        assert [r.ids.tolist() for r in mine.requests] == [r.ids.tolist() for r in other.requests]


def test_a_text_that_ends_before_it_is_warm_never_keeps_anything() -> None:
    log = toy(config_of((16, 16), 65536))
    assert log.generation is not None
    assert {(r.start, r.ids.shape[1], r.keep) for r in log.requests} == {(0, 27, None)}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"cache": "dual", "prefix_look": 8}, "decoder.prefix_look=8 has no meaning with decoder.cache=dual; "),
        ({"warmup_steps": 2}, "decoder.warmup_steps=2 has no meaning with decoder.cache=none"),
        ({"cache": "vicinity", "after_look": -1}, "decoder.after_look=-1 is not allowed; allowed: an integer from 0"),
        ({"cache": "vicinity", "after_look": True}, "decoder.after_look=True is not allowed"),
        ({"cache": "vicinity", "attention": "block_causal"}, "decoder.cache=vicinity needs decoder.attention=full"),
        ({"name": "d2f", "prefix_look": 8}, "decoder.prefix_look=8 has no meaning for decoder=d2f"),
        ({"name": "saber", "cache": "vicinity"}, "decoder.cache=vicinity is not supported by saber; allowed: none"),
    ],
)
def test_settings_of_the_vicinity_are_refused_where_nothing_reads_them(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(DecoderError, match=message):
        make_decoder(DecoderConfig(**{"name": "fast_dllm", **settings}))


def test_a_file_may_name_the_usual_values_whatever_the_cache() -> None:
    """What is recorded is then what is recorded without them, so that it is the same run."""
    named = DecoderConfig(name="fast_dllm", cache="dual", prefix_look=16, after_look=16, warmup_steps=4)
    plain = make_decoder(DecoderConfig(name="fast_dllm", cache="dual")).config
    assert make_decoder(named).config == plain == make_decoder(plain).config
    filled = make_decoder(DecoderConfig(name="greedy", cache="vicinity", after_look=2)).config
    assert (filled.prefix_look, filled.after_look, filled.warmup_steps) == (16, 2, 4)
