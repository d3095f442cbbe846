"""Decoders and branch scores of one's own: they are what they say they are, and stand beside the project's."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from decoders import Base, DecoderConfig, DecoderError, Score, ScoreConfig, decode, make_decoder
from decoders.families.d2f import D2F
from decoders.parts.caches import CACHES
from decoders.parts.fills import Factor, Fill, Quota, Threshold, TopN, View
from decoders.parts.schedules import Origin, Schedule
from decoders.parts.windows import Blocks, Canvas, Pipeline, Window
from decoders.resolve import resolve
from decoders.state import Branch
from tests.test_properties import check
from tests.toy import VOCAB, backend, fixed, hashed, run

MINE = replace(D2F, name="mine")
BARE = Base(name="bare", window=Pipeline, fills={"threshold": Threshold}, caches=("none", "exact"), defaults={})
RULES: dict[str, type[Fill]] = {
    "top_n": TopN, "threshold": Threshold, "factor": Factor, "quota": Quota, "schedule": Schedule, "origin": Origin,
}  # fmt: skip


class Patient(Fill):
    """Fills `patience` masks from the left."""

    reads: ClassVar[Mapping[str, Any]] = {"patience": 2}

    def select(self, view: View, branch: Branch) -> np.ndarray:
        return np.arange(min(len(view), self.config.own["patience"]))


class Silent(Fill):
    """Does not say what it reads."""

    def select(self, view: View, branch: Branch) -> np.ndarray:
        return view.prob >= min(view.prob.max(), self.config.tau_conf or 0)


PATIENT = Base("patient", Blocks, {"patient": Patient}, ("none", "exact"), {})
SEVERAL = Base(
    "several", Blocks, {"silent": Silent, "threshold": Threshold, "patient": Patient}, ("none",), {"tau_conf": 0.8}
)


class Last(Score):
    """The branch with the rightmost extra token wins."""

    name = "last"
    reads: ClassVar[Mapping[str, Any]] = {"sign": 1}
    measures = ("margin",)

    def open(self, branch: Branch, view: View) -> float:
        assert view.measure("margin").shape == view.prob.shape
        return self.config.own["sign"] * (branch.extra.position if branch.extra else 0)


class Unnamed(Last):
    """Takes its parent's name for its own."""


class Mean(Score):
    name = "mean"


def own(name: str, **changes: Any) -> DecoderConfig:
    return DecoderConfig(name=name, target=f"{__name__}:{name.upper()}", **changes)


def over(name: str, **changes: Any) -> DecoderConfig:
    return DecoderConfig(name="lopa", target=f"{__name__}:{name.upper()}", **changes)


@pytest.mark.parametrize("cache", [None, "exact", "none"])
@pytest.mark.parametrize("attention", [None, "full", "block_causal"])
@pytest.mark.parametrize("k", [0, 3])
def test_a_copy_of_a_decoder_under_another_name_gives_what_it_gives(
    attention: str | None, cache: str | None, k: int
) -> None:
    chosen: dict[str, Any] = {"gen_length": 14, "block_size": 4, "attention": attention, "cache": cache}
    for seed in range(4):
        alone = run(hashed(seed), own("mine", **chosen))
        assert alone == run(hashed(seed), DecoderConfig(name="d2f", **chosen))
        wrapped = run(hashed(seed), over("mine", k=k, **chosen))
        assert wrapped == run(hashed(seed), DecoderConfig(base="d2f", k=k, **chosen))


def test_a_decoder_says_nothing_but_its_parts_and_has_their_defaults() -> None:
    """No settings at all: the window's and the rule's own, ranked by probability."""
    config = make_decoder(own("bare", gen_length=8)).config
    assert (config.tau_conf, config.tau_add, config.tau_act, config.forced) == (0.9, 0.1, 0.95, "per_block")
    assert (config.fill, config.confidence, config.attention, config.cache) == ("threshold", "prob", "full", "none")
    assert make_decoder(over("bare", gen_length=8)).config.fill_confidence == "prob"
    exact = {"cache": "exact", "attention": "block_causal", "gen_length": 12, "block_size": 4}
    for seed in range(4):
        assert run(hashed(seed), own("bare", **exact)) == run(hashed(seed), DecoderConfig(name="d2f", **exact))


