"""The GSM8K task: where rows come from, how prompts are built, what a verdict holds."""

import json
import random
from itertools import islice
from pathlib import Path

import pytest

from tasks.gsm8k.lm_eval import COT_SHOTS
from tasks.gsm8k.styles import FRAME, FRAME_COT
from tasks.gsm8k.task import Gsm8k
from tasks.prompts import Shot, completion_prompt, lm_eval_draws, permutation
from tasks.types import Prompt, TaskConfig, TaskError
from tests.benchmark_files import GSM8K_TEST, GSM8K_TRAIN, golden_prompts


def _row(number: int) -> dict[str, str]:
    return {"question": f"Ann has {number} {{pears}}. How many?", "answer": f"She has {number}.\n#### {number}"}


def _write(path: Path, numbers: range) -> Path:
    path.write_text("".join(json.dumps(_row(number)) + "\n" for number in numbers))
    return path


@pytest.fixture
def test_file(tmp_path: Path) -> Path:
    _write(tmp_path / "train.jsonl", range(100, 150))
    return _write(tmp_path / "test.jsonl", range(10))


def _task(source: Path, **settings: object) -> Gsm8k:
    return Gsm8k(TaskConfig(source=str(source), **settings), embedded_default=False)


def test_a_file_of_unknown_origin_never_gets_the_name_of_the_benchmark(test_file: Path) -> None:
    source = _task(test_file).source
    assert (source.kind, source.rows) == ("file", 10)
    assert source.name == "file test.jsonl (10 rows in the format of GSM8K test)"
    assert len(source.sha256) == 64


def test_limit_takes_the_first_rows_and_changes_no_prompt(test_file: Path) -> None:
    whole, limited = _task(test_file), _task(test_file, limit=3)
    assert [problem.id for problem in limited.problems] == ["gsm8k-test-0", "gsm8k-test-1", "gsm8k-test-2"]
    for problem in limited.problems:
        assert limited.prompt(problem) == whole.prompt(problem)


def test_a_problem_beyond_the_limit_is_no_example_either(test_file: Path) -> None:
    """Else 3 and then 10 problems would be two experiments: the first three would be asked with other examples."""
    _write(test_file.with_name("train.jsonl"), range(14))  # ten of them are the test problems
    whole, limited = _task(test_file), _task(test_file, limit=3)
    for problem in limited.problems:
        assert set(limited.few_shot_ids(problem)) == {f"gsm8k-train-{i}" for i in range(10, 14)}
        assert limited.prompt(problem) == whole.prompt(problem)


def test_keyed_shots_depend_on_the_problem_alone(test_file: Path) -> None:
    whole = _task(test_file)
    lines = test_file.read_text().splitlines(keepends=True)
    test_file.write_text("".join(reversed(lines[4:])))  # another shard, in another order
    shard = _task(test_file)
    prompts = {problem.question: whole.prompt(problem) for problem in whole.problems}
    assert all(shard.prompt(problem) == prompts[problem.question] for problem in shard.problems)
    assert len({whole.few_shot_ids(problem) for problem in whole.problems}) > 1


def test_few_shots_are_never_test_problems(test_file: Path) -> None:
    _write(test_file.with_name("train.jsonl"), range(14))  # ten of them are the test problems
    task = _task(test_file)
    for problem in task.problems:
        assert set(task.few_shot_ids(problem)) == {f"gsm8k-train-{i}" for i in range(10, 14)}
        assert not set(task.few_shot_ids(problem)) & {other.id for other in task.problems}
    with pytest.raises(TaskError, match="shots=5, but only 4 of 14 train rows are no test problems"):
        _task(test_file, shots=5)


def test_chat_shots_are_turns(test_file: Path) -> None:
    task = _task(test_file, shots=2)
    messages = task.prompt(task.problems[3]).messages
    assert messages is not None
    assert [message["role"] for message in messages] == ["user", "assistant", "user", "assistant", "user"]
    assert messages[-1]["content"] == "Question: Ann has 3 {pears}. How many?\nAnswer:"
    assert messages[1]["content"].endswith(f"#### {messages[0]['content'].split()[3]}")


