"""Random toy models under random settings: what holds for every decode.

The default profile runs a few hundred decodes; `HYPOTHESIS_PROFILE=thorough` runs 10,000 (docs/decoders.md states when
that was last done).
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from decoders import DecoderConfig, DecoderError, Generation, ScoreConfig, decode, make_decoder
from lopa_bench.backends.local import Job
from tests.toy import END, MASK, VOCAB, backend, hashed, run

settings.register_profile("quick", max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
settings.register_profile("thorough", parent=settings.get_profile("quick"), max_examples=10_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))

MEASURE = st.sampled_from(["prob", "margin", "neg_entropy"])
UNIT = st.sampled_from([0.0, 0.2, 0.5, 0.9, 1.0])


@st.composite
def configs(draw: Any) -> DecoderConfig:
    """Any decoder with any of its settings."""
    base = draw(st.sampled_from(["greedy", "llada", "dream", "fast_dllm", "d2f"]))
    length, block = draw(st.integers(1, 20)), draw(st.integers(1, 8))
    chosen: dict[str, Any] = {"gen_length": length, "confidence": draw(MEASURE), "decode_tail": draw(st.booleans())}
    if base != "dream":
        chosen |= {"block_size": block, "attention": draw(st.sampled_from(["full", "block_causal"]))}
    if base in ("fast_dllm", "d2f", "dream"):
        chosen["tau_conf"] = draw(UNIT)
    if base == "d2f":
        chosen |= {"tau_add": draw(UNIT), "tau_act": draw(st.sampled_from([0.3, 0.95, 1.0]))}
    if base in ("fast_dllm", "d2f"):
        chosen["forced"] = draw(st.sampled_from(["per_block", "global"]))
    if base == "fast_dllm":
        chosen |= {"fill": draw(st.sampled_from(["threshold", "factor", "factor_released", "quota", "schedule"]))}
        if chosen["fill"] in ("threshold", "schedule"):
            chosen["first_position"] = draw(st.sampled_from(["rule", "unconditional"]))
    if base == "dream":
        chosen |= {"fill": draw(st.sampled_from(["schedule", "origin", "budget"]))}
    if chosen.get("attention") == "full" and base in ("greedy", "llada", "fast_dllm"):
        chosen["cache"] = draw(st.sampled_from(["none", "prefix", "dual"]))
    if draw(st.booleans()):
        score = ScoreConfig(
            kind=draw(st.sampled_from(["mean", "mixed", "next_fill"])),
            bottom=draw(st.sampled_from([0.3, 1.0])),
            creation_weight=draw(st.sampled_from([0.0, 0.5])),
        )
        chosen |= {"name": "lopa", "base": base, "k": draw(st.integers(0, 6)), "score": score}
        chosen |= {"complete": draw(st.sampled_from(["end", "verify"])), "floor": draw(st.sampled_from([None, 0.3]))}
    else:
        chosen["name"] = base
    return DecoderConfig(**chosen)


def check(generation: Generation, config: DecoderConfig) -> None:
    """Ends (we are here); bounded forwards; no mask id; counters add up; filled positions are filled once."""
    length = config.gen_length
    assert generation.forwards <= length + (config.complete == "verify")
    assert MASK not in generation.ids
    assert len(generation.ids) <= length
    if END in generation.ids and not config.decode_tail:
        assert generation.ids.index(END) == len(generation.ids) - 1
    assert generation.finish_reason == ("eos" if END in generation.ids else "length")
    if generation.finish_reason == "length":
        assert len(generation.ids) == length
    filled = [position for step in generation.steps for position in step.positions]
    extras = [step.lookahead_positions[step.winner - 1] for step in generation.steps if step.winner]
    assert len(set(filled + extras)) == len(filled + extras)
    last = generation.window_tokens - len(filled) - len(extras)
    assert last in (0, 1)  # the extra token of a complete branch that ended the decode
    assert generation.rows == sum(step.branches for step in generation.steps)
    assert all(step.branches == 1 + len(step.lookahead_positions) for step in generation.steps)
    assert all(step.tokens_processed >= step.branches for step in generation.steps)


@given(configs(), st.integers(0, 10**6), st.integers(1, 5), st.booleans())
def test_every_decode_ends_with_its_books_in_order(
    config: DecoderConfig, seed: int, prompt: int, shifted: bool
) -> None:
    check(run(hashed(seed), config, prompt=list(range(prompt)), shifted=shifted), config)


@given(configs(), st.integers(0, 10**6))
def test_k_0_is_the_base(config: DecoderConfig, seed: int) -> None:
    if config.name != "lopa":
        config = replace(config, name="lopa", base=config.name)
    config = replace(config, k=0, fill_confidence=config.confidence, floor=None, score=ScoreConfig())
    plain = replace(config, name=config.base or "", base=None, fill_confidence=None, complete=None)
    assert run(hashed(seed), config).ids == run(hashed(seed), plain).ids


@given(st.lists(configs(), min_size=2, max_size=5), st.integers(0, 10**6))
def test_the_result_does_not_depend_on_batch_mates(several: list[DecoderConfig], seed: int) -> None:
    """Decodes of any kind packed into one call give what they give alone, steps included."""
    starts = [lambda _, c=config, i=i: decode(make_decoder(c), [i], VOCAB) for i, config in enumerate(several)]
    packed = dict(backend(hashed(seed)).stream([Job([i], start) for i, start in enumerate(starts)], len(starts)))
    for i, start in enumerate(starts):
        alone = backend(hashed(seed)).decode(start(0))
        assert packed[i].generation == alone.generation


@given(st.text(max_size=5), st.floats(allow_nan=True), st.integers())
def test_a_setting_is_accepted_or_refused_but_never_crashes(text: str, number: float, integer: int) -> None:
    for changes in ({"attention": text}, {"tau_conf": number}, {"k": integer}, {"gen_length": integer}):
        try:
            make_decoder(DecoderConfig(**changes))  # type: ignore[arg-type]
        except DecoderError as error:
            assert "allowed" in str(error)  # noqa: PT017  # most values are refused, some are not
