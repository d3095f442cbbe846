"""What a token is drawn from and by what its position is ranked, on logits small enough to check by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from decoders import DecoderConfig, Vocabulary, decode, make_decoder
from decoders.parts.fills import View
from decoders.parts.schedules import Schedule
from decoders.state import Borders
from decoders.types import Decode, Readout
from lopa_bench.backends.local import Pending
from lopa_bench.backends.readout import Beside, guided, read_out
from lopa_bench.engines.room import first_calls
from lopa_bench.models.memory import Call
from lopa_bench.models.network.segments import Segment
from tests.golden_cases import backend as network
from tests.test_exact import base_steps, of_text
from tests.toy import END, MASK, VOCAB, backend, fixed, hashed, run

MASK_ID = 4
P = torch.tensor([[0.5, 0.3, 0.15, 0.05, 1e-9]]).log()


def test_top_p_keeps_the_tokens_up_to_the_one_that_passes_it() -> None:
    """.5 does not pass .6, .5 + .3 does: two stay, .625 and .375 of their sum."""
    said = read_out(P.clone(), Readout(frozenset({"margin", "neg_entropy"}), top_p=0.6), MASK_ID)
    assert said["token"].tolist() == [0]
    assert said["prob"] == pytest.approx([0.625])
    assert said["margin"] == pytest.approx([0.25], abs=1e-6)
    assert said["neg_entropy"] == pytest.approx([0.625 * np.log(0.625) + 0.375 * np.log(0.375)], abs=1e-6)
    for top_p, prob in ((0.01, 1.0), (0.85, 0.5 / 0.95), (0.96, 0.5), (1.0, 0.5)):
        assert read_out(P.clone(), Readout(top_p=top_p), MASK_ID)["prob"] == pytest.approx([prob]), top_p
    quarters = read_out(torch.zeros(1, 4), Readout(top_p=0.5), None)  # two come to .5 and do not pass it
    assert quarters["prob"] == pytest.approx([1 / 3])


def test_top_k_keeps_the_best_and_their_equals_behind_top_p() -> None:
    for top_k, prob in ((1, 1.0), (2, 0.625), (99, 0.5)):
        assert read_out(P.clone(), Readout(top_k=top_k), MASK_ID)["prob"] == pytest.approx([prob])
    tied = torch.tensor([[0.4, 0.2, 0.2, 0.2, 1e-9]]).log()
    assert read_out(tied, Readout(top_k=2), MASK_ID)["prob"] == pytest.approx([0.4])
    both = read_out(P.clone(), Readout(top_p=0.6, top_k=3), MASK_ID)  # top_p leaves two, and three of them are both
    assert both["prob"] == pytest.approx([0.625])


def test_what_is_drawn_is_drawn_from_what_is_left_behind_the_temperature() -> None:
    """At temperature .5 probabilities are squared: .25 .09 .0225 .0025, of which .7 leaves two by 25 to 9."""
    readout = Readout(temperature=0.5, top_p=0.7, seed=5)
    said = read_out(P.repeat(4000, 1), readout, MASK_ID)
    assert np.bincount(said["token"], minlength=4) / 4000 == pytest.approx([25 / 34, 9 / 34, 0, 0], abs=0.03)
    assert set(np.round(said["prob"], 4)) == {np.float32(0.7353), np.float32(0.2647)}


def test_a_mask_id_that_stays_in_the_softmax_is_still_never_the_token() -> None:
    """It may take all that top_p leaves: then the best other token stays beside it."""
    logits = torch.tensor([[0.1, 0.2, 0.02, 0.08, 0.6]]).log()
    said = read_out(logits, Readout(mask_logit="keep", top_p=0.5), MASK_ID)
    assert said["token"].tolist() == [1]
    assert said["prob"] == pytest.approx([0.2 / 0.8])


def test_guidance_moves_logits_away_from_those_without_the_prompt() -> None:
    """u + (s + 1)(l - u): with s = 1 and l = 2, u = 1 that is 3; with s = 0 it is l."""
    logits, without = torch.tensor([[2.0, 0.0]]), torch.tensor([[1.0, 1.0]])
    assert guided(logits, without, 1.0).tolist() == [[3.0, -1.0]]
    assert guided(logits, without, 0.0).tolist() == logits.tolist()
    assert guided(logits.bfloat16(), without.bfloat16(), 0.1).dtype == torch.float32


@pytest.mark.parametrize("shifted", [False, True])
@pytest.mark.parametrize("k", [0, 2])
def test_a_guided_forward_carries_every_row_with_and_without_its_prompt(k: int, shifted: bool) -> None:
    """The prompt speaks for token 1 by 1.0; the text alone for token 2 by 1.5 and, guided, not at all: 1.5 - 1.5."""
    seen = []

    def logits(ids: np.ndarray, start: int) -> np.ndarray:
        seen.append(ids.copy())
        out = np.zeros((*ids.shape, VOCAB.size))
        out[..., 2] = 1.5
        out[(ids[:, :2] != MASK).all(1), :, 1] = 1.0
        return out

    config = DecoderConfig(name="lopa", base="greedy", k=k, gen_length=4, block_size=4, cache="none", cfg_scale=1.0)
    generation = run(logits, config, prompt=(5, 6), shifted=shifted)
    # l = (0, 1, 1.5), u = (0, 0, 1.5): guided (0, 2, 1.5)
    assert generation.ids == (1, 1, 1, 1)
    for ids in seen:
        with_prompt, without = np.split(ids, 2)
        assert (with_prompt[:, :2] == [5, 6]).all()
        assert (without[:, :2] == MASK).all()
        assert (with_prompt[:, 2:] == without[:, 2:]).all()
    assert generation.forwards == len(seen)
    assert generation.rows == sum(map(len, seen)) == 2 * sum(step.branches for step in generation.steps)
    assert generation.tokens_processed == sum(ids.size for ids in seen)
    assert run(logits, DecoderConfig(name="greedy", gen_length=4, cache="none"), (5, 6), shifted).ids == (2, 2, 2, 2)


def test_guided_texts_in_one_call_are_what_they_are_alone() -> None:
    decoder = make_decoder(DecoderConfig(name="llada", gen_length=6, block_size=3, cache="none", cfg_scale=0.7))
    assert first_calls(decoder, [3, 4, 5], VOCAB)[0] == Call(2, 9, 0, 12)  # what memory is planned with
    jobs = [Pending(p, lambda cached, p=p: decode(decoder, p, VOCAB)) for p in ([0], [3, 4, 5], [1, 2])]
    alone = {i: outcome.generation for i, outcome in backend(hashed(3)).stream(jobs)}
    assert alone == {i: outcome.generation for i, outcome in backend(hashed(3)).stream(jobs, batch=3)}


def test_the_models_own_end_token_is_never_predicted_where_its_logit_is_taken_out() -> None:
    """logits_eos_inf: that of the first end id; the other (the end of a turn) may be, and ends the text."""
    asked = make_decoder(DecoderConfig(name="llada", gen_length=3, logits_eos_inf=True, confidence_eos_eot_inf=True))
    readout = asked.readout(0, Vocabulary(MASK, (END, 7), 10))
    assert (readout.never, readout.last) == ((END,), (END, 7))
    said = read_out(P.clone(), Readout(never=(0,)), MASK_ID)
    assert said["token"].tolist() == [1]
    assert said["prob"] == pytest.approx([0.6])  # .3 of .5
    model = fixed([0.9] * 3, tokens=[1, END, 2])
    config = DecoderConfig(name="llada", gen_length=3, block_size=3)
    assert run(model, config).ids == (1, END)
    without = run(model, DecoderConfig(name="llada", gen_length=3, block_size=3, logits_eos_inf=True))
    assert (without.ids[0], without.ids[2], without.finish_reason) == (1, 2, "length")
    assert without.ids[1] not in (END, MASK)


def test_positions_that_predict_an_end_are_filled_last() -> None:
    """confidence_eos_eot_inf. Ids 0 and 1 end a text: of .5 .3 .15 .05 the best is still id 0, with probability 0; a
    position whose best is id 2 is as sure as without the two.
    """
    logits = torch.stack([P[0], torch.tensor([0.3, 0.1, 0.4, 0.2, 1e-9]).log()])
    said = read_out(logits, Readout(frozenset({"margin"}), last=(0, 1)), MASK_ID)
    assert said["token"].tolist() == [0, 2]
    assert said["prob"] == pytest.approx([0.0, 0.4 / 0.6])
    assert said["margin"] == pytest.approx([0.2, 0.1], abs=1e-6)  # the others are those of the whole distribution
    nothing_else = read_out(P.clone(), Readout(top_k=1, last=(0,)), MASK_ID)
    assert (nothing_else["token"].tolist(), nothing_else["prob"].tolist()) == ([0], [0.0])
    assert np.isnan(read_out(P * np.nan, Readout(last=(0,)), MASK_ID)["prob"]).all()  # is told, not passed over

    model = fixed([0.6, 0.99, 0.9, 0.7], tokens=[1, END, END, 2])
    for unset, order in ((None, [1, 2, 3, 0]), (True, [3, 0, 1, 2])):
        config = DecoderConfig(name="llada", gen_length=4, block_size=4, decode_tail=True, confidence_eos_eot_inf=unset)
        assert [step.positions[0] - 1 for step in run(model, config).steps] == order


# --- alg_temp


def drawn(alg_temp: float, uniform: list[float], n: int) -> list[int]:
    """What Dream's schedule fills of four masks in its first of two steps of one text; the share is one half."""
    config = make_decoder(DecoderConfig(name="dream", gen_length=4, steps=4 // n, alg_temp=alg_temp)).config
    fill = Schedule(config, Borders(1, 4, 4), lambda count: np.array(uniform[:count]))
    at = np.arange(1, 5)
    confidence = np.log(np.array([0.1, 0.2, 0.3, 0.4], dtype=np.float32))
    view = View(at, at * 0 + 1, at * 0, np.exp(confidence), confidence, at > 0)
    return fill._draw(view, np.float32(n / 4)).tolist()


def test_with_alg_temp_positions_are_drawn_by_their_confidence() -> None:
    """Equal noise leaves the order of confidence; much noise on one position wins, less of it at a low alg_temp."""
    assert drawn(0.0, [0.999, 0.5, 0.5, 0.5], 2) == [3, 2]
    assert drawn(1.0, [0.5] * 4, 2) == [3, 2]
    assert drawn(1.0, [0.999, 0.5, 0.5, 0.5], 2) == [0, 3]
    assert drawn(0.1, [0.999, 0.5, 0.5, 0.5], 2) == [3, 2]  # 10 ln(.1 / .3) outweighs 6.9
    assert drawn(1.0, [0.0, 0.5, 0.5, 0.5], 4) == [3, 2, 1, 0]


def test_the_draws_are_those_of_a_softmax_without_replacement() -> None:
    """P(first) = .1 .2 .3 .4; P(position 0 among two) = .1 + .2 x .1/.8 + .3 x .1/.7 + .4 x .1/.6."""
    rng = np.random.default_rng(0)
    pairs = [drawn(1.0, rng.random(4).tolist(), 2) for _ in range(4000)]
    assert np.bincount([pair[0] for pair in pairs]) / 4000 == pytest.approx([0.1, 0.2, 0.3, 0.4], abs=0.03)
    expected = 0.1 + 0.2 * 0.1 / 0.8 + 0.3 * 0.1 / 0.7 + 0.4 * 0.1 / 0.6
    assert np.mean([0 in pair for pair in pairs]) == pytest.approx(expected, abs=0.03)


# --- eos_penalty


def test_what_fades_is_added_to_the_logit_of_the_models_own_end_token_before_all_else() -> None:
    """Ids 0 and 1 end a text, .5 and .3; with -ln 2 id 0 has .25 of .75, and a temperature comes behind that."""
    asked = make_decoder(DecoderConfig(name="dream", gen_length=3, eos_penalty=3.0))
    assert asked.readout(0, Vocabulary(MASK, (END, 7), 10)).fading == (END,)
    assert make_decoder(DecoderConfig(name="dream", gen_length=3)).readout(0, VOCAB).fading == ()
    beside = Beside(np.array([-1]), np.array([-1]), np.array([-np.log(2)]))
    said = read_out(P.clone(), Readout(fading=(0,)), MASK_ID, beside=beside)
    assert (said["token"].tolist(), said["prob"]) == ([1], pytest.approx([0.3 / 0.75]))
    cold = read_out(P.clone(), Readout(fading=(0,), temperature=1e-3), MASK_ID, beside=beside)
    assert (cold["token"].tolist(), cold["prob"]) == ([1], pytest.approx([1.0]))


STEPS, PENALISED = 10, 3.0


def dream_coder(prompt: list[int], length: int, end: int, penalty: float) -> tuple[list[int], list[list[int]]]:
    """Dream's sampler by entropy at temperature 0 with Dream-Coder's penalty, written out: the text and, for each step,
    the positions that it fills.
    """
    local = network("dream_a")
    mask, text, filled = local.config.mask_id, torch.tensor(prompt + [local.config.mask_id] * length), []
    time = torch.linspace(1, 1e-3, STEPS + 1)
    for i in range(STEPS):
        with torch.inference_mode():
            logits = local.model.logits(local.model([Segment(text[None])]))
        logits = torch.cat([logits[:1], logits[:-1]])
        logits[:, end] += penalty * torch.log(1 - time[i] + 1e-3)
        p = logits.softmax(-1)
        entropy = torch.where(text == mask, (p * (p + 1e-10).log()).sum(-1), -torch.inf)
        masks = int((text == mask).sum())
        n = int(masks * (1 - time[i + 1] / time[i])) if i < STEPS - 1 else masks
        best = entropy.topk(n).indices
        logits[:, mask] = -torch.inf  # it is never filled
        text[best] = logits.argmax(-1)[best]
        filled.append(sorted(best.tolist()))
    return text[len(prompt) :].tolist(), filled


@pytest.mark.parametrize("empty_steps", ["run", "skip"])
def test_the_texts_with_a_penalty_are_those_of_the_sampler_written_out(empty_steps: str) -> None:
    """Seven masks in ten steps: some fill nothing, and passed over they still take the time of the step that does. A
    text's end token is what it would be given first.
    """
    local = network("dream_a")
    for prompt in ([9, 2], [6, 5, 3], [11, 12]):
        free, filled = dream_coder(prompt, 7, 0, 0.0)
        first = next(one for one in filled if one)[0] - len(prompt)
        end = free[first]
        vocab = replace(VOCAB, mask_id=local.config.mask_id, size=local.config.vocab_size, end_ids=(end,))
        texts = []
        for penalty in (0.0, PENALISED):
            config = DecoderConfig(
                name="dream", gen_length=7, steps=STEPS, eos_penalty=penalty, empty_steps=empty_steps, decode_tail=True,
                mask_logit="keep",
            )  # fmt: skip
            generation = local.decode(decode(make_decoder(config), prompt, vocab)).generation
            assert generation is not None
            ids, filled = dream_coder(prompt, 7, end, penalty)
            found = [sorted(step.positions) for step in generation.steps]
            assert (list(generation.ids), found) == (ids, [one for one in filled if one or empty_steps == "run"])
            texts.append(ids)
        assert texts[0] != texts[1]


def test_texts_of_one_call_are_held_down_each_at_its_own_time() -> None:
    """Two texts of which one starts later, and the rows of a draft, which stand at later steps than their anchor."""
    settings = {"base": "dream", "gen_length": 6, "steps": 3, "eos_penalty": 1.0, "decode_tail": True}
    decoder = make_decoder(DecoderConfig(k=3, select="exact", **settings))
    asked: list[list[float]] = []

    def noted(prompt: list[int]) -> Decode:
        steps = decode(decoder, prompt, VOCAB)
        request = next(steps)
        while True:
            assert request.fade is not None
            asked.append(request.fade.tolist())
            try:
                request = steps.send((yield request))
            except StopIteration as stop:
                return stop.value

    jobs = [Pending(prompt, lambda cached, prompt=prompt: noted(prompt)) for prompt in ([0], [1, 2], [3])]
    alone = [outcome.generation for _, outcome in backend(hashed(3)).stream(jobs)]
    packed = dict(backend(hashed(3)).stream(jobs, batch=2))
    assert alone == [packed[i].generation for i in range(3)]
    assert asked[0] == pytest.approx([np.log(1e-3)], abs=1e-6)
    assert any(len(fade) > 1 and fade == sorted(set(fade)) for fade in asked)


def test_a_draft_that_comes_true_was_held_down_at_the_times_of_its_steps() -> None:
    """So its steps are those of the sampler alone, probabilities included."""
    common: dict[str, Any] = {"base": "dream", "gen_length": 12, "steps": 12, "eos_penalty": 0.3, "decode_tail": True}
    winners = 0
    for seed in range(5):
        model = of_text(seed, 0.1)
        alone, ahead = (run(model, DecoderConfig(k=k, select="exact", **common)) for k in (0, 3))
        assert base_steps(ahead) == base_steps(alone)
        winners += sum(step.winner for step in ahead.steps)
    assert winners
