"""Rows that could have no verdict, or share one, are refused at load: file, row, value and what is allowed."""

from __future__ import annotations

import gzip
import json
import re
import unicodedata
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from tasks.base import Task
from tasks.registry import make_task
from tasks.sources.problems import plain_id
from tasks.types import TaskConfig, TaskError
from tests.warm import Warm

ROWS: dict[str, dict[str, Any]] = {
    "gsm8k": {"question": "How many?", "answer": "#### 1"},
    "math": {"problem": "What is $1$?", "solution": "$\\boxed{1}$"},
    "math500": {"problem": "What is $1$?", "solution": "$\\boxed{1}$", "answer": "1", "unique_id": "test/a/1.json"},
    "mbpp": {
        "task_id": 11,
        "text": "Halve.",
        "code": "def halve(x):\n    return x / 2",
        "test_list": ["assert halve(4) == 2"],
    },
    "humaneval": {
        "task_id": "HumanEval/0",
        "prompt": "def one():\n",
        "canonical_solution": "    return 1\n",
        "entry_point": "one",
        "test": "def check(candidate):\n    assert candidate() == 1\n",
    },
}
ROWS["mbpp_plus"] = {
    "task_id": "Mbpp/11", "prompt": '"""\nHalve.\nassert halve(4) == 2\n"""\n', "entry_point": "halve", "atol": 0,
    "canonical_solution": "def halve(x):\n    return x / 2", "base_input": [[4]], "plus_input": [[6]],
}  # fmt: skip
ROWS["humaneval_plus"] = {**ROWS["humaneval"], "base_input": [[]], "plus_input": {}, "atol": 0}
STYLE = {"mbpp_plus": "question", "mbpp": "question"}  # other styles want examples or a second file
IDS = {"math": "unique_id", "math500": "unique_id"} | dict.fromkeys(
    ("mbpp", "mbpp_plus", "humaneval", "humaneval_plus"), "task_id"
)


@pytest.fixture(autouse=True)
def golds_are_fine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasks.math.task.unequal_golds", lambda golds, _: [])


def load(path: Path, name: str, **settings: Any) -> Task:
    style = STYLE.get(name, "auto")
    return make_task(TaskConfig(name=name, source=str(path), shots=0, prompt_style=style, **settings), False)


def written(folder: Path, *rows: Any) -> Path:
    path = folder / "mine.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def other(name: str) -> dict[str, Any]:
    """A second row of a task, with another id."""
    second = {"task_id": 12 if name == "mbpp" else "x/12", "unique_id": "test/a/2.json"}
    return {field: second.get(field, value) for field, value in ROWS[name].items()}


def refusal(path: Path, name: str, **settings: Any) -> str:
    with pytest.raises(TaskError) as caught:
        load(path, name, **settings)
    message = str(caught.value)
    assert str(path) in message
    assert "\n" not in message
    return message


@pytest.mark.parametrize("name", ROWS)
def test_two_right_rows_are_two_problems(name: str, tmp_path: Path) -> None:
    assert len(load(written(tmp_path, ROWS[name], other(name)), name).problems) == 2