def test_lookahead_over_a_target_needs_no_second_name() -> None:
    assert make_decoder(over("mine")).config.base == "mine"
    with pytest.raises(DecoderError, match=r"has no meaning with decoder.base=d2f; allowed: decoder.base=mine"):
        make_decoder(over("mine", base="d2f"))
    with pytest.raises(DecoderError, match="has no meaning with decoder=d2f; allowed: decoder=mine"):
        make_decoder(replace(own("mine"), name="d2f"))


def test_a_setting_of_ones_own_reaches_its_rule_and_the_record() -> None:
    filled = [len(step.positions) for step in run(fixed([0.9] * 5), own("patient", gen_length=5)).steps]
    assert filled == [2, 2, 1]
    config = own("patient", gen_length=5, own={"patience": 3})
    assert [len(step.positions) for step in run(fixed([0.9] * 5), config).steps] == [3, 2]
    assert asdict(make_decoder(config).config)["own"] == {"patience": 3}
    assert asdict(make_decoder(own("patient")).config)["own"] == {"patience": 2}
    assert make_decoder(over("patient", own={"patience": 4})).config.patience == 4


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"patienc": 3}, "decoder.own.patienc=3 has no meaning for decoder=patient; allowed: attention, block_size"),
        ({"k": 3}, "decoder.own.k is the name of a setting that every decoder has"),
        ({"a b": 3}, "decoder.own.a b is no name of a setting; allowed: letters, digits and underscores"),
        ({"patience": object()}, "allowed: text, finite numbers, true, false, null, and lists of them"),
        ({"patience": float("nan")}, "decoder.own.patience=nan is not allowed; allowed: text, finite numbers"),
        ([3], "decoder.own=[3] is not allowed; allowed: a mapping"),
    ],
)
def test_a_wrong_setting_of_ones_own_is_refused(settings: Any, message: str) -> None:
    with pytest.raises(DecoderError) as caught:
        make_decoder(own("patient", own=settings))
    assert message in str(caught.value)


def test_a_rule_that_does_not_say_what_it_reads_may_read_everything() -> None:
    assert make_decoder(own("several", tau_conf=0.5)).config.tau_conf == 0.5
    assert make_decoder(own("several", fill="threshold", forced="global")).config.tau_conf == 0.8
    with pytest.raises(DecoderError, match=r"decoder.tau_conf=0.5 has no meaning with .*fill=patient; .*threshold"):
        make_decoder(own("several", fill="patient", tau_conf=0.5))
    with pytest.raises(DecoderError, match=r"decoder.own.patience=3 has no meaning with decoder.fill=threshold"):
        make_decoder(own("several", fill="threshold", own={"patience": 3}))


def test_a_rule_may_answer_with_booleans_but_not_with_a_position_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = run(fixed([0.9, 0.5, 0.85]), own("several", gen_length=3)).steps
    assert [step.positions for step in steps] == [(1, 3), (2,)]
    monkeypatch.setattr(Silent, "select", lambda *_: np.array([0, 0]))
    with pytest.raises(DecoderError, match=r"decoder.fill=silent fills a position twice"):
        run(fixed([0.9] * 3), own("several", gen_length=3))


def test_a_rule_that_fills_nothing_is_stopped_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Silent, "select", lambda *_: np.array([], dtype=int))
    with pytest.raises(RuntimeError, match="no end after 3 forwards for 3 positions: a fault of Silent"):
        run(fixed([0.9] * 3), own("several", gen_length=3))


def score(name: str, **settings: Any) -> ScoreConfig:
    return ScoreConfig(target=f"{__name__}:{name}", **settings)


