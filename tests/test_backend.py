"""The local backend: packing, failures of single samples, times."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from decoders import DecoderConfig, Vocabulary, decode, make_decoder
from decoders.types import Keep, Readout, Request
from lopa_bench.backends.local import LocalBackend, Pending
from lopa_bench.backends.readout import read_out
from lopa_bench.backends.session import Session
from lopa_bench.engines.masked import MaskedEngine
from lopa_bench.models.checkpoint.loader import load_model
from lopa_bench.models.network import attention
from lopa_bench.plan.units import Unit, sample_seed
from tests.toy import VOCAB, backend, fixed, run

MODELS = Path(__file__).parent / "golden" / "models"
PROMPTS = [[3, 17, 21], [40, 2, 9, 9, 61, 5, 33], [1], [77, 12, 30, 8], [5, 6, 7, 8, 9, 10]]


def job(config: DecoderConfig, prompt: list[int], vocab: Vocabulary = VOCAB) -> Pending:
    return Pending(prompt, lambda cached: decode(make_decoder(config), prompt, vocab, cached))


def real(name: str = "dream_a") -> LocalBackend:
    return LocalBackend(load_model(MODELS / name, torch.float32, torch.device("cpu")), 128)


@pytest.mark.parametrize("model", ["dream_a", "llada_a"])
@pytest.mark.parametrize(
    "config",
    [
        DecoderConfig(k=3, gen_length=24, block_size=8),
        DecoderConfig(k=3, gen_length=24, block_size=8, attention="block_causal"),
        DecoderConfig(name="fast_dllm", gen_length=24, block_size=8, cache="dual"),
        DecoderConfig(name="fast_dllm", gen_length=24, block_size=8, cache="prefix"),
        DecoderConfig(name="greedy", gen_length=12, block_size=6),
    ],
    ids=["lopa_full", "lopa_block_causal", "dual", "prefix", "greedy"],
)
def test_packed_samples_decode_as_alone(config: DecoderConfig, model: str) -> None:
    """On a real fp32 network: ids, filled positions and forwards of each sample are those of batch 1."""
    local = real(model)
    vocab = Vocabulary(local.config.mask_id, local.config.end_ids, local.config.vocab_size)
    jobs = [job(config, prompt, vocab) for prompt in PROMPTS]
    alone = {i: outcome.generation for i, outcome in local.stream(jobs, batch=1)}
    for batch in (2, 5):
        for i, outcome in local.stream(jobs, batch=batch):
            expected = alone[i]
            assert outcome.generation is not None
            assert expected is not None
            assert outcome.generation.ids == expected.ids
            assert [s.positions for s in outcome.generation.steps] == [s.positions for s in expected.steps]
            assert outcome.generation.forwards == expected.forwards


def test_packed_samples_share_their_model_calls() -> None:
    local = backend(fixed([0.5] * 4))
    outcomes = dict(local.stream([job(DecoderConfig(name="greedy", gen_length=4), [0])] * 3, batch=3))
    assert local.model.calls == local.forwards == 4
    assert [outcome.generation.forwards for outcome in outcomes.values() if outcome.generation] == [4, 4, 4]


def test_times_of_packed_samples_are_not_invented() -> None:
    jobs = [job(DecoderConfig(name="greedy", gen_length=3), [0])] * 2
    for _, outcome in backend(fixed([0.5] * 3)).stream(jobs, batch=2):
        assert outcome.total_s is None
        assert outcome.step_s == []
    for _, outcome in backend(fixed([0.5] * 3)).stream(jobs, batch=1):
        assert outcome.total_s is not None
        assert outcome.prefill_s == outcome.step_s[0]
        assert sum(outcome.step_s) <= outcome.total_s


def test_a_sample_with_non_finite_logits_disturbs_no_other() -> None:
    def logits(ids: np.ndarray, start: int) -> np.ndarray:
        out = fixed([0.9] * 4)(ids, start)
        out[ids[:, 0] == 5] = np.nan
        return out

    config = DecoderConfig(name="d2f", gen_length=4, cache="none")
    jobs = [job(config, [prompt]) for prompt in (0, 5, 1)]
    for batch in (1, 3):
        outcomes = dict(backend(logits).stream(jobs, batch=batch))
        assert [outcomes[i].status for i in range(3)] == ["length", "non_finite", "length"]
        assert outcomes[1].generation is None
        assert "not finite" in str(outcomes[1].error)


def test_readout_of_known_logits() -> None:
    """p = .5 .25 .25 and a mask id that is not counted; ties go to the lowest id."""
    logits = torch.tensor([[0.5, 0.25, 0.25, 4.0], [0.25, 0.5, 0.5, 4.0]]).log()
    values = read_out(logits.clone(), Readout(frozenset({"margin", "neg_entropy"})), mask_id=3)
    assert values["token"].tolist() == [0, 1]
    assert values["prob"] == pytest.approx([0.5, 0.4])
    assert values["margin"] == pytest.approx([0.25, 0.0], abs=1e-6)
    assert values["neg_entropy"][0] == pytest.approx(-1.0397207, abs=1e-5)
    kept = read_out(logits.clone(), Readout(mask_logit="keep"), mask_id=3)
    assert kept["token"].tolist() == [0, 1]
    assert kept["prob"] == pytest.approx([0.1, 0.5 / 5.25], abs=1e-6)


def test_confidences_are_float32_also_for_a_half_precision_model() -> None:
    logits = torch.tensor([[1.0, 2.0, 3.0, 0.0]], dtype=torch.bfloat16)
    expected = read_out(logits.float(), Readout(), mask_id=3)["prob"]
    assert read_out(logits, Readout(), mask_id=3)["prob"] == pytest.approx(expected, abs=1e-7)


def test_prefix_reuse_is_exact_for_an_equal_prompt_under_block_causal_attention() -> None:
    """The same prompt again feeds one prompt token instead of all, and gives the same ids; another prompt is fed whole
    under `exact`, and from the first difference on under `approximate`.
    """
    config = DecoderConfig(k=2, gen_length=16, block_size=8, attention="block_causal")
    first, other = [3, 17, 21, 40, 5], [3, 17, 21, 9, 9]
    for reuse, expected in (("off", [0, 0, 0]), ("exact", [0, 4, 0]), ("approximate", [0, 4, 3])):
        local = LocalBackend(real().model, 128, prefix_reuse=reuse)
        vocab = Vocabulary(local.config.mask_id, local.config.end_ids, local.config.vocab_size)
        outcomes = dict(local.stream([job(config, prompt, vocab) for prompt in (first, first, other)]))
        assert [outcomes[i].cached for i in range(3)] == expected
        generations = [outcomes[i].generation for i in range(3)]
        assert generations[0] is not None
        assert generations[1] is not None
        assert generations[0].ids == generations[1].ids
        assert generations[1].steps[0].tokens_processed == generations[0].steps[0].tokens_processed - expected[1]


def test_on_the_absolute_grid_whole_blocks_of_an_equal_prompt_are_reused_and_told() -> None:
    """Of seven positions one block of four: the three behind it stand in a block that is not full yet."""
    config = DecoderConfig(name="llada2", gen_length=9, block_size=4, grid="absolute")
    local = LocalBackend(real().model, 128, prefix_reuse="exact")
    vocab = Vocabulary(local.config.mask_id, (), local.config.vocab_size)
    outcomes = dict(local.stream([job(config, [3, 17, 21, 40, 5, 6, 7], vocab) for _ in range(2)]))
    assert [outcomes[i].cached for i in range(2)] == [0, 4]
    assert outcomes[0].generation is not None
    assert outcomes[1].generation is not None
    assert outcomes[0].generation.ids == outcomes[1].generation.ids
    assert outcomes[1].generation.steps[0].cached == 4


def test_a_text_that_ends_before_its_prompt_is_kept_leaves_nothing_to_reuse() -> None:
    """Everything passes at once, so no second forward asks for the keys and values of the first."""
    config = DecoderConfig(name="d2f", gen_length=8, block_size=8, tau_conf=0.0, attention="block_causal")
    local = LocalBackend(real().model, 128, prefix_reuse="exact")
    vocab = Vocabulary(local.config.mask_id, (), local.config.vocab_size)
    outcomes = dict(local.stream([job(config, [3, 17, 21, 40, 5], vocab) for _ in range(3)]))
    assert [outcomes[i].cached for i in range(3)] == [0, 0, 0]
    assert len({outcomes[i].generation.ids for i in range(3)}) == 1


def test_a_temperature_draws_by_the_seed_and_not_by_the_batch() -> None:
    """The same seed draws the same text, alone and packed; another seed another one; frequencies follow the softmax."""
    decoder = make_decoder(DecoderConfig(name="greedy", gen_length=6, temperature=1.0))
    model = fixed([0.4] * 6)
    jobs = [Pending([0], lambda cached, s=seed: decode(decoder, [0], VOCAB, seed=s)) for seed in (1, 1, 2)]
    alone = {i: outcome.generation for i, outcome in backend(model).stream(jobs)}
    packed = {i: outcome.generation for i, outcome in backend(model).stream(jobs, batch=3)}
    assert alone == packed
    assert alone[0] == alone[1] != alone[2]
    logits = torch.tensor([[0.7, 0.2, 0.1, 1e-9]]).log().repeat(4000, 1)
    drawn = read_out(logits, Readout(temperature=1.0, seed=3), mask_id=3)["token"]
    assert np.bincount(drawn, minlength=3) / 4000 == pytest.approx([0.7, 0.2, 0.1], abs=0.03)


def test_every_forward_draws_anew() -> None:
    """One mask a forward and eight equally likely tokens: twelve draws are not all the same token."""
    config = DecoderConfig(name="d2f", gen_length=12, block_size=1, tau_add=1.0, temperature=1.0, decode_tail=True)
    generation = run(lambda ids, start: np.zeros((*ids.shape, VOCAB.size)), config)
    assert [len(step.positions) for step in generation.steps] == [1] * generation.forwards
    assert len(set(generation.ids)) > 2


def test_every_sample_draws_by_its_own_seed() -> None:
    """The seed of a unit comes from the run's seed, the problem and the sample; it is what the decode asks for."""
    engine = MaskedEngine.__new__(MaskedEngine)
    units = [Unit(0, 0), Unit(0, 1), Unit(1, 0)]
    problems = [SimpleNamespace(id="a"), SimpleNamespace(id="b")]
    settings = SimpleNamespace(run=SimpleNamespace(seed=5))
    engine.plan = SimpleNamespace(config=settings, problem=lambda unit: problems[unit.index])
    engine.prompt_ids, engine.model = {0: [1], 1: [1]}, SimpleNamespace(vocabulary=VOCAB)
    engine.decoder = make_decoder(DecoderConfig(name="d2f", gen_length=2, temperature=1.0))
    asked = [next(engine._start(unit)).readout.seed for unit in units]
    assert asked == [sample_seed(5, problems[unit.index].id, unit.sample_index) for unit in units]
    assert len(set(asked)) == 3


