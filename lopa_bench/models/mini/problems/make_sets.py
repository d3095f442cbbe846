"""Writes the embedded evaluation sets: `python -m lopa_bench.models.mini.problems.make_sets`.

Word problems in GSM8K's format, functions in MBPP's and HumanEval's. All but the few-shot rows come from the held-out
split, and training rejects their questions as well.

`--seed N --out FOLDER` writes other test sets of the same kind, to check on new problems what was found on these: none
of their questions stands in the embedded sets.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Collection, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from lopa_bench.models.mini.problems.code_problems import run_tests
from lopa_bench.models.mini.problems.mixture import held_out_problems
from lopa_bench.models.mini.problems.problem import Problem

EMBEDDED = Path(__file__).resolve().parents[4] / "tasks" / "embedded"
SEED = 2026
VARIETY = 0.5
TEST_ROWS = {"gsm8k": 500, "mbpp": 200, "humaneval": 164}
FEW_SHOT_ROWS = 64

Row = dict[str, Any]


def gsm8k_row(index: int, problem: Problem) -> Row:
    return {"question": problem.question, "answer": problem.answer}


def mbpp_row(index: int, problem: Problem) -> Row:
    return {
        "task_id": index + 1,
        "text": problem.task,
        "code": problem.code,
        "test_list": list(problem.tests),
        "test_setup_code": "",
        "challenge_test_list": [],
    }


def humaneval_row(index: int, problem: Problem) -> Row:
    checks = "".join(f"    {test.replace(problem.function, 'candidate', 1)}\n" for test in problem.tests)
    return {
        "task_id": f"Mini/{index}",
        "prompt": problem.question,
        "entry_point": problem.function,
        "canonical_solution": f"{problem.answer}\n",
        "test": f"def check(candidate):\n{checks}",
    }


def question_of(row: Row) -> str:
    """The prompt of a row of any of the sets, as it is put to the embedded models."""
    if "text" in row:
        return f"{row['text']}\n{row['test_list'][0]}"
    return row["question"] if "question" in row else row["prompt"]


def read_rows(name: str) -> list[Row]:
    with (EMBEDDED / f"{name}.jsonl").open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def embedded_questions() -> frozenset[str]:
    """All questions of the evaluation sets, which training must not meet."""
    return frozenset(question_of(row) for name in TEST_ROWS for row in read_rows(f"{name}_test"))


def check_gold(row: Row) -> None:
    """Runs a gold solution against its own tests; raises if it fails."""
    if "text" in row:
        run_tests(row["code"], tuple(row["test_list"]))
    elif "prompt" in row:
        code = row["prompt"] + row["canonical_solution"] + row["test"]
        run_tests(code, (f"check({row['entry_point']})",))


def rows_of(
    kind: str, make: Callable[[int, Problem], Row], seed: int, held_out: bool, exclude: Collection[str]
) -> Iterator[Row]:
    for index, problem in enumerate(
        p for p in held_out_problems(kind, seed, VARIETY, held_out) if p.question not in exclude
    ):
        yield make(index, problem)


def write_set(
    folder: Path, name: str, kind: str, make: Callable[[int, Problem], Row], seed: int, exclude: Collection[str] = ()
) -> None:
    held_out = name.endswith("_test")
    count = TEST_ROWS[name.removesuffix("_test")] if held_out else FEW_SHOT_ROWS
    rows = list(islice(rows_of(kind, make, seed, held_out, exclude), count))
    for row in rows:
        check_gold(row)
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    (folder / f"{name}.jsonl").write_text(text, encoding="utf-8")
    print(f"{name}.jsonl: {len(rows)} rows")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=EMBEDDED)
    parser.add_argument("--seed", type=int, default=SEED)
    arguments = parser.parse_args()
    folder, seed = arguments.out, arguments.seed
    if seed != SEED and folder.resolve() == EMBEDDED:
        parser.error(
            f"--seed {seed}: the embedded sets are those of seed {SEED}; give others a folder of their own (--out)"
        )
    folder.mkdir(parents=True, exist_ok=True)
    exclude = frozenset() if seed == SEED else embedded_questions()
    write_set(folder, "gsm8k_test", "word", gsm8k_row, seed, exclude)
    if seed == SEED:  # examples of a prompt are a setting of a run, not problems to check it on
        write_set(folder, "gsm8k_train", "word", gsm8k_row, seed)
    write_set(folder, "mbpp_test", "function", mbpp_row, seed, exclude)
    write_set(folder, "humaneval_test", "completion", humaneval_row, seed, exclude)


if __name__ == "__main__":
    main()
