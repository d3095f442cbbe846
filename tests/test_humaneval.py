"""HumanEval and HumanEval+: rows, prompts and scores."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tasks.code.humaneval import HumanEval
from tasks.registry import make_task
from tasks.types import TaskConfig, TaskError
from tests.benchmark_files import HUMANEVAL as PLAIN
from tests.benchmark_files import HUMANEVAL_PLUS as PLUS
from tests.benchmark_files import HUMANEVAL_PLUS_MINI as MINI
from tests.benchmark_files import HUMANEVAL_PLUS_ORIGIN as ORIGIN
from tests.benchmark_files import golden_prompts


def task(source: Path | str, name: str = "humaneval", **settings: Any) -> HumanEval:
    made = make_task(TaskConfig(name=name, source=str(source), **settings), embedded_default=False)
    assert isinstance(made, HumanEval)
    return made


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOPA_BENCH_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))


# --- prompts


@pytest.mark.data
@pytest.mark.parametrize("process", ["rank0of1", "rank1of8"])
@pytest.mark.parametrize(
    ("name", "source"), [("humaneval", PLAIN), ("humaneval_plus", PLUS), ("humaneval_plus", ORIGIN)]
)
def test_prompts_equal_those_of_lm_eval(name: str, source: Path, process: str) -> None:
    made = task(source, name, prompt_style="lm_eval")
    for entry in golden_prompts(f"{name}-k0-{process}"):
        prompt = made.prompt(made.problems[entry["doc_id"]])
        assert (prompt.text, prompt.messages) == (entry["prompt"], None)
        assert list(made.stop) == entry["gen_kwargs"]["until"]


def test_the_embedded_sets_ask_the_bare_question() -> None:
    made = HumanEval(TaskConfig(name="humaneval", limit=1), embedded_default=True)
    (problem,) = made.problems
    text = problem.row["prompt"]
    assert made.prompt(problem).messages == ({"role": "user", "content": text},)
    assert made.stop == ()
    assert (problem.id, made.source.kind) == ("embedded-humaneval-0", "embedded")


def test_styles_of_others() -> None:
    def first(style: str) -> tuple[HumanEval, Any]:
        made = task("embedded", prompt_style=style)
        return made, made.prompt(made.problems[0])

    code = task("embedded").problems[0].row["prompt"]
    made, prompt = first("lopa")
    assert (prompt.text, prompt.messages, made.stop) == (code, None, ())
    made, prompt = first("diffucoder")
    assert prompt.text == (
        "<|im_start|>system\nYou are an intelligent programming assistant to produce Python algorithmic solutions"
        f"<|im_end|>\n<|im_start|>user\nCan you complete the following Python function?\n```python\n{code.strip()}\n"
        "```\n<|im_end|>\n<|im_start|>assistant\n```python\n"
    )
    assert made.stop == ("```",)
    made, prompt = first("evalplus")
    assert [message["role"] for message in prompt.messages] == ["user", "assistant"]
    made, prompt = first("evalplus_base")
    assert prompt.text == code.strip() + "\n"
    assert {"\ndef ", "\nclass ", "<|endoftext|>"} <= set(made.stop)


def test_there_are_no_examples() -> None:
    with pytest.raises(TaskError, match=r"task\.shots=2: task=humaneval has no examples; allowed: at most 0"):
        task("embedded", shots=2, prompt_style="lopa")


# --- scores


def test_the_embedded_golds_pass_plain_and_with_derived_inputs() -> None:
    for name in ("humaneval", "humaneval_plus"):
        made = task("embedded", name, limit=3)
        golds = made.score_all([(problem, problem.gold) for problem in made.problems])
        assert [score.status for score in golds] == ["pass"] * 3
    assert golds[0].details["tests"] > 20


@pytest.mark.parametrize("completion", ["", "    pass\n", "    return 12345\n"])
def test_known_bad_programs_score_nothing(completion: str) -> None:
    made = task("embedded", "humaneval_plus", limit=3)
    assert not any(score.correct for score in made.score_all([(problem, completion) for problem in made.problems]))


@pytest.mark.data
def test_tests_use_the_helpers_of_the_data_set_and_not_those_of_the_program() -> None:
    """HumanEval/38 checks decode(encode(text)) with the prompt's encode; a program cannot bring its own."""
    made = task(PLAIN)
    problem = made.problems[38]
    fake = "```python\ndef encode_cyclic(s):\n    return s\ndef decode_cyclic(s):\n    return s\n```"
    good, bad = made.score_all([(problem, problem.gold), (problem, fake)])
    assert (good.status, bad.status) == ("pass", "wrong")


@pytest.mark.data
def test_some_golds_and_the_next_problems_gold() -> None:
    made = task(PLAIN)
    chosen = [made.problems[number] for number in (0, 10, 32, 33, 50, 163)]
    golds = made.score_all([(problem, problem.gold) for problem in chosen])
    shifted = made.score_all([(p, chosen[(i + 1) % len(chosen)].gold) for i, p in enumerate(chosen)])
    assert [score.status for score in golds] == ["pass"] * len(chosen)
    assert not any(score.correct for score in shifted)


@pytest.mark.data
def test_golds_of_humaneval_plus_pass_on_the_mini_inputs() -> None:
    made = task(MINI, "humaneval_plus", limit=12)
    scores = made.score_all([(problem, problem.gold) for problem in made.problems])
    assert [score.status for score in scores] == ["pass"] * 12
    assert "Mini" in made.source.name


@pytest.mark.data
def test_humaneval_32_takes_any_root_also_from_the_hubs_rows() -> None:
    newton = (
        "    x, step = 0.5, 1.0\n    while abs(poly(xs, x)) > 1e-9:\n"
        "        slope = (poly(xs, x + 1e-6) - poly(xs, x)) / 1e-6\n"
        "        x -= poly(xs, x) / slope if slope else 1.0\n    return x\n"
    )
    made = task(MINI, "humaneval_plus")
    problem = made.problems[32]
    gold, other, wrong = made.score_all([(problem, text) for text in (problem.gold, newton, "    return 1.0\n")])
    assert (gold.status, other.status, wrong.status) == ("pass", "pass", "wrong")
    assert task(ORIGIN, "humaneval_plus").problems[32].row["entry_point"] == "find_zero"


@pytest.mark.slow
@pytest.mark.data
@pytest.mark.parametrize(("source", "name"), [(PLAIN, "humaneval"), (PLUS, "humaneval_plus")])
def test_every_gold_passes(source: Path, name: str) -> None:
    made = task(source, name)
    scores = made.score_all([(problem, problem.gold) for problem in made.problems])
    assert [p.id for p, s in zip(made.problems, scores, strict=True) if s.correct is not True] == []
    assert len(scores) == 164