@pytest.mark.parametrize("blocks", [None, np.repeat([1, 2], 132)], ids=["full", "block_causal"])
def test_a_long_window_on_a_cache_reads_what_is_kept(
    blocks: np.ndarray | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """264 masks behind 40 kept positions: the fused kernel, explicit products, and no cache at all agree."""
    local = LocalBackend(real().model, 304)
    mask_id, readout = local.config.mask_id, Readout()
    assert mask_id is not None
    prompt, masks = np.array([[3 + i % 60 for i in range(40)]]), np.full((1, 264), mask_id)

    def predicted(session: Session, request: Request) -> np.ndarray:
        hidden_TD = local.model([session.open(request, local.device)], keep=True)
        rows, columns = session.needed()
        index = torch.from_numpy(rows * request.ids.shape[1] + columns)
        values = read_out(local.model.logits(hidden_TD[index]), readout, mask_id)
        return session.close(rows, columns, values).prob[0, -264:]

    def new_session() -> Session:
        return Session(local.new_cache(), local.config.shifted, mask_id)

    def on_a_cache() -> np.ndarray:
        session = new_session()
        predicted(session, Request(prompt, np.array([40]), 0, readout))
        return predicted(session, Request(masks, np.array([264]), 40, readout, blocks, keep=Keep(0, 0, 40)))

    with torch.inference_mode():
        fused = on_a_cache()
        monkeypatch.setattr(attention, "FUSED_FROM", 10**9)
        explicit = on_a_cache()
        whole = np.concatenate([prompt, masks], axis=1)
        behind = np.concatenate([np.zeros(40, dtype=int), np.repeat([1, 1] if blocks is None else [1, 2], 132)])
        at_once = predicted(new_session(), Request(whole, np.array([304]), 0, readout, behind))
    assert fused[1:] == pytest.approx(explicit[1:], abs=1e-5)
    assert fused[1:] == pytest.approx(at_once[1:], abs=1e-5)
    assert fused.std() > 1e-4
