"""Random toy models under random settings: what holds for every decode.

The default profile runs a few hundred decodes; `HYPOTHESIS_PROFILE=thorough` runs 10,000 (docs/decoders.md states when
that was last done).
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from decoders import (
    BASES,
    Base,
    DecoderConfig,
    DecoderError,
    Generation,
    ScoreConfig,
    Step,
    decode,
    make_decoder,
)
from decoders.config import SCORE_FIELDS
from decoders.parts.caches import CACHES
from decoders.parts.scores import SCORES
from lopa_bench.backends.local import Pending
from tests.toy import END, MASK, VOCAB, backend, hashed, run

settings.register_profile("quick", max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
settings.register_profile("thorough", parent=settings.get_profile("quick"), max_examples=10_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))

MEASURE = st.sampled_from(["prob", "margin", "neg_entropy"])
UNIT = st.sampled_from([0.0, 0.2, 0.5, 0.9, 1.0])
VALUES = {
    "block_size": st.one_of(st.integers(1, 8), st.just(64)),
    "buffer_size": st.integers(1, 4),
    "tau_add": UNIT,
    "tau_act": st.sampled_from([0.3, 0.95, 1.0]),
    "tau_conf": UNIT,
    "forced": st.sampled_from(["per_block", "global", "first", "first_and_global"]),
    "early_stop": st.booleans(),
    "cache_delay": st.integers(0, 3),
    "refresh_interval": st.sampled_from([None, 1, 2, 5]),
    "confidence": MEASURE,
    "tokens_per_step": st.integers(1, 4),
    "store": st.sampled_from(["merged", "forward"]),
    "factor": st.sampled_from([0.01, 1.0, 50.0]),
    "gamma": st.sampled_from([0.0, 0.1, 2.0, 1e6]),
    "delta": st.sampled_from([-5.0, -0.3, 0.25, 1.0]),
    "tau_entropy": st.sampled_from([0.0, 0.5, 1.5, 99.0]),
    "behind_end": st.sampled_from(["fill", "wait"]),
    "tau_kl": st.sampled_from([0.0, 0.1, 1.0, 99.0]),
    "kl_steps": st.integers(1, 3),
    "empty_steps": st.sampled_from(["skip", "run"]),
    "tau_run": UNIT,
    "tau_edit": UNIT,
    "tau_back": UNIT,
    "max_post_edit": st.integers(0, 3),
    "capped": st.sampled_from(["verify", "end"]),
    "penalty": st.sampled_from([0.0, 1.5]),
    "alg_temp": st.sampled_from([None, 0.0, 0.1, 5.0]),
    "prefix_look": st.integers(0, 9),
    "after_look": st.integers(0, 9),
    "warmup_steps": st.integers(0, 9),
}
SAMPLED = {
    "top_p": st.sampled_from([0.2, 0.9, 1.0]),
    "top_k": st.sampled_from([None, 1, 3, 1000]),
    "logits_eos_inf": st.booleans(),
}
SCORE_VALUES = {
    "bottom": st.sampled_from([0.01, 0.3, 1.0]),
    "window": st.sampled_from([None, 1, 3, 99]),
    "creation_weight": st.sampled_from([0.0, 0.5, 1.0]),
    "alpha": st.sampled_from([0.0, 0.7, 1.0]),
}


EDITING = {name for name, base in BASES.items() if any(rule.edits for rule in base.fills.values())}


@st.composite
def configs(draw: Any, names: Collection[str] = BASES) -> DecoderConfig:
    """Any of these decoders with any of the settings that it reads."""
    base = BASES[draw(st.sampled_from(sorted(names)))]
    length = draw(st.integers(1, 20))
    chosen: dict[str, Any] = {"gen_length": length, "decode_tail": draw(st.booleans())}
    chosen["grid"] = draw(st.sampled_from(base.window.grids))
    chosen["fill"] = fill = draw(st.sampled_from(sorted(base.fills)))
    chosen["attention"] = attention = draw(st.sampled_from(sorted(base.window.caches)))
    chosen["cache"] = draw(st.sampled_from([None, *base.caches_under(attention)]))
    cache = CACHES[chosen["cache"] or "none"]
    read = {**base.window.reads, **(base.fills[fill].reads or {}), **cache.reads}
    for name in read.keys() & VALUES.keys():
        chosen[name] = draw(VALUES[name])
    if chosen.get("early_stop"):
        chosen["decode_tail"] = False
    for name in draw(st.sampled_from([(), tuple(SAMPLED)])):
        chosen[name] = draw(SAMPLED[name])
    if fill == "quota" and chosen["confidence"] in (None, "prob"):
        chosen["confidence_eos_eot_inf"] = draw(st.booleans())
    if chosen["cache"] == "none":
        chosen["cfg_scale"] = draw(st.sampled_from([0.0, 1.5]))
    if "denoising_steps" in read:
        chosen["denoising_steps"] = draw(st.integers(1, chosen["block_size"]))
    if "sub_block_size" in read:
        chosen["block_size"] = draw(st.sampled_from([1, 2, 4, 6]))
        chosen["sub_block_size"] = draw(
            st.sampled_from([size for size in (1, 2, 3) if chosen["block_size"] % size == 0])
        )
    if "steps" in read and fill != "budget":
        blocks = 1 if base.name == "dream" else -(-length // chosen["block_size"])
        chosen["steps"] = blocks * draw(st.integers(1, 8))
    if "first_position" in base.readable and base.fills[fill].follows_first:
        chosen["first_position"] = draw(st.sampled_from(["rule", "unconditional"]))
    rule = base.fills[fill]
    if rule.timed and not chosen.get("logits_eos_inf") and chosen.get("first_position") != "unconditional":
        chosen["eos_penalty"] = draw(st.sampled_from([0.0, 3.0]))
    if not draw(st.booleans()) or rule.alone:
        return DecoderConfig(name=base.name, **chosen)
    if draw(st.booleans()) and not rule.edits and not cache.counts:
        return _drafting(draw, base, chosen)
    kind = draw(st.sampled_from(sorted(SCORES)))
    score = ScoreConfig(kind=kind, **{name: draw(SCORE_VALUES[name]) for name in SCORES[kind].reads})
    if score.window is not None:
        score.bottom = 1.0
    k = draw(st.one_of(st.integers(0, 6), st.just(1024)))
    chosen |= {"name": "lopa", "base": base.name, "k": k, "score": score, "confidence": draw(MEASURE)}
    chosen |= {"complete": draw(st.sampled_from(["end", "verify"])), "floor": draw(st.sampled_from([None, 0.3]))}
    return DecoderConfig(**chosen)


def _drafting(draw: Any, base: Base, chosen: dict[str, Any]) -> DecoderConfig:
    """Lookahead that does not go by a score."""
    chosen |= {"name": "lopa", "base": base.name}
    if "confidence" in (base.fills[chosen["fill"]].reads or ()):
        chosen["fill_confidence"] = chosen.pop("confidence", None)
    drafts = "kl" not in base.fills[chosen["fill"]].measures
    if drafts and draw(st.integers(0, 4)) == 0:
        return DecoderConfig(k="auto", **chosen)
    chosen |= {"k": draw(st.one_of(st.integers(0, 8), st.just(1024)))}
    chosen["select"] = select = draw(st.sampled_from(["gate", "confirm", "exact"] if drafts else ["gate"]))
    if select == "gate":
        chosen |= {"gate": draw(UNIT), "confidence": draw(MEASURE)}
    if select == "confirm":
        chosen["confirm"] = draw(st.one_of(st.none(), UNIT))
        chosen["confirm_best"] = chosen["confirm"] is not None and draw(st.booleans())
    if select == "exact" and "empty_steps" in chosen:
        chosen["empty_steps"] = "skip"
    if select == "exact" and base.window.goes_ahead:
        chosen["eager"] = draw(st.booleans())
    return DecoderConfig(**chosen)


def needs_shift(config: DecoderConfig) -> bool:
    base = BASES.get(config.base or config.name)  # none for one of a test's own
    return base is not None and base.window.hands_over


def takes(config: DecoderConfig, shifted: bool) -> bool:
    """Whether a decoder can go with models of shifted logits, or with others."""
    try:
        make_decoder(config).check_shift(shifted)
    except DecoderError:
        return False
    return True


def check(generation: Generation, config: DecoderConfig, prompt: int) -> None:
    """Ends (we are here); bounded forwards; no mask id; counters add up; the steps make the text. The settings are
    resolved.
    """
    length = config.gen_length
    editing = (config.base or config.name) in EDITING
    planned = -(-length // (config.block_size or length))
    idle = (config.steps or 0) // planned * (planned + 1) if config.empty_steps == "run" else 0
    if config.store == "forward" or needs_shift(config):
        stores = [step.kept for step in generation.steps if not step.positions and step.kept]
        assert editing or len(set(stores)) == len(stores) <= planned + 1
        idle += planned + 1 if editing else len(stores)
    if config.max_post_edit is not None:
        idle += (planned + 1) * (config.max_post_edit + 1)
    assert generation.forwards <= length + (config.complete == "verify") + idle
    assert MASK not in generation.ids
    assert len(generation.ids) <= length
    if END in generation.ids and not config.decode_tail:
        assert generation.ids.index(END) == len(generation.ids) - 1
    assert generation.finish_reason == ("eos" if END in generation.ids else "length")
    if generation.finish_reason == "length":
        assert len(generation.ids) == length
    assert all((step.edits is not None) == editing for step in generation.steps)
    text = made_by(generation.steps)
    last = generation.window_tokens - len(text)
    assert last in (0, 1)  # the extra token of a complete branch that ended the decode
    differing = [i for i, token in enumerate(generation.ids) if text.get(prompt + i, MASK) != token]
    assert len(differing) <= last
    assert min(text, default=prompt) >= prompt
    passes = 2 if config.cfg_scale else 1
    assert generation.rows == passes * sum(step.branches for step in generation.steps)
    for step in generation.steps:
        counts = step.lookahead_counts or ()
        assert (step.branches, sum(counts)) == (1 + len(counts), len(step.lookahead_positions))
        assert len(step.fresh_probs or ()) == len(step.lookahead_positions)
        if step.base_fills is not None:
            assert sum(step.base_fills) == len(step.taken_positions or ()) + len(step.positions)
    assert all(step.tokens_processed >= passes * step.branches for step in generation.steps)


def made_by(steps: Sequence[Step]) -> dict[int, int]:
    """The text that the steps make, by position: only a mask is filled, and only what stands there is edited."""
    text: dict[int, int] = {}

    def fill(positions: Sequence[int], tokens: Sequence[int]) -> None:
        assert not set(positions) & set(text)
        text.update(zip(positions, tokens, strict=True))

    for step in steps:
        fill(*before_the_fill(step))
        before = set(text)
        fill(step.positions, step.tokens)
        for edit in step.edits or ():
            assert edit.position in before
            assert text.pop(edit.position) == edit.old != edit.new
            if edit.new != MASK:
                text[edit.position] = edit.new
    return text


def before_the_fill(step: Step) -> tuple[Sequence[int], Sequence[int]]:
    """Positions and tokens that the winner took over of lookahead: its one token, or the confirmed steps of a draft."""
    if step.taken_positions is not None:
        return step.taken_positions, step.taken_tokens or ()
    part = slice(step.winner - 1, step.winner if step.winner else 0)
    return (step.lookahead_positions[part], step.lookahead_tokens[part]) if step.winner else ((), ())


@given(configs(), st.integers(0, 10**6), st.integers(1, 5), st.booleans())
def test_every_decode_ends_with_its_books_in_order(
    config: DecoderConfig, seed: int, prompt: int, shifted: bool
) -> None:
    shifted = shifted if takes(config, shifted) else not shifted
    check(run(hashed(seed), config, prompt=list(range(prompt)), shifted=shifted), make_decoder(config).config, prompt)


@given(configs(names=EDITING), st.integers(0, 10**6), st.integers(1, 5))
def test_every_decode_that_edits_ends_with_its_books_in_order(config: DecoderConfig, seed: int, prompt: int) -> None:
    check(run(hashed(seed), config, prompt=list(range(prompt))), make_decoder(config).config, prompt)


@given(configs(), st.integers(0, 10**6))
def test_k_0_is_the_base(config: DecoderConfig, seed: int) -> None:
    if config.name != "lopa":
        config = replace(config, name="lopa", base=config.name)
    ranks = "confidence" in (make_decoder(config).rule.reads or ())
    confidence = (config.confidence or config.fill_confidence) if ranks else None
    if config.confidence_eos_eot_inf:
        confidence = "prob"  # the only one that it goes with
    config = replace(config, k=0, fill_confidence=confidence)
    plain = replace(
        config,
        name=config.base or "",
        base=None,
        fill_confidence=None,
        confidence=confidence,
        complete=None,
        floor=None,
        select=None,
        gate=None,
        confirm=None,
        confirm_best=None,
        eager=False,
        score=ScoreConfig(),
    )
    shifted = needs_shift(config)
    wrapped, alone = (run(hashed(seed), one, shifted=shifted) for one in (config, plain))
    assert wrapped.ids == alone.ids
    assert [step.positions for step in wrapped.steps] == [step.positions for step in alone.steps]


@given(configs(), st.integers(0, 10**6))
def test_verifying_complete_branches_changes_no_text(config: DecoderConfig, seed: int) -> None:
    if config.name == "lopa" and config.select is None and config.k != "auto":
        several = [replace(config, complete=complete) for complete in ("end", "verify")]
        both = [run(hashed(seed), one, shifted=needs_shift(config)) for one in several]
        assert both[0].ids == both[1].ids


@given(st.lists(configs(), min_size=2, max_size=5), st.integers(0, 10**6))
def test_the_result_does_not_depend_on_batch_mates(several: list[DecoderConfig], seed: int) -> None:
    """Decodes of any kind packed into one call give what they give alone, steps included."""
    if any(map(needs_shift, several)):
        several = [config for config in several if takes(config, shifted=True)]
    starts = [lambda _, c=config, i=i: decode(make_decoder(c), [i], VOCAB) for i, config in enumerate(several)]
    shifted = any(map(needs_shift, several))
    jobs = [Pending([i], start) for i, start in enumerate(starts)]
    packed = dict(backend(hashed(seed), shifted).stream(jobs, len(starts)))
    for i, start in enumerate(starts):
        alone = backend(hashed(seed), shifted).decode(start(0))
        assert packed[i].generation == alone.generation


@given(
    st.fixed_dictionaries({name: VALUES[name] for name in ("block_size", "tau_conf", "forced", "confidence")}),
    st.fixed_dictionaries({"gen_length": st.integers(1, 20), "decode_tail": st.booleans()}),
    st.fixed_dictionaries({name: VALUES[name] for name in ("tau_add", "tau_act")}),
    st.integers(1, 4), st.integers(1, 5), st.integers(0, 10**6),
)  # fmt: skip
def test_a_buffer_holds_so_many_blocks_one_is_llada2_and_one_that_never_fills_is_d2f(
    rule: dict[str, Any], text: dict[str, Any], taus: dict[str, Any], size: int, prompt: int, seed: int
) -> None:
    def steps(name: str, grid: str, **more: Any) -> tuple[Step, ...]:
        config = DecoderConfig(name=name, grid=grid, **rule, **text, **more)
        return run(hashed(seed), config, prompt=list(range(prompt))).steps

    for grid in ("prompt", "absolute"):
        assert steps("multibd", grid, buffer_size=1, **taus) == steps("llada2", grid)
        for step in steps("multibd", grid, buffer_size=size, **taus):
            stored = step.kept[1] if step.kept else step.window_start
            not_stored = step.window_start + step.window_width - max(stored, prompt if grid == "prompt" else 0)
            assert not_stored <= size * rule["block_size"]
    assert steps("multibd", "prompt", buffer_size=99, **taus) == steps("d2f", "prompt", **taus)


ANYTHING = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=True), st.text(max_size=5), st.lists(st.integers())
)


@given(st.sampled_from([*vars(DecoderConfig()), *(f"score.{name}" for name in SCORE_FIELDS)]), ANYTHING)
def test_a_setting_is_accepted_or_refused_but_never_crashes(name: str, value: Any) -> None:
    part, _, inner = name.rpartition(".")
    try:
        make_decoder(
            DecoderConfig(k=1, score=ScoreConfig(**{inner: value})) if part else DecoderConfig(**{name: value})
        )
    except DecoderError as error:
        assert "allowed" in str(error)  # noqa: PT017  # most values are refused, some are not
        assert len(str(error).splitlines()) == 1  # noqa: PT017