WRONG: list[tuple[str, str, Any, str]] = [  # task, field, value, what the message says of it
    ("gsm8k", "answer", 17, "answer is 17; allowed: text that is not blank"),
    ("gsm8k", "answer", ["#### 1"], "answer is ['#### 1']; allowed: text"),
    ("gsm8k", "answer", None, "no value for answer"),
    ("gsm8k", "answer", True, "answer is True; allowed: text"),
    ("gsm8k", "answer", "one", "the answer has no '#### <number>': 'one'"),
    ("gsm8k", "question", "", "question is ''; allowed: text that is not blank"),
    ("gsm8k", "question", {"text": "?"}, "question is {'text': '?'}; allowed: text"),
    ("gsm8k", "question", "half \ud83d a smile", "half a character (U+D83D); allowed: text that UTF-8 can hold"),
    ("gsm8k", "answer", "\udc00 #### 1", "half a character (U+DC00)"),
    ("math", "solution", 3.5, "solution is 3.5; allowed: text"),
    ("math", "solution", "none", "the solution has no \\boxed answer"),
    ("math", "answer", 17, "answer is 17; allowed: text"),
    ("math", "unique_id", ["a"], "unique_id is ['a']; allowed: a whole number, or text"),
    ("math", "unique_id", 1.5, "unique_id is 1.5; allowed: a whole number, or text"),
    ("math", "type", ["Algebra"], "type is ['Algebra']; allowed: text"),
    ("math500", "answer", 17, "answer is 17; allowed: text"),
    ("mbpp", "task_id", 11.0, "task_id is 11.0; allowed: a whole number, or text"),
    ("mbpp", "task_id", True, "task_id is True; allowed: a whole number, or text"),
    ("mbpp", "task_id", float("nan"), "task_id is nan; allowed: a whole number, or text"),
    ("mbpp", "text", 17, "text is 17; allowed: text"),
    ("mbpp", "text", None, "no value for text or prompt"),
    ("mbpp", "code", ["def"], "code is ['def']; allowed: text"),
    ("mbpp", "code", "def halve(x)", "code holds 'def halve(x)'; allowed: programs in Python"),
    ("mbpp", "code", "def other(x):\n    return x", "no test uses a name that the gold program defines"),
    ("mbpp", "test_list", "assert halve(4) == 2", "test_list is 'assert halve(4) == 2'; allowed: a list of texts"),
    ("mbpp", "test_list", [], "test_list is []; allowed: a list of texts"),
    ("mbpp", "test_list", [17], "test_list is [17]; allowed: a list of texts"),
    ("mbpp", "test_list", ["assert ("], "test_list holds 'assert ('; allowed: programs in Python"),
    ("mbpp", "test_list", ["assert " + "(" * 100_000], "test_list holds 'assert ((("),
    ("mbpp", "test_list", ["assert halve(4) == 2", "'\ud800'"], "half a character (U+D800)"),
    ("mbpp", "test_setup_code", 1, "test_setup_code is 1; allowed: text"),
    ("mbpp", "test_imports", "import re", "test_imports is 'import re'; allowed: a list of texts"),
    ("humaneval", "entry_point", 17, "entry_point is 17; allowed: a name of Python"),
    ("humaneval", "entry_point", "no name", "entry_point is 'no name'; allowed: a name of Python"),
    ("humaneval", "entry_point", "two", "are no program that defines two"),
    ("humaneval", "canonical_solution", "return 1", "are no program that defines one"),
    ("humaneval", "prompt", ["def one():"], "prompt is ['def one():']; allowed: text"),
    ("humaneval", "test", {"check": 1}, "test is {'check': 1}; allowed: text"),
    ("humaneval", "test", "def check(candidate)", "test is 'def check(candidate)'; allowed: a program in Python"),
    ("humaneval_plus", "base_input", "[[]]", "base_input is '[[]]'; allowed: a list of lists"),
    ("humaneval_plus", "base_input", [1], "base_input is [1]; allowed: a list of lists"),
    ("humaneval_plus", "plus_input", {"a": 1}, "plus_input is {'a': 1}; allowed: a list of lists"),
    ("humaneval_plus", "atol", "0", "atol is '0'; allowed: a number"),
    ("humaneval_plus", "atol", float("inf"), "atol is inf; allowed: a number"),
    ("mbpp_plus", "prompt", 17, "prompt is 17; allowed: text"),
    ("mbpp_plus", "canonical_solution", None, "no value for code or canonical_solution"),
]


@pytest.mark.parametrize(("name", "field", "value", "message"), WRONG)
def test_a_value_that_no_verdict_can_rest_on_is_refused(
    name: str, field: str, value: Any, message: str, tmp_path: Path
) -> None:
    found = refusal(written(tmp_path, ROWS[name], {**other(name), field: value}), name)
    assert "row 2: " in found
    assert message in found
    assert len(found) < 400