def test_a_chat_without_shots_asks_for_the_answer_line(test_file: Path) -> None:
    task = _task(test_file, shots=0)
    messages = task.prompt(task.problems[3]).messages
    assert messages is not None
    (message,) = messages
    assert message["content"].startswith("Ann has 3 {pears}. How many?")
    assert "#### <number>" in message["content"]


def test_plain_is_text_without_messages(test_file: Path) -> None:
    task = _task(test_file, shots=0, prompt_style="plain")
    assert task.prompt(task.problems[3]) == Prompt("Question: Ann has 3 {pears}. How many?\nAnswer:")


@pytest.mark.parametrize(
    ("style", "stop"),
    [
        ("chat", ("\n\nQuestion:", "</s>", "<|im_end|>")),
        ("plain", ("\n\nQuestion:", "</s>", "<|im_end|>")),
        ("lm_eval", ("Question:", "</s>", "<|im_end|>")),
        ("lm_eval_cot", ("Q:", "</s>", "<|im_end|>")),
    ],
)
def test_stop_strings_belong_to_the_style(test_file: Path, style: str, stop: tuple[str, ...]) -> None:
    assert _task(test_file, prompt_style=style).stop == stop


def test_missing_train_rows_are_named(tmp_path: Path) -> None:
    alone = _write(tmp_path / "mine.jsonl", range(3))
    assert _task(alone, shots=0).problems
    with pytest.raises(
        TaskError, match=r"shots=4 needs the train split: no train\.jsonl\.gz, train\.jsonl, .*set task.shots=0"
    ):
        _task(alone)


