"""MBPP and MBPP+: rows, prompts, and the order code, setup, tests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tasks.code.mbpp import Mbpp, MbppPlus
from tasks.code.mbpp_shots import SHOTS
from tasks.code.published import mbpp_turns
from tasks.registry import make_task
from tasks.types import TaskConfig, TaskError
from tests.benchmark_files import MBPP as FULL
from tests.benchmark_files import MBPP_PLUS as RELEASE
from tests.benchmark_files import MBPP_PLUS_ORIGIN as ORIGIN
from tests.benchmark_files import MBPP_SANITIZED as SANITIZED
from tests.benchmark_files import golden_prompts

ROW = {
    "task_id": 1,
    "text": "Write a function to halve a number.",
    "code": "def halve(x):\n    return x / 2",
    "test_list": ["assert halve(4) == 2", "assert halve(0) == 0", "assert halve(3) == 1.5"],
    "test_setup_code": "",
}


def task(source: Path | str, name: str = "mbpp", **settings: Any) -> Mbpp:
    made = make_task(TaskConfig(name=name, source=str(source), **settings), embedded_default=False)
    assert isinstance(made, Mbpp)
    return made


def rows_file(folder: Path, *rows: dict[str, Any]) -> Path:
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps({**ROW, **row}) + "\n" for row in rows))
    return path


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOPA_BENCH_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))


# --- prompts


@pytest.mark.data
@pytest.mark.parametrize("process", ["rank0of1", "rank1of8"])
def test_prompts_equal_those_of_lm_eval(process: str) -> None:
    made = task(FULL, prompt_style="lm_eval")
    for entry in golden_prompts(f"mbpp-k3-{process}"):
        prompt = made.prompt(made.problems[entry["doc_id"]])
        assert prompt.text == entry["prompt"]
        assert prompt.messages is None
        assert list(made.stop) == entry["gen_kwargs"]["until"]


@pytest.mark.data
@pytest.mark.parametrize("process", ["rank0of1", "rank1of8"])
@pytest.mark.parametrize("source", [RELEASE, ORIGIN], ids=["release", "OriginFmt"])
def test_prompts_of_mbpp_plus_equal_those_of_lm_eval(process: str, source: Path) -> None:
    entries = golden_prompts(f"mbpp_plus-k3-{process}")
    made = task(source, "mbpp_plus", prompt_style="lm_eval")
    for entry in entries:
        assert made.prompt(made.problems[entry["doc_id"]]).text == entry["prompt"]


@pytest.mark.data
def test_the_examples_are_rows_2_3_4_of_the_original_file() -> None:
    rows = {row["task_id"]: row for row in map(json.loads, FULL.read_text().splitlines())}
    for shot in SHOTS:
        assert {key: rows[shot["task_id"]][key] for key in shot} == shot


def test_lopas_prompt_has_the_examples_as_turns(tmp_path: Path) -> None:
    made = task(rows_file(tmp_path, {}), prompt_style="lopa")
    prompt = made.prompt(made.problems[0])
    assert prompt.messages is not None
    assert [message["role"] for message in prompt.messages] == ["user", "assistant"] * 3 + ["user"]
    assert prompt.messages[1]["content"].endswith("[DONE]")
    assert prompt.messages[-1]["content"].startswith(
        "You are an expert Python programmer, and here is your task: Write a function to halve a number. "
        "Your code should pass these tests:\n\nassert halve(4) == 2\n"
    )
    assert made.stop == ("[DONE]",)
    assert made.few_shot_ids(made.problems[0]) == ("mbpp-2", "mbpp-3", "mbpp-4")


def test_the_bare_question_shows_one_test(tmp_path: Path) -> None:
    made = task(rows_file(tmp_path, {}), prompt_style="question")
    text = "Write a function to halve a number.\nassert halve(4) == 2"
    prompt = made.prompt(made.problems[0])
    assert (prompt.text, prompt.messages) == (text, ({"role": "user", "content": text},))


def test_styles_that_show_the_question_as_a_docstring(tmp_path: Path) -> None:
    source = rows_file(tmp_path, {})
    shown = '"""\nWrite a function to halve a number.\nassert halve(4) == 2\n"""'
    for style, ending in (
        ("diffucoder", f"```python\n{shown}\n```\n<|im_end|>\n<|im_start|>assistant\n```python\n"),
        ("evalplus_base", f"{shown}\n"),
    ):
        made = task(source, prompt_style=style)
        assert made.prompt(made.problems[0]).text.endswith(ending)
    made = task(source, prompt_style="evalplus")
    messages = made.prompt(made.problems[0]).messages
    assert messages is not None
    assert messages[0]["content"].endswith(f"in a markdown code block:\n```\n{shown}\n```\n")
    assert messages[1]["role"] == "assistant"
    assert messages[1]["content"].endswith("passes corresponding tests:\n```python\n")
    assert "\nif __name__" in made.stop


def test_examples_are_bounded_and_other_styles_have_none(tmp_path: Path) -> None:
    source = rows_file(tmp_path, {})
    with pytest.raises(TaskError, match=r"task\.shots=4: task=mbpp has 3 fixed examples; allowed: at most 3"):
        task(source, shots=4)
    with pytest.raises(TaskError, match=r"task\.prompt_style=question has 0"):
        task(source, shots=1, prompt_style="question")
    one = task(source, shots=1)
    assert one.prompt(one.problems[0]).text.count("[DONE]") == 1


# --- rows


@pytest.mark.data
def test_the_full_file_gives_the_test_problems() -> None:
    made = task(FULL)
    assert [problem.id for problem in made.problems] == [f"mbpp-{number}" for number in range(11, 511)]
    assert (made.source.name, made.source.rows) == ("MBPP (original file)", 974)


@pytest.mark.data
def test_the_sanitized_file_gives_all_problems_except_the_examples_that_are_shown() -> None:
    assert len(task(SANITIZED, prompt_style="question").problems) == 427
    shown = task(SANITIZED, prompt_style="lm_eval")
    ids = {problem.id for problem in shown.problems}
    assert not ids & set(shown.few_shot_ids(shown.problems[0]))
    assert len(ids) == 427 - 3
    assert shown.source.name == "MBPP sanitized (original file)"


def test_a_row_without_a_question_or_tests_is_named(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match="row 2: no value for text or prompt"):
        task(rows_file(tmp_path, {}, {"text": None}))
    with pytest.raises(TaskError, match="row 1: no test uses a name that the gold program defines"):
        task(rows_file(tmp_path, {"code": "def other(x):\n    return x"}))


# --- scores


def test_code_then_setup_then_tests(tmp_path: Path) -> None:
    """The setup may need the code, the tests may need the setup, and a module of the setup is the judge's own."""
    node = {
        "code": "class Node:\n    def __init__(self, x):\n        self.x = x\ndef get(node):\n    return node.x\n",
        "test_setup_code": "import math\nroot = Node(4)\nroot.x = 5",
        "test_list": ["assert get(root) == 5", "assert math.floor(get(Node(2.5))) == 2", "assert get(root) == 5"],
    }
    made = task(rows_file(tmp_path, node))
    (problem,) = made.problems
    assert made.names(problem) == ("get", "Node")
    other = "class Node:\n    def __init__(self, x): self.x = x\ndef get(node):\n    return 5\n"
    unnamed = "def get(node):\n    return 5\n"
    scores = made.score_all([(problem, text) for text in (problem.gold, other, unnamed)])
    assert [score.status for score in scores] == ["pass", "wrong", "error"]