def test_a_score_of_ones_own_chooses_the_winner() -> None:
    """Four masks at .5: two candidates, of which the right one wins; with the sign turned the anchor does."""
    config = DecoderConfig(base="greedy", k=2, gen_length=6, block_size=6, score=score("Last"))
    step = run(fixed([0.5] * 6), config).steps[1]
    assert (step.scores, step.winner) == ((0.0, 2.0, 3.0), 2)
    turned = run(fixed([0.5] * 6), replace(config, own={"sign": -1})).steps[1]
    assert (turned.scores, turned.winner) == ((0.0, -2.0, -3.0), 0)
    resolved = make_decoder(config).config
    assert (resolved.score.kind, resolved.own) == ("last", {"sign": 1})
    assert make_decoder(resolved).config == resolved


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (score("Unnamed"), "has the name null; allowed: a `name` of letters, digits and underscores other than mean,"),
        (score("Mean"), "has the name mean; allowed"),
        (score("MINE"), "is no class of scores; allowed: a decoders.Score"),
        (score("Nothing"), "cannot be loaded (AttributeError: "),
        (
            score("Last", kind="mixed"),
            "kind=mixed has no meaning with decoder.score.target; allowed: last",
        ),
        (
            score("Last", alpha=0.2),
            "alpha=0.2 has no meaning with decoder.score.kind=last; allowed: decoder",
        ),
    ],
)
def test_a_wrong_score_is_refused(settings: ScoreConfig, message: str) -> None:
    with pytest.raises(DecoderError) as caught:
        make_decoder(DecoderConfig(k=2, score=settings))
    assert message in str(caught.value)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that Python imports from, for one test."""
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("BASE = (", "SyntaxError"),
        ("import not_there", "ModuleNotFoundError: No module named 'not_there'"),
        ("BASE = 1 / 0", "ZeroDivisionError: division by zero"),
        ("BASE = 3", "decoder.target=broken:BASE is a int; allowed: a decoders.Base"),
        ("", "AttributeError"),
    ],
)
def test_a_module_that_does_not_load_is_one_line(text: str, message: str, folder: Path) -> None:
    (folder / "broken.py").write_text(text)
    with pytest.raises(DecoderError) as caught:
        make_decoder(DecoderConfig(target="broken:BASE"))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["d2f", "lopa", "ar", "greedy"])
def test_a_name_that_is_taken_is_refused(name: str, folder: Path) -> None:
    (folder / "taken.py").write_text(
        f"from dataclasses import replace\nfrom decoders.families.d2f import D2F\nBASE = replace(D2F, name={name!r})"
    )
    with pytest.raises(DecoderError, match=f"is called {name}; allowed: a name that no other decoder has"):
        make_decoder(DecoderConfig(name=name, target="taken:BASE"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": "two words"}, "a decoder cannot be called 'two words'; allowed: letters, digits"),
        ({"name": "../up"}, "a decoder cannot be called '../up'"),
        ({"fills": {}}, "has no fill rule"),
        ({"caches": ("radix",)}, "has a cache radix; allowed: none, exact, prefix, dual"),
        ({"caches": ("prefix",)}, "has the cache prefix, whose window must be a Blocks"),
    ],
)
def test_parts_that_do_not_fit_are_refused_where_they_are_put_together(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(DecoderError) as caught:
        replace(D2F, **changes)
    assert message in str(caught.value)


def test_an_attention_that_no_cache_of_the_decoder_goes_with_is_refused() -> None:
    only = Base("only", Blocks, {"top_n": TopN}, ("exact",), {})
    with pytest.raises(DecoderError, match=r"decoder.attention=full is not supported by only; allowed: block_causal"):
        resolve(DecoderConfig(name="only"), {"only": only}, only)
    assert resolve(DecoderConfig(name="only", attention="block_causal"), {"only": only}, only).config.cache == "exact"


@given(
    st.sampled_from([Canvas, Blocks, Pipeline]),
    st.sampled_from(sorted(RULES)),
    st.sampled_from(["full", "block_causal"]),
    st.integers(1, 14),
    st.integers(1, 6),
    st.integers(0, 4),
    st.integers(0, 10**6),
)
def test_any_window_goes_with_any_rule(
    window: type[Window], rule: str, attention: str, length: int, block: int, k: int, seed: int
) -> None:
    """Decoders put together at random, alone and under lookahead, end with their books in order."""
    caches = tuple(c for c in CACHES if not CACHES[c].needs_blocks or window is Blocks)
    base = Base("random", window, {rule: RULES[rule]}, caches, {})
    chosen: dict[str, Any] = {"gen_length": length, "attention": attention}
    chosen |= {} if window is Canvas else {"block_size": block}
    for config in (DecoderConfig(name="random", **chosen), DecoderConfig(base="random", k=k, **chosen)):
        decoder = resolve(config, {"random": base}, base)
        generation = backend(hashed(seed)).decode(decode(decoder, [0, 1], VOCAB)).generation
        assert generation is not None
        check(generation, decoder.config, prompt=2)