def test_a_row_without_a_final_number_is_named(tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_text(json.dumps(_row(1)) + "\n" + json.dumps({"question": "How many?", "answer": "Many."}) + "\n")
    with pytest.raises(TaskError, match=r"row 2: the answer has no '#### <number>': 'Many\.'"):
        _task(path, shots=0)


def test_a_verdict_holds_all_values_and_their_status(test_file: Path) -> None:
    task = _task(test_file, shots=0)
    score = task.score(task.problems[7], "The answer is $7.00")
    assert (score.correct, score.status, score.extracted) == (True, "ok", "7")
    assert score.details == {
        "strict": None,
        "strict_status": "none",
        "strict_correct": False,
        "flexible": "7",
        "flexible_status": "ok",
        "flexible_correct": True,
        "lm_eval_strict": "[invalid]",
        "lm_eval_strict_correct": False,
        "lm_eval_flexible": "$7.00",
        "lm_eval_flexible_correct": False,
    }


@pytest.mark.parametrize(
    ("scorer", "correct", "status", "extracted"),
    [
        (None, True, "ok", "7"),
        ("lopa_bench", True, "ok", "7"),
        ("lopa_bench_strict", False, "none", None),
        ("lm_eval_strict", False, "none", None),
        ("lm_eval_flexible", True, "ok", "$7."),
    ],
)
def test_the_scorer_decides_and_is_named(
    test_file: Path, scorer: str | None, correct: bool, status: str, extracted: str | None
) -> None:
    task = _task(test_file, shots=0, scorer=scorer)
    score = task.score(task.problems[7], "The answer is $7.")
    assert (score.correct, score.status, score.extracted) == (correct, status, extracted)
    assert task.scorer == (scorer or "lopa_bench")


def test_lm_eval_draws_depend_on_the_number_of_processes() -> None:
    draws = list(islice(lm_eval_draws(7473, 4), 3))
    assert draws == [[6374, 3610, 957, 61], [742, 7462, 6610, 4769], [286, 5501, 5677, 687]]
    assert next(lm_eval_draws(7473, 5)) == [6374, 3610, 957, 61, 742]


@pytest.mark.data
@pytest.mark.parametrize("shots", [4, 5])
def test_lm_eval_prompts_of_one_process_are_equal_byte_for_byte(shots: int) -> None:
    style = {"prompt_style": "lm_eval", "shots_style": "lm_eval"}
    task = _task(GSM8K_TEST, shots=shots, limit=3, **style)
    assert task.source.name == "GSM8K test (original file)"
    entries = golden_prompts(f"gsm8k-k{shots}-rank0of1")
    assert [entry["doc_id"] for entry in entries] == [0, 1, 2]
    for entry, problem in zip(entries, task.problems, strict=True):
        assert task.prompt(problem) == Prompt(entry["prompt"])
        assert entry["target"] == problem.row["answer"]
        assert tuple(entry["gen_kwargs"]["until"]) == task.stop


@pytest.mark.data
@pytest.mark.parametrize("shots", [4, 5])
def test_lm_eval_prompt_of_rank_1_of_8_is_equal_byte_for_byte(shots: int) -> None:
    (entry,) = golden_prompts(f"gsm8k-k{shots}-rank1of8")
    problem = _task(GSM8K_TEST, shots=0).problems[entry["doc_id"]]
    train = [json.loads(line) for line in GSM8K_TRAIN.read_text().splitlines()]
    number = entry["doc_id"] // 8  # draws that rank 1 of 8 made before
    draw = next(islice(lm_eval_draws(len(train), shots), number, None))
    examples = [Shot(str(i), train[i]["question"], train[i]["answer"]) for i in draw]
    assert completion_prompt(problem.question, examples, FRAME).text == entry["prompt"]


@pytest.mark.data
def test_lm_eval_cot_prompts_are_equal_byte_for_byte() -> None:
    task = _task(GSM8K_TEST, prompt_style="lm_eval_cot")
    for entry in golden_prompts("gsm8k_cot-k8-rank0of1") + golden_prompts("gsm8k_cot-k8-rank1of8"):
        problem = task.problems[entry["doc_id"]]
        assert task.prompt(problem) == Prompt(entry["prompt"])
        assert completion_prompt(problem.question, COT_SHOTS, FRAME_COT).text == entry["prompt"]
        assert tuple(entry["gen_kwargs"]["until"]) == task.stop


def test_the_cot_style_has_eight_fixed_examples(test_file: Path) -> None:
    assert _task(test_file, prompt_style="lm_eval_cot").shots == 8
    with pytest.raises(TaskError, match=r"task\.shots=9: task\.prompt_style=lm_eval_cot has 8 fixed examples"):
        _task(test_file, prompt_style="lm_eval_cot", shots=9)


@pytest.mark.data
def test_the_original_file_has_1319_problems_with_disjoint_few_shots() -> None:
    task = _task(GSM8K_TEST)
    assert (len(task.problems), task.source.rows, task.shots) == (1319, 1319, 4)
    assert len({problem.id for problem in task.problems}) == 1319
    assert all(task.score(problem, problem.row["answer"]).correct for problem in task.problems)


def test_the_embedded_set_is_its_own_and_says_so() -> None:
    task = Gsm8k(TaskConfig(shots=2), embedded_default=True)
    assert (task.source.kind, task.source.name) == ("embedded", "embedded word problems (GSM8K format)")
    assert all(task.score(problem, problem.row["answer"]).correct for problem in task.problems)
    zero_shot = Gsm8k(TaskConfig(), embedded_default=True)
    problem = zero_shot.problems[0]
    assert zero_shot.prompt(problem).messages == ({"role": "user", "content": problem.question},)


def test_the_embedded_models_are_asked_a_file_s_questions_as_they_know_questions(test_file: Path) -> None:
    """New problems of the generator are a file; behind the words of another prompt they would all be wrong."""
    own = Gsm8k(TaskConfig(source=str(test_file), shots=0), embedded_default=True)
    messages = own.prompt(own.problems[0]).messages
    assert [message["content"] for message in messages or ()] == [own.problems[0].question]


def test_a_limit_changes_no_examples_and_no_test_problem_is_one(tmp_path: Path) -> None:
    def write(name: str, *questions: str) -> None:
        rows = [json.dumps({"question": question, "answer": "#### 1"}) for question in questions]
        (tmp_path / name).write_text("\n".join(rows))

    write("test.jsonl", "first?", "second?")
    write("train.jsonl", "a?", "second?", "b?", "c?")
    for limit in (None, 1):
        task = _task(tmp_path / "test.jsonl", shots=3, limit=limit)
        assert sorted(task.few_shot_ids(task.problems[0])) == ["gsm8k-train-0", "gsm8k-train-2", "gsm8k-train-3"]


@pytest.mark.parametrize("size", [0, 1, 2, 21, 22, 100])
def test_examples_are_drawn_as_by_a_whole_sample(size: int) -> None:
    for seed in range(3):
        whole = random.Random(seed).sample(range(size), size)
        assert list(permutation(size, random.Random(seed))) == whole