def test_a_program_may_shadow_a_builtin_that_it_is_tested_under(tmp_path: Path) -> None:
    made = task(rows_file(tmp_path, {"code": "def sum(a, b):\n    return 6", "test_list": ["assert sum(10, 15) == 6"]}))
    scores = made.score_all([(made.problems[0], text) for text in (made.problems[0].gold, "x = 1")])
    assert [score.status for score in scores] == ["pass", "missing"]


def test_passing_the_first_test_only_is_no_pass(tmp_path: Path) -> None:
    made = task(rows_file(tmp_path, {}))
    score = made.score(made.problems[0], "def halve(x):\n    return 2\n")
    assert (score.correct, score.details["tests_passed"], score.details["tests"]) == (False, 1, 3)


@pytest.mark.data
def test_some_golds_pass_and_the_next_problems_gold_fails() -> None:
    made = task(FULL)
    chosen = [problem for problem in made.problems if problem.id in ("mbpp-11", "mbpp-126", "mbpp-367", "mbpp-500")]
    golds = made.score_all([(problem, problem.gold) for problem in chosen])
    shifted = made.score_all([(p, chosen[(i + 1) % 4].gold) for i, p in enumerate(chosen)])
    assert [score.status for score in golds] == ["pass"] * 4
    assert not any(score.correct for score in shifted)


