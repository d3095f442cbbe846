"""Problems of HumanEval+ and MBPP+: functions with the inputs of their tests, from each format they come in.

- the release files of evalplus (`base_input`, `plus_input`),
- their "OriginFmt" files, which are what the Hub has (`test` is a program that holds all inputs),
- plain HumanEval or MBPP rows (the embedded sets): their own tests are the base inputs, and the plus inputs are
  derived from them.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from tasks.code.inputs import restore_mbpp_types
from tasks.sandbox.inside.codec import encode
from tasks.types import TaskError

Parts = tuple[tuple[str, tuple[str, ...]], ...]


@dataclass(frozen=True)
class PlusProblem:
    """`parts` are ("base", inputs) and ("plus", inputs); an input is an encoded list of arguments."""

    key: str
    family: str  # humaneval or mbpp
    entry_point: str
    canonical: str
    atol: float
    parts: Parts
    derived: bool = False


def plus_problem(key: str, row: Mapping[str, Any], family: str, names: tuple[str, ...]) -> PlusProblem:
    """`names` are the functions of a plain row, of which the first is tested."""
    canonical = row["code"] if "code" in row else row["prompt"] + row["canonical_solution"]
    if "base_input" in row:
        base, plus = row["base_input"], row["plus_input"]
        if family == "mbpp":
            number = int(str(row["task_id"]).rpartition("/")[2])
            base, plus = ([restore_mbpp_types(number, arguments) for arguments in part or ()] for part in (base, plus))
        parts = (("base", _encoded(base)), ("plus", _encoded(plus)))
        return PlusProblem(key, family, row["entry_point"], canonical, float(row["atol"]), parts)
    if "inputs = [" in row.get("test", ""):
        name, atol, inputs = _origin_format(key, row["test"])
        return PlusProblem(key, family, row.get("entry_point", name), canonical, atol, (("plus", _encoded(inputs)),))
    base = _arguments(key, row, names[0])
    parts = (("base", _encoded(base)), ("plus", _encoded(_derived(base))))
    return PlusProblem(key, family, names[0], canonical, 0.0, parts, derived=True)


def _encoded(inputs: list[list[Any]]) -> tuple[str, ...]:
    """An empty object stands for "no plus inputs" in the release files."""
    return tuple(encode(list(arguments), _no_handle) for arguments in inputs or ())


def _no_handle(value: Any) -> int:
    raise TaskError(f"an input holds a {type(value).__name__}, which cannot be sent to a program")


def _origin_format(key: str, test: str) -> tuple[str, float, list[list[Any]]]:
    """The function's name, the tolerance and the inputs in a test program of the OriginFmt files."""
    tree = ast.parse(test)
    nodes = list(ast.walk(tree))
    values = [n.value for n in nodes if isinstance(n, ast.Assign) and ast.unparse(n.targets[0]) == "inputs"]
    calls = [n for n in nodes if isinstance(n, ast.Call) and ast.unparse(n.func) == "assertion"]
    if len(values) != 1 or len(calls) != 1:
        # HumanEval/32 has a check of its own (and a broken one): its tolerance is the one that the release file states
        if len(values) == 1 and "_poly" in test:
            return "find_zero", 1e-4, _literal(values[0])
        raise TaskError(f"{key}: its test is not in evalplus' format (inputs, results, assertion)")
    function, _, atol = calls[0].args
    assert isinstance(function, ast.Call)
    return ast.unparse(function.func), float(_literal(atol)), _literal(values[0])


def _literal(node: ast.expr) -> Any:
    """A literal in which inf, nan, complex(...) and set() may stand, as they do in these files."""
    scope = {"inf": float("inf"), "nan": float("nan"), "complex": complex, "set": set, "__builtins__": {}}
    for child in ast.walk(node):
        if isinstance(child, ast.Name) and child.id not in scope:
            raise TaskError(f"an input uses the name {child.id!r}")
        if isinstance(child, (ast.Attribute, ast.Lambda, ast.comprehension)):
            raise TaskError(f"an input is not a literal: {ast.unparse(child)[:60]}")
    return eval(compile(ast.Expression(node), "<inputs>", "eval"), scope)


def _arguments(key: str, row: Mapping[str, Any], name: str) -> list[list[Any]]:
    """The arguments in the asserts of a plain row."""
    source = row["test"] if "test" in row else "\n".join(row["test_list"])
    tested = {name, "candidate"} if "test" in row else {name}
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in tested:
            found.append([_literal(argument) for argument in node.args])
    if not found:
        raise TaskError(f"{key}: no test calls {name}")
    return found


def _derived(base: list[list[Any]]) -> list[list[Any]]:
    """Inputs of the same kind as the tests' own: each sequence reversed, shortened, doubled, or from another test."""
    known = {json.dumps(arguments, default=str) for arguments in base}
    derived = []
    for arguments in _variants(base):
        text = json.dumps(arguments, default=str)
        if text not in known:
            known.add(text)
            derived.append(arguments)
    return derived


def _variants(base: list[list[Any]]) -> Iterator[list[Any]]:
    for arguments in base:
        for position, value in enumerate(arguments):
            if not isinstance(value, (list, str, tuple)):
                continue
            for other in (value[::-1], value[1:], value[:-1], value[::2], value * 2, value[:0]):
                yield [*arguments[:position], other, *arguments[position + 1 :]]
    for first, second in pairwise(base):
        for position in range(min(len(first), len(second))):
            yield [*first[:position], second[position], *first[position + 1 :]]
