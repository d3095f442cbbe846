"""Every column of a sample, a step and a run, from a decode written down by hand: what docs/metrics.md defines."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from decoders.config import DecoderConfig
from decoders.types import Edit, Generation
from lopa_bench.backends.outcome import Outcome
from lopa_bench.engines.base import Engine, Sample
from lopa_bench.plan.units import Unit, sample_seed, units_of
from lopa_bench.records.schema import COLUMNS, NOT_SCORED, SCHEMA_VERSION, to_table
from lopa_bench.run import rows as rows_module
from lopa_bench.run.completion import complete
from lopa_bench.run.rows import Rows
from lopa_bench.settings.backend import LocalSettings
from lopa_bench.settings.config import Config, RunSettings
from lopa_bench.settings.model import ModelSettings
from lopa_bench.settings.shard import Shard
from tasks.types import Problem, Prompt, Source, TaskConfig
from tests.scripted import step

WORDS = {1: "<end>", 2: "<end2>", 5: "It", 6: " is", 7: " 4", 8: "!\n\nQ", 9: ":", 10: " more", 3: "tail"}
HOST = {"hostname": "node7", "machine": "x86_64", "processor": "Xeon", "gpu": None, "threads": 8}

# Three calls of one, three and two rows; in the second the second lookahead branch wins, in the third the anchor.
STEPS = (
    step(0, window_start=3, window_width=8, tokens_processed=11, positions=(3, 4), tokens=(5, 6), probs=(0.5, 0.75),
         masks_left=6),
    step(
        1, window_start=4, window_width=6, branches=3, winner=2, scores=(0.25, 0.5, 0.75), lookahead_positions=(5, 6),
        lookahead_tokens=(7, 8), positions=(5,), tokens=(7,), probs=(0.875,), masks_left=2, cached=4,
        tokens_processed=18,
    ),
    step(2, window_start=7, window_width=4, branches=2, winner=0, scores=(0.625, 0.125), lookahead_positions=(9,),
         lookahead_tokens=(10,), positions=(), tokens=(), probs=(), masks_left=0, cached=6, tokens_processed=8),
)  # fmt: skip

# What only some ways of lookahead know: of scored branches, and of a draft of two rows, of which one was taken.
SCORED = step(0, branches=2, lookahead_positions=(9,), lookahead_tokens=(4,), lookahead_counts=(1,),
              fresh_probs=(0.25,), bonus=(0.5,), gain=(None,))  # fmt: skip
DRAFTED = step(
    0, branches=3, winner=1, scores=(), lookahead_positions=(9, 10, 11), lookahead_tokens=(4, 5, 6),
    lookahead_counts=(2, 1), fresh_probs=(0.5, 0.75, None), taken_positions=(9, 10), taken_tokens=(4, 5),
    taken_probs=(0.5, 0.75), positions=(12,), base_fills=(2, 1),
)  # fmt: skip

EDITED = step(0, positions=(9,), edits=(Edit(5, 6, 7), Edit(8, 4, 9)))
EDITS = ("edit_positions", "edit_old", "edit_new")
LOOKAHEAD = ("lookahead_counts", "fresh_probs", "bonus", "gain", "base_fills",
             "taken_positions", "taken_tokens", "taken_probs")  # fmt: skip
NO_LOOKAHEAD: dict[str, Any] = dict.fromkeys((*LOOKAHEAD, *EDITS))
ONE_PROCESS: dict[str, Any] = {"readout_bytes": None, "commit_bytes": None}


def generation(*ids: int, reason: str = "eos") -> Generation:
    return Generation(ids, reason, 8, STEPS)


def plan(**changes: Any) -> Any:
    config = Config(
        decoder=DecoderConfig(name="lopa", base="d2f", k=2, attention="full"),
        task=TaskConfig(name="gsm8k", limit=11, samples=3),
        model=ModelSettings(name="tiny", path="/models/tiny", toy=True),
        backend=LocalSettings(prefix_reuse="approximate"),
        run=RunSettings(seed=13, batch=4, shard="1/5"),
    )
    source = Source("file", "problems", "a" * 64, 500, "v1")
    task = SimpleNamespace(
        name="gsm8k", scorer="strict", stop=("\n\nQ:", "STOP"), source=source, shots=4, prompt_style="plain"
    )
    identity = SimpleNamespace(weights_sha256="b" * 64, key="c" * 64, union_key="d" * 64, facts={"model": "tiny"})
    resolved = {"task": {"name": "gsm8k"}, "decoder": {"name": "as typed"}}
    facts = {"config": config, "task": task, "identity": identity, "resolved": resolved}
    return SimpleNamespace(**facts | changes)


def engine() -> Any:
    def text(ids: Sequence[int]) -> str:
        return "".join(WORDS[token] for token in ids)

    return SimpleNamespace(
        device="cpu", dtype="bfloat16", end_ids=(1, 2), codec=None, text=text, facts=lambda: {"server": "none"}
    )


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_module, "host", lambda device: {**HOST, "device asked for": device})
    monkeypatch.setattr(rows_module, "versions", lambda: {"torch": "9.9"})
    monkeypatch.setattr(rows_module, "git_revision", lambda: "f00d")
    monkeypatch.setattr(rows_module, "product_version", lambda: "1.2.3")
    monkeypatch.setattr(rows_module, "now", lambda: "2026-01-31T15:00:00+00:00")
    monkeypatch.setattr(sys, "argv", ["lopa_bench", "decoder.k=2"])


def decoded(outcome: Outcome, **changes: Any) -> Sample:
    facts: dict[str, Any] = {
        "unit": Unit(31, 2), "problem": Problem("p-31", "2+2?", "4", {}), "prompt": "Q: 2+2?",
        "prompt_ids": [90, 91, 92], "seed": 77, "peak_memory_bytes": 4096, "wall_s": 2.5,
    }  # fmt: skip
    return Sample(outcome=outcome, **facts | changes)


def whole_row(row: dict[str, Any], table: str = "samples") -> dict[str, Any]:
    """The row with a value or null for every column; that it can be stored is part of it."""
    to_table(table, [row])
    return {name: row.get(name) for name in COLUMNS[table]}


SAMPLE = {
    "run_id": "run-1", "problem_id": "p-31", "problem_index": 31, "sample_index": 2,
    "prompt_tokens": 3, "window_tokens": 8, "eos_tokens": 7, "content_tokens": 3,
    "rounds": 3, "forwards": 3, "rows": 6, "tokens_processed": 37,
    "prefill_s": 0.5, "decode_s": 1.25, "total_s": 1.75, "finish_reason": "stop",
    "peak_memory_bytes": 4096, "energy_j": None,
    "prompt": "Q: 2+2?", "completion": "It is 4!\n\nQ: more", "answer_text": "It is 4!", "extracted": None, "gold": "4",
    "correct": None, "scorer": "strict", "score_status": NOT_SCORED, "score_details": {}, "stop": ["\n\nQ:", "STOP"],
    "token_ids": [5, 6, 7, 8, 9, 10, 1, 3], "token_source": "ids", "batch": 4, "approximate": True, "error": None,
    "wall_s": 2.5, "seed": 77, "concurrency": 1, "cached_tokens": None, "attempts": None, "sent_s": None,
    "server_s": None, "ttft_s": None, "itl_s": None, "machine": "node7 (Xeon, 8 threads)",
    "branch_ranks": 1, "workers": 1,
    "edits": None,
}  # fmt: skip


def test_every_column_of_a_decoded_sample() -> None:
    """Of eight filled positions six come before the end token, and three before the token in which the stop begins."""
    outcome = Outcome(generation(5, 6, 7, 8, 9, 10, 1, 3), "eos", 2, [0.5, 1.0, 0.25], 0.5, 1.75)
    assert whole_row(Rows("run-1", plan(), engine()).sample(decoded(outcome))) == SAMPLE


@pytest.mark.parametrize(
    ("ids", "reason", "expected"),
    [
        ((5, 6, 7, 1), "eos", ("It is 4", "It is 4", 4, 3, "eos")),
        ((5, 6, 7, 2, 1, 3), "eos", ("It is 4", "It is 4", 4, 3, "eos")),
        ((5, 6, 7), "length", ("It is 4", "It is 4", 3, 3, "length")),
        ((5, 6, 8, 9), "length", ("It is!\n\nQ:", "It is!", 4, 2, "stop")),
        ((5, 1, 8, 9), "eos", ("It", "It", 2, 1, "eos")),
        ((8, 9, 1), "eos", ("!\n\nQ:", "!", 3, 0, "stop")),
        ((1, 5), "eos", ("", "", 1, 0, "eos")),
    ],
)
def test_text_tokens_and_reason_of_a_completion(ids: tuple[int, ...], reason: str, expected: tuple[Any, ...]) -> None:
    """Completion, answer, tokens up to the end token, tokens of content, finish reason."""
    row = Rows("run-1", plan(), engine()).sample(decoded(Outcome(generation(*ids, reason=reason), reason)))
    names = ("completion", "answer_text", "eos_tokens", "content_tokens", "finish_reason")
    assert tuple(row[name] for name in names) == expected
    assert (row["window_tokens"], row["token_ids"]) == (8, list(ids))


def test_the_first_stop_string_counts_and_none_inside_a_thinking_passage() -> None:
    def decode(ids: Sequence[int]) -> str:
        return "".join(chr(token) for token in ids)

    text = "ab STOP c </think> d ## e STOP"
    found = complete([ord(letter) for letter in text], (), ("STOP", "##"), decode)
    assert (found.answer, found.content_tokens, found.stopped) == ("ab STOP c </think> d ", 21, True)
    assert complete([ord(letter) for letter in "no stop"], (), ("", "##"), decode).stopped is False
    at_once = complete([ord(letter) for letter in "STOP it"], (), ("STOP",), decode)
    assert (at_once.answer, at_once.content_tokens, at_once.stopped) == ("", 0, True)


def test_what_was_not_measured_is_null() -> None:
    """Samples that were decoded together have no time each; without a cached prompt nothing is approximate."""
    row = Rows("run-1", plan(), engine()).sample(decoded(Outcome(generation(5, 1), "eos"), peak_memory_bytes=None))
    assert [row.get(name) for name in ("prefill_s", "decode_s", "total_s", "peak_memory_bytes")] == [None] * 4
    assert row["approximate"] is False
    exact = plan()
    exact.config.backend.prefix_reuse = "exact"
    assert Rows("run-1", exact, engine()).sample(decoded(Outcome(generation(5, 1), "eos", 2)))["approximate"] is False


@pytest.mark.parametrize("reason", ["prompt_too_long", "non_finite", "error"])
def test_every_column_of_a_sample_that_was_not_decoded(reason: str) -> None:
    outcome = Outcome(None, reason, error="why")
    row = whole_row(Rows("run-1", plan(), engine()).sample(decoded(outcome, prompt_ids=None)))
    nothing = dict.fromkeys(
        ("prompt_tokens", "window_tokens", "eos_tokens", "content_tokens", "rounds", "forwards", "rows",
         "tokens_processed", "prefill_s", "decode_s", "total_s")
    )  # fmt: skip
    assert row == SAMPLE | nothing | {
        "finish_reason": reason, "error": "why", "score_status": "not_decoded", "completion": "", "answer_text": "",
        "token_ids": [], "approximate": False,
    }  # fmt: skip


def test_every_column_of_a_step() -> None:
    rows = Rows("run-1", plan(), engine())
    outcome = Outcome(generation(5, 6, 7, 1), "eos", 0, [0.5, 1.0, 0.25], 0.5, 1.75)
    steps = [whole_row(row, "steps") for row in rows.steps(decoded(outcome))]
    key = {"run_id": "run-1", "problem_id": "p-31", "sample_index": 2}
    assert steps == [
        key | {
            "step": 0, "window_start": 3, "window_width": 8, "branches": 1, "winner": 0, "winner_score": 0.5,
            "anchor_score": 0.5, "scores": [0.5], "lookahead_positions": [], "lookahead_tokens": [],
            "positions": [3, 4], "tokens": [5, 6], "probs": [0.5, 0.75], "masks_left": 6, "cached": 0,
            "tokens_processed": 11, "seconds": 0.5, **NO_LOOKAHEAD, **ONE_PROCESS,
        },
        key | {
            "step": 1, "window_start": 4, "window_width": 6, "branches": 3, "winner": 2, "winner_score": 0.75,
            "anchor_score": 0.25, "scores": [0.25, 0.5, 0.75], "lookahead_positions": [5, 6],
            "lookahead_tokens": [7, 8], "positions": [5], "tokens": [7], "probs": [0.875], "masks_left": 2, "cached": 4,
            "tokens_processed": 18, "seconds": 1.0, **NO_LOOKAHEAD, **ONE_PROCESS,
        },
        key | {
            "step": 2, "window_start": 7, "window_width": 4, "branches": 2, "winner": 0, "winner_score": 0.625,
            "anchor_score": 0.625, "scores": [0.625, 0.125], "lookahead_positions": [9], "lookahead_tokens": [10],
            "positions": [], "tokens": [], "probs": [], "masks_left": 0, "cached": 6,
            "tokens_processed": 8, "seconds": 0.25, **NO_LOOKAHEAD, **ONE_PROCESS,
        },
    ]  # fmt: skip


def test_what_a_step_knows_of_its_lookahead() -> None:
    outcome = Outcome(Generation((5, 1), "eos", 8, (SCORED, DRAFTED)), "eos")
    scored, drafted = (whole_row(row, "steps") for row in Rows("run-1", plan(), engine()).steps(decoded(outcome)))
    assert {name: scored[name] for name in (*LOOKAHEAD, *EDITS)} == NO_LOOKAHEAD | {
        "lookahead_counts": [1], "fresh_probs": [0.25], "bonus": [0.5], "gain": [None],
    }  # fmt: skip
    assert {name: drafted[name] for name in (*LOOKAHEAD, *EDITS)} == NO_LOOKAHEAD | {
        "lookahead_counts": [2, 1], "fresh_probs": [0.5, 0.75, None], "base_fills": [2, 1],
        "taken_positions": [9, 10], "taken_tokens": [4, 5], "taken_probs": [0.5, 0.75],
    }  # fmt: skip
    assert (drafted["winner_score"], drafted["anchor_score"], drafted["scores"]) == (None, None, [])


def test_what_a_step_has_edited_and_how_often_a_sample_was() -> None:
    """A decoder that edits and edited nothing has empty lists and 0; the tokens of a sample are those of its text."""
    rows, none = Rows("run-1", plan(), engine()), step(1, edits=())
    outcome = Outcome(Generation((5, 1), "eos", 8, (EDITED, none)), "eos")
    first, second = (whole_row(row, "steps") for row in rows.steps(decoded(outcome)))
    assert [first[name] for name in EDITS] == [[5, 8], [6, 4], [7, 9]]
    assert [second[name] for name in EDITS] == [[], [], []]
    row = whole_row(rows.sample(decoded(outcome)))
    assert (row["edits"], row["content_tokens"], row["forwards"]) == (2, 1, 2)


def test_steps_of_samples_that_were_decoded_together_have_no_time_and_failed_ones_no_steps() -> None:
    rows = Rows("run-1", plan(), engine())
    assert [row["seconds"] for row in rows.steps(decoded(Outcome(generation(5, 1), "eos")))] == [None] * 3
    assert rows.steps(decoded(Outcome(None, "error"))) == []


def test_every_column_of_a_run() -> None:
    rows = Rows("run-1", plan(), engine())
    row = whole_row(rows.run("interrupted", "2026-01-31T14:00:00+00:00"), "run")
    config, versions, host, identity = (row.pop(name) for name in ("config", "versions", "host", "identity"))
    assert row == {
        "run_id": "run-1", "version": "1.2.3", "schema_version": SCHEMA_VERSION, "status": "interrupted",
        "created": "2026-01-31T14:00:00+00:00", "finished": "2026-01-31T15:00:00+00:00", "task": "gsm8k",
        "scorer": "strict", "source_kind": "file", "source_name": "problems", "source_sha256": "a" * 64,
        "source_rows": 500, "source_revision": "v1", "model": "tiny", "model_path": "/models/tiny",
        "model_sha256": "b" * 64, "model_is_toy": True, "decoder": "lopa", "base": "d2f", "k": "2", "attention": "full",
        "backend": "local", "device": "cpu", "dtype": "bfloat16", "seed": 13, "limit": 11, "batch": 4,
        "git_revision": "f00d", "argv": ["decoder.k=2"], "n": None, "errors": None, "aggregates": None,
        "accuracy": None, "tpf": None, "tps": None, "latency_s": None, "key": "c" * 64, "union_key": "d" * 64,
        "shard": "1/5", "samples": 3,
    }  # fmt: skip
    assert (config["task"]["name"], config["task"]["limit"]) == ("gsm8k", 11)
    assert (config["task"]["shots"], config["task"]["prompt_style"]) == (4, "plain"), (
        "what the task took for null, auto"
    )
    assert (config["decoder"]["name"], config["decoder"]["k"]) == ("lopa", 2), "the resolved settings"
    assert (versions, identity) == ({"torch": "9.9"}, {"model": "tiny"})
    assert host == HOST | {"device asked for": "cpu", "server": "none"}
    assert rows.run("running", "x")["finished"] is None


class Counting(Engine):
    """Gives one sample a unit; `warmed` are its warm-ups."""

    device, dtype = "server", "float32"

    def __init__(self, problems: int, lengths: dict[int, int], warmup: int) -> None:
        config = Config(model=ModelSettings(max_length=20), decoder=DecoderConfig(gen_length=8))
        config.run = RunSettings(seed=5, warmup=warmup)
        found = {index: Problem(f"p{index}", "", "", {}) for index in range(problems)}
        made = SimpleNamespace(
            config=config, prompts={index: Prompt(f"text {index}") for index in found},
            problem=lambda unit: found[unit.index],
        )  # fmt: skip
        super().__init__(made, {index: [7] * length for index, length in lengths.items()})
        self.warmed: list[Unit] = []

    def warm_up(self, unit: Unit) -> None:
        self.warmed.append(unit)

    def stream(self, units: Sequence[Unit]) -> Any:
        for unit in units:
            yield self._sample(unit, Outcome(None, "error"))


def test_a_prompt_that_does_not_fit_is_told_first_and_the_warm_up_takes_one_that_does() -> None:
    engine = Counting(3, {0: 13, 1: 12, 2: 5}, warmup=2)
    samples = list(engine.samples(units_of(Shard(), 3, 1)))
    assert [(sample.unit.index, sample.outcome.status) for sample in samples] == [
        (0, "prompt_too_long"), (1, "error"), (2, "error"),
    ]  # fmt: skip
    assert samples[0].outcome.error == "the prompt has 13 tokens, 12 fit beside decoder.gen_length=8"
    assert engine.warmed == [Unit(1, 0)] * 2
    assert [sample.wall_s and sample.wall_s > 0 for sample in samples] == [None, True, True]
    assert [(sample.prompt, sample.prompt_ids) for sample in samples[1:]] == [("text 1", [7] * 12), ("text 2", [7] * 5)]


def test_without_a_prompt_that_fits_there_is_no_warm_up() -> None:
    engine = Counting(1, {0: 13}, warmup=1)
    assert [sample.outcome.status for sample in engine.samples([Unit(0, 0)])] == ["prompt_too_long"]
    assert engine.warmed == []


def test_each_sample_has_a_seed_of_its_own() -> None:
    samples = list(Counting(2, {}, warmup=0).samples(units_of(Shard(), 2, 2)))
    expected = [sample_seed(5, f"p{index}", number) for index in range(2) for number in range(2)]
    assert [sample.seed for sample in samples] == expected
    assert len(set(expected)) == 4
