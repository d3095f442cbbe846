"""lm-eval's words become settings of this project, or are refused; what it asks for is a file of requests."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from lopa_bench.errors import ConfigError
from lopa_bench.lm_eval.likelihood import Bound, Scorer, masks, seed_of
from lopa_bench.lm_eval.requests import Request, write_requests
from lopa_bench.lm_eval.results import Continued, _verdicts
from lopa_bench.lm_eval.settings import Generating, agreed, composed, generating, quoted, words_of
from lopa_bench.models.loaded import load
from lopa_bench.settings.backend import LocalSettings
from lopa_bench.settings.model import ModelSettings
from tasks.registry import make_task
from tasks.types import TaskConfig, TaskError


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        ({}, Generating()),
        ({"until": ["a", "", "a", "b"], "do_sample": False}, Generating(("a", "b"), None, 0.0)),
        ({"until": "a", "max_gen_toks": 64}, Generating(("a",), 64)),
        ({"max_new_tokens": 8, "max_gen_toks": None}, Generating((), 8)),
        ({"do_sample": False, "temperature": 0.7, "top_p": 0.9}, Generating(temperature=0.0)),
        ({"do_sample": True}, Generating(temperature=1.0)),
        ({"temperature": 1, "top_p": 1.0, "top_k": -1, "num_beams": 1}, Generating(temperature=1.0)),
    ],
)
def test_generation_arguments_are_read_as_lm_eval_means_them(arguments: Mapping[str, Any], found: Generating) -> None:
    assert generating(arguments, "t") == found


def test_what_a_task_asks_for_arrives_at_the_decoder(capsys: pytest.CaptureFixture[str]) -> None:
    decoder = composed(["decoder.top_k=5"]).decoder
    asked = Generating(length=64, temperature=0.5, drawing=(("top_p", 0.9), ("top_k", 5)))
    changes = ["decoder.gen_length=64", "decoder.temperature=0.5", "decoder.top_p=0.9"]
    assert asked.changes(decoder, [], "t") == changes
    assert "t asks for max_gen_toks=64; the configured decoder.gen_length=128" in capsys.readouterr().err
    assert Generating(length=decoder.gen_length, temperature=0.0).changes(decoder, [], "t") == []
    with pytest.raises(ConfigError, match=r"decoder.gen_length=128 in config and t: max_gen_toks=64 contradict"):
        asked.changes(decoder, ["decoder.gen_length=128"], "t")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_beams": 4}, "num_beams=4 cannot be followed"),
        ({"max_gen_toks": 0}, "max_gen_toks=0"),
        ({"max_gen_toks": "many"}, "max_gen_toks=many"),
        ({"max_gen_toks": 8, "max_tokens": 9}, "contradict"),
        ({"until": ["a", 3]}, "until=3"),
        ({"temperature": "hot"}, "temperature='hot'"),
    ],
)
def test_what_cannot_be_followed_is_refused_by_name(arguments: Mapping[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=f"t: .*{message}"):
        generating(arguments, "t")


def test_words_that_are_lm_evals_business_are_refused() -> None:
    assert words_of("model=mini \"model.name='a, b'\"") == ["model=mini", "model.name='a, b'"]
    for word in ("task=gsm8k", "+task.limit=3", "run.shard=0/2", "tracker=wandb", "hydra.mode=RUN"):
        with pytest.raises(ConfigError, match=r"config: .* is not allowed here"):
            words_of(f"model=mini {word}")
    with pytest.raises(ConfigError, match="cannot be read"):
        words_of("model='mini")
    with pytest.raises(ConfigError, match="is a sweep"):
        composed(["+experiment=ablation/k"])
    assert composed(["decoder.k=3"]).decoder.k == 3
    assert agreed(["run.batch=4"], "run.batch", 4, 4, "--batch_size") == 4
    with pytest.raises(ConfigError, match=r"run.batch=4 in config and --batch_size=8 contradict"):
        agreed(["run.batch=4"], "run.batch", 4, 8, "--batch_size")


def test_requests_are_a_file_named_by_its_content(tmp_path: Path) -> None:
    asked = [Request(f"t-{i}", f"Q{i}?", {"doc_id": i}) for i in range(2)]
    path = write_requests(tmp_path, "a/t", asked, ["\n\n"])
    assert path == write_requests(tmp_path, "a/t", asked, ["\n\n"])
    assert path != write_requests(tmp_path, "a/t", asked, [])
    task = make_task(TaskConfig(name="requests", source=str(path)), embedded_default=True)
    assert (task.name, task.stop, task.scorer) == ("lm_eval_a/t", ("\n\n",), "none")
    assert [task.prompt(problem).text for problem in task.problems] == ["Q0?", "Q1?"]
    assert task.score(task.problems[0], "x").correct is None
    mixed = tmp_path / "mixed.jsonl"
    mixed.write_text("".join(json.dumps({"id": i, "context": "Q", "until": [str(i)]}) + "\n" for i in range(2)))
    with pytest.raises(TaskError, match="its rows differ in until"):
        make_task(TaskConfig(name="requests", source=str(mixed)), embedded_default=True)


def test_a_verdict_goes_to_the_request_that_it_is_of() -> None:
    """Two documents may have one text; lm-eval logs each filter in the order of the documents."""

    def entry(context: str, filter: str, value: float, extracted: str) -> dict[str, Any]:
        found = {"filter": filter, "metrics": ["exact_match"], "exact_match": value, "filtered_resps": [extracted]}
        return {"arguments": [(context, {})], "resps": [["x"]], "target": "#### 7", **found}

    asked = [Request("t-0", "same", {}), Request("t-1", "other", {}), Request("t-2", "same", {})]
    strict = [entry(text, "strict", value, "7") for text, value in (("same", 1.0), ("other", 0.0), ("same", 0.0))]
    flexible = [entry(text, "flexible", 1.0, "8") for text in ("same", "other", "same")]
    found = _verdicts(Continued("t", Path(), asked), [*strict, *flexible], None)
    assert [found[request.id, 0]["correct"] for request in asked] == [True, False, False]
    assert found["t-1", 0]["score_details"] == {
        "metric": "exact_match,strict", "exact_match,strict": 0.0, "exact_match,flexible": 1.0,
    }  # fmt: skip
    assert (found["t-1", 0]["extracted"], found["t-1", 0]["gold"]) == ("7", "#### 7")


@dataclass
class Instance:
    """As lm-eval has it, as far as filters look at it."""

    doc: dict[str, Any]
    resps: list[str]
    filtered_resps: dict[str, Any] = field(default_factory=dict)


class First:
    """A filter that takes the first of at least `needs` texts."""

    name = "first"

    def __init__(self, needs: int) -> None:
        self.needs = needs

    def apply(self, instances: list[Instance]) -> None:
        for instance in instances:
            assert len(instance.resps) >= self.needs
            instance.filtered_resps[self.name] = instance.resps[0]


@pytest.mark.parametrize(("needs", "verdicts"), [(1, [True, False, False]), (2, [None] * 3)])
def test_each_of_several_texts_has_the_verdict_that_it_would_have_alone(
    needs: int, verdicts: list[bool | None]
) -> None:
    """lm-eval itself says one thing of all three: right."""
    task = SimpleNamespace(
        _filters=[First(needs)], process_results=lambda doc, texts: {"exact_match": float(texts == [doc["answer"]])}
    )
    asked = Instance({"answer": "7"}, ["7", "8", "8"])
    logged = {
        "arguments": [("Q?", {})], "resps": [asked.resps], "target": "7", "filter": "first", "metrics": ["exact_match"],
        "exact_match": 1.0, "filtered_resps": ["7"],
    }  # fmt: skip
    found = _verdicts(Continued("t", Path(), [Request("t-0", "Q?", {})], [asked]), [logged], task)
    assert [found["t-0", sample]["correct"] for sample in range(3)] == verdicts
    assert {row["score_details"]["document"]["exact_match,first"] for row in found.values()} == {1.0}
    assert found["t-0", 1].get("extracted") == (None if needs > 1 else "8")
    assert asked.filtered_resps == {}


def test_likelihood_settings_are_judged_at_once() -> None:
    assert Bound.make(None, None, None) is None
    assert Bound.make("monte_carlo", None, None) == Bound(128, 0)
    for bad in (("exact", None, None), ("monte_carlo", 0, None), ("monte_carlo", 8, -1), (None, 8, None)):
        with pytest.raises(ConfigError, match="--model_args"):
            Bound.make(*bad)


def test_copies_hide_every_number_of_tokens_equally_often() -> None:
    masked_MN = masks(4, 4, seed=3)
    assert sorted(masked_MN.sum(1)) == [1, 2, 3, 4]
    assert (masks(4, 4, seed=3) == masked_MN).all()
    assert set(masks(3, 128, seed=0).sum(1)) == {1, 2, 3}
    assert seed_of(0, [1], [2]) != seed_of(0, [1, 2], [])


@pytest.fixture(scope="module")
def scorer(tiny_model: Path) -> Scorer:
    model = load(ModelSettings(path=str(tiny_model)), LocalSettings(device="cpu", threads=1))
    return Scorer(model, room=512, rows=64, attention="full", block=8, grid="prompt")


def test_the_bound_is_the_mean_over_all_ways_to_hide_tokens(scorer: Scorer) -> None:
    """Counted out for three tokens: one of 1 to 3 hidden, each set of that many equally often (a shifted model)."""
    prefix, target = [10, 20, 30], [40, 50, 60]

    def loss(hidden: tuple[int, ...]) -> float:
        masked_1N = np.isin(np.arange(3), hidden)[None]
        (logp_K,) = scorer.target_logp(prefix, target, masked_1N)
        text = torch.tensor([[*prefix, *(2 if at in hidden else one for at, one in enumerate(target))]])
        hidden_1WD = scorer.model.network.hidden(text)
        by_hand = [
            scorer.model.network.logits(hidden_1WD[0, 2 + at]).log_softmax(-1)[target[at]].item() for at in hidden
        ]
        assert logp_K.tolist() == pytest.approx(by_hand, rel=1e-4)
        return 3 / len(hidden) * sum(by_hand)

    sizes = [[loss(hidden) for hidden in itertools.combinations(range(3), size)] for size in (1, 2, 3)]
    exact = float(np.mean([np.mean(of_size) for of_size in sizes]))
    bound = Bound(copies=1500, seed=0)
    found = bound._bound(scorer, prefix, target)
    assert found == pytest.approx(exact, rel=0.02)
    assert bound.forwards == math.ceil(1500 / 64)
    assert bound._bound(scorer, prefix, target) == found


def test_greedy_is_what_decoding_by_confidence_gives(scorer: Scorer) -> None:
    prefix, target = [10, 20, 30], [2, 2, 2]
    masked_N = np.ones(3, dtype=bool)
    while masked_N.any():
        place, target[place] = scorer.most_confident(prefix, target, masked_N)
        masked_N[place] = False
    bound = Bound(1, 0)
    assert bound._is_greedy(scorer, prefix, target)
    assert bound.forwards == 3
    assert not bound._is_greedy(scorer, prefix, [target[0] + 1, *target[1:]])


def test_a_value_is_quoted_for_the_command_line() -> None:
    assert quoted("a 'b'\\") == "'a \\'b\\'\\\\'"