UNREADABLE: list[tuple[str, bytes, str]] = [
    ("a.jsonl", b'{"question": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "line 1: .*brackets in brackets, too deep"),
    ("a.json", b"[" * 100_000, "damaged JSON at line 1 .brackets in brackets, too deep"),
    ("a.jsonl", b'{"question": ' + b"7" * 5000 + b"}", "line 1: .*a number of more than 4300 digits"),
    ("a.json", b'[{"question": -' + b"7" * 5000 + b"}]", "damaged JSON at line 1 .a number of more than 4300 digits"),
    ("a.jsonl", b'[{"question": "a", "answer": "#### 1"}]', "line 1: .*found a list; a file that is one list"),
    ("a.jsonl", b'[\n{"question": "a", "answer": "#### 1"}\n]', r"line 1: .*found '\['"),
    ("a.jsonl", b'{"question": "a", "answer": "#### 1"}\r{"question": "a"}', "line 1: .*Extra data"),
    ("a.jsonl", b'{"question": "a", "answer": "#### 1"}\n17\n', "row 2: expected an object, found 17"),
    ("a.jsonl", b'{"question": "a", "answer": "#### 1"}\nnull\n', "row 2: expected an object, found None"),
    ("a.jsonl", b'{"question": "a", "answer": "#### 1"}\n"\xe4"\n', "line 2: not UTF-8"),
    ("a.jsonl", '{"question": "a"}'.encode("utf-16"), "line 1: not UTF-8"),
    ("a.jsonl", b"", "has no rows; a file with GSM8K test is wanted"),
    ("a.jsonl", b"\xef\xbb\xbf\r\n\n", "has no rows"),
    ("a.json", b"", "damaged JSON at line 1"),
    ("a.json", b"[]", "has no rows"),
    ("a.json", b"null", "expected a JSON list of objects, found NoneType"),
    ("a.jsonl.gz", b"", "has no rows|damaged or truncated gzip"),
    ("a.jsonl.gz", gzip.compress(b'{"question": "a"}' * 99, mtime=0)[:30] + b"\0" * 30, "damaged or truncated gzip"),
    ("a.jsonl", b'{"question": "a", "answer": "#### 1"}\n\n{"question": "a", "answer": "#### 1", "answer": "#### 2"}',
     "row 2: the key 'answer' stands twice in one object; allowed: once"),
    ("a.jsonl", b'{"question": "a", "answer": "#### 1", "more": [{"c": 1, "\\u0063": 1}]}', "row 1: the key 'c' "),
    ("a.json", b'[{"question": "a", "answer": "#### 1"}, {"question": "a", "question": "a", "answer": "#### 1"}]',
     "row 2: the key 'question' stands twice"),
    ("a.jsonl.gz", gzip.compress(b'{"": 1, "": 2}', mtime=0), "row 1: the key '' stands twice"),
    ("a.parquet", b"", "damaged parquet file of 0 bytes"),
]  # fmt: skip


@pytest.mark.parametrize(("file", "content", "message"), UNREADABLE)
def test_a_file_that_cannot_be_read_is_refused(file: str, content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / file).write_bytes(content)
    assert re.search(message, refusal(tmp_path / file, "gsm8k"))


@pytest.mark.parametrize("name", ["a.jsonl", "a" * 300 + ".jsonl", "a\0b.jsonl"])
def test_a_path_that_leads_nowhere_is_refused(name: str, tmp_path: Path) -> None:
    if name == "a.jsonl":
        (tmp_path / name).mkdir()
    refusal(tmp_path / name, "gsm8k")


@pytest.mark.parametrize("ends", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_line_ends_and_a_byte_order_mark_change_nothing(ends: str, mark: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_bytes((mark + ends.join(json.dumps(ROWS["gsm8k"]) for _ in range(2)) + ends).encode())
    assert [problem.gold for problem in load(path, "gsm8k").problems] == ["1", "1"]


def test_a_parquet_column_of_another_type_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "mine.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"question": [b"How many?"], "answer": ["#### 1"]}), path)
    assert "row 1: question is b'How many?'; allowed: text" in refusal(path, "gsm8k")


def test_parquet_columns_and_fields_of_one_name_are_refused(tmp_path: Path) -> None:
    texts = pyarrow.array(["#### 1"])
    inner = pyarrow.StructArray.from_arrays([texts, texts], names=["x", "x"])
    for columns, names in (([texts] * 3, ["question", "answer", "answer"]), ([inner, texts], ["question", "answer"])):
        path = tmp_path / "mine.parquet"
        pyarrow.parquet.write_table(pyarrow.Table.from_arrays(columns, names=names), path)
        assert re.search("Multiple matches|duplicate field names", refusal(path, "gsm8k"))


def test_a_number_of_5000_digits_as_an_answer_is_a_number(tmp_path: Path) -> None:
    (problem,) = load(written(tmp_path, {"question": "?", "answer": "#### " + "9" * 5000}), "gsm8k").problems
    assert len(problem.gold) == 5000


# --- ids


@pytest.mark.parametrize("name", [name for name in ROWS if name in IDS])
def test_a_row_that_stands_twice_is_refused(name: str, tmp_path: Path) -> None:
    """Also where the limit would take only one of them."""
    row = {IDS[name]: 17, **ROWS[name]}
    path = written(tmp_path, other(name), row, row)
    for limit in (None, 1):
        found = refusal(path, name, limit=limit)
        assert "rows 2 and 3 have the same id" in found
        assert f"{IDS[name]} is {row[IDS[name]]!r} and {row[IDS[name]]!r}" in found


SAME: list[tuple[str, Any, Any]] = [
    ("humaneval", "setA/0", "setB/0"),
    ("humaneval", "HumanEval/0", "0"),
    ("humaneval", 0, "x/0"),
    ("humaneval_plus", "setA/0", "setB/0"),
    ("humaneval", "HumanEval/7", "HumanEval/07"),
    ("mbpp_plus", "Mbpp/11", "11"),
    ("mbpp", 11, "11"),
    ("mbpp", 11, "011"),
    ("mbpp", "11", " 11 "),
    ("mbpp", "11", "１１"),
    ("mbpp", "a b", "a\u00a0b"),
    ("mbpp", "a", "a\u200b"),
    ("math", "caf\u00e9", "cafe\u0301"),
    ("math", 1, "1"),
]


@pytest.mark.parametrize(("name", "first", "second"), SAME)
def test_ids_that_come_to_the_same_are_refused(name: str, first: Any, second: Any, tmp_path: Path) -> None:
    rows = [{**ROWS[name], IDS[name]: value} for value in (first, second)]
    assert "rows 1 and 2 have the same id: " in refusal(written(tmp_path, *rows), name)


def test_an_id_that_is_another_rows_number_is_refused(tmp_path: Path) -> None:
    rows = [ROWS["math"] | {"unique_id": "math-test-1"}, ROWS["math"]]
    assert "rows 1 and 2 have the same id: math-test-1" in refusal(written(tmp_path, *rows), "math")


@pytest.mark.parametrize(
    ("first", "second"),
    [("a1", "a10"), ("1.01", "1.1"), ("a", "A"), ("a-1", "a/1"), ("1", "-1"), ("0", "00x"), ("", "0")],
)
def test_ids_that_differ_stay_apart(first: str, second: str) -> None:
    assert plain_id(first) != plain_id(second)


def test_a_plain_id_is_one_form_of_all_that_look_alike() -> None:
    forms = [
        "b\u00e9ta/7",
        " b\u00e9ta / 07",
        unicodedata.normalize("NFD", "b\u00e9ta/7"),
        "béta/\uff17",
        "b\u200bé\u00adta/7",
    ]
    assert {plain_id(form) for form in forms} == {"b\u00e9ta/7"}


def test_an_example_of_the_prompt_is_no_problem_whatever_the_type_of_its_id(tmp_path: Path) -> None:
    rows = [{**ROWS["mbpp"], "task_id": value} for value in ("2", 3, "04", 5)]
    made = make_task(TaskConfig(name="mbpp", source=str(written(tmp_path, *rows)), prompt_style="lm_eval"), False)
    assert [problem.id for problem in made.problems] == ["mbpp-5"]
    with pytest.raises(TaskError, match=r"mine\.jsonl: no row is a problem of this task"):
        make_task(TaskConfig(name="mbpp", source=str(written(tmp_path, rows[0])), prompt_style="lm_eval"), False)


# --- as a user meets it


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"question": "How many?", "answer": 17}, "mine.jsonl, row 1: answer is 17; allowed: text that is not blank"),
        (
            {"question": "\ud800", "answer": "#### 1"},
            "row 1: question is '\\ud800'; it holds half a character (U+D800)",
        ),
    ],
)
def test_a_wrong_row_is_one_sentence_and_status_2(
    row: Mapping[str, Any], message: str, warm: Warm, settings: list[str], tmp_path: Path
) -> None:
    path = written(tmp_path, row)
    done = warm.run(*settings, f"task.source={path}", "task.shots=0", f"run.out={tmp_path / 'out'}")
    assert done.code == 2
    assert message in done.err
    assert done.err.count("\n") == 1
    assert not (tmp_path / "out").exists()