@pytest.mark.data
def test_a_gold_behind_the_marker_of_the_default_prompt_passes_20_of_20() -> None:
    """The prompt ends in "[BEGIN]", which a model may repeat."""
    made = task(FULL, limit=20)
    prompt = made.prompt(made.problems[0])
    assert (made.prompt_style, prompt.text.splitlines()[-1], made.stop) == ("lm_eval", "[BEGIN]", ("[DONE]",))
    scores = made.score_all([(problem, f"[BEGIN]\n{problem.gold}\n") for problem in made.problems])
    assert [score.status for score in scores] == ["pass"] * 20


@pytest.mark.data
def test_lm_evals_rule_has_no_setup_so_367_cannot_pass() -> None:
    made = task(FULL, scorer="lm_eval")
    problem = next(problem for problem in made.problems if problem.id == "mbpp-367")
    assert made.score(problem, problem.gold).correct is False


@pytest.mark.data
@pytest.mark.parametrize("source", [RELEASE, ORIGIN], ids=["release", "OriginFmt"])
def test_some_golds_of_mbpp_plus_pass_with_all_inputs(source: Path) -> None:
    """Tuples (2), complex numbers (124, 252), nested tuples (580), and match objects as results (737)."""
    made = task(source, "mbpp_plus", prompt_style="question")
    wanted = {f"mbpp-plus-{number}" for number in (2, 124, 252, 580, 737)}
    chosen = [problem for problem in made.problems if problem.id in wanted]
    assert len(chosen) == 5
    scores = made.score_all([(problem, problem.gold) for problem in chosen])
    assert [(s.status, s.details["tests"] > 80) for s in scores] == [("pass", True)] * 5


def test_the_embedded_set_has_derived_inputs_for_mbpp_plus() -> None:
    made = MbppPlus(TaskConfig(name="mbpp_plus", limit=3), embedded_default=True)
    assert made.source.name.endswith("with derived inputs")
    golds = made.score_all([(problem, problem.gold) for problem in made.problems])
    assert all(
        s.correct and s.details["tests"] > len(p.row["test_list"]) + 5
        for p, s in zip(made.problems, golds, strict=True)
    )


@pytest.mark.slow
@pytest.mark.data
@pytest.mark.parametrize(
    ("source", "name", "count"), [(FULL, "mbpp", 500), (SANITIZED, "mbpp", 427), (RELEASE, "mbpp_plus", 378)]
)
def test_every_gold_passes(source: Path, name: str, count: int) -> None:
    made = task(source, name, prompt_style="question")
    scores = made.score_all([(problem, problem.gold) for problem in made.problems])
    assert [p.id for p, s in zip(made.problems, scores, strict=True) if s.correct is not True] == []
    assert len(scores) == count


def test_lm_eval_s_instruct_prompt_shows_three_tests() -> None:
    assert mbpp_turns("lm_eval_instruct", "Halve.", ["a", "b", "c", "d"], 0).text.endswith("\na\nb\nc")
    assert mbpp_turns("opencompass_fence", "Halve.", ["a", "b", "c", "d"], 0).text.count("d\n You should") == 1
