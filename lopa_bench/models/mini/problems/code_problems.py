"""Small Python functions, asked in MBPP's manner (a sentence and an assert) or HumanEval's (a header to complete)."""

from __future__ import annotations

import random
import textwrap
from typing import Any

from lopa_bench.models.mini.problems.code_families import FAMILIES, INDENT, Family
from lopa_bench.models.mini.problems.phrasing import choose
from lopa_bench.models.mini.problems.problem import Problem

NUMBER_WORDS = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen", "twenty",
)  # fmt: skip
WORDS = (
    "cat", "dog", "sun", "tree", "book", "hello", "world", "code", "python", "moon", "star", "apple", "level",
    "radar", "noon", "planet",
)  # fmt: skip
ARGUMENTS = {
    "list": ("numbers", "nums", "values", "items"),
    "slice": ("numbers", "nums", "values", "items"),
    "word": ("text", "word", "string"),
    "number": ("number", "n", "num"),
}
LOOP_VARIABLES = ("x", "value", "i")
TESTS = 4


def code_problem(rng: random.Random, variety: float, completion: bool = False) -> Problem:
    """One function, written as MBPP asks for it, or with its header given as in HumanEval."""
    index = rng.randrange(len(FAMILIES))
    family = FAMILIES[index]
    k = rng.choice(family.constants)
    function = rng.choice(family.names).format(w=NUMBER_WORDS[k])
    fields = {
        "k": k, "top": k + 5, "v": _draw_name(ARGUMENTS[family.argument], rng, variety),
        "x": _draw_name(LOOP_VARIABLES, rng, variety),
    }  # fmt: skip
    body = _draw_name(family.bodies, rng, variety).format_map(fields)
    task = choose(family.task, rng, 1.0).format_map(fields)
    header = f"def {function}({fields['v']}):\n"
    indented = textwrap.indent(body, INDENT)
    tests = _draw_tests(family, k, function, header + indented, rng)
    key = f"function:{index}:{k}"
    if completion:
        prompt = f'{header}{INDENT}"""{task[0].upper()}{task[1:]}."""\n'
        return Problem("completion", key, prompt, indented, tests=tests, function=function, task=task)
    task = f"Write a function to {task}."
    answer = header + indented
    return Problem("function", key, f"{task}\n{tests[0]}", answer, tests=tests, function=function, task=task)


def run_tests(code: str, tests: tuple[str, ...]) -> None:
    """Executes code of this generator with its asserts; raises what they raise. Not for code of a model."""
    namespace: dict[str, Any] = {}
    exec(code, namespace)
    for test in tests:
        exec(test, namespace)


def _draw_name(options: tuple[str, ...], rng: random.Random, variety: float) -> str:
    return rng.choice(options) if rng.random() < variety else options[0]


def _draw_tests(family: Family, k: int, function: str, code: str, rng: random.Random) -> tuple[str, ...]:
    namespace: dict[str, Any] = {}
    exec(code, namespace)
    arguments: list[str] = []
    while len(arguments) < TESTS:
        argument = repr(_draw_argument(family.argument, k, rng))
        if argument not in arguments:
            arguments.append(argument)
    return tuple(f"assert {function}({a}) == {eval(f'{function}({a})', namespace)!r}" for a in arguments)


def _draw_argument(kind: str, k: int, rng: random.Random) -> Any:
    if kind == "word":
        return rng.choice(WORDS)
    if kind == "number":
        return rng.randint(1, 9)
    length = max(3, k + rng.randint(-1, 2)) if kind == "slice" else rng.randint(3, 5)
    numbers = [rng.randint(0, 25) for _ in range(length)]
    if rng.random() < 0.5:  # the constant itself is where off-by-one mistakes show
        numbers[rng.randrange(len(numbers))] = k
    return numbers
