"""The three kinds of tests: statements with asserts (MBPP), a check function (HumanEval), inputs with outputs (plus).

Each runs in the judge and reports how many tests held. Returning is the only way to a pass, so it is the judge that
knows that every test ran. Whatever else happens is an exception.
"""

from __future__ import annotations

import ast
import hashlib
import json
import sys
from typing import Any

from tasks.sandbox.ended import Ended
from tasks.sandbox.inside import codec, wire
from tasks.sandbox.oracles import Oracle
from tasks.sandbox.outputs import Expected, OutputWriter, read_outputs
from tasks.sandbox.remote import Link, Missing, Report, SolutionError

SKIPPED = b"S"  # an input that was derived from others and that the canonical solution does not take


class Failed(Exception):
    """A test did not hold; `text` says which."""


def run_asserts(link: Link, job: dict[str, Any], progress: dict[str, Any]) -> None:
    """MBPP: the program, the setup, then each test. `names` are those of the tests that the program must define.

    What the setup or the gold program (`gold`) imports of the standard library is the judge's own in the tests.
    """
    link.load(job["program"])
    for setup in job["setup"]:
        link.load(setup, setup=True)
    scope: dict[str, Any] = {"__name__": "tests"}
    for code in (job["gold"], *job["setup"]):
        exec(_imports_of(code), scope)
    for name in job["names"]:
        _bind(link, name, scope)
    for name in job["optional_names"]:
        _bind_if_there(link, name, scope)
    progress["total"] = len(job["tests"])
    for test in job["tests"]:
        _hold(compile(test, "<test>", "exec"), scope, test)
        progress["passed"] += 1


def run_check(link: Link, job: dict[str, Any], progress: dict[str, Any]) -> None:
    """HumanEval: `check(candidate)` in a scope that has the helpers of the prompt, as the prompt gives them."""
    link.load(job["program"])
    scope: dict[str, Any] = {"__name__": "tests"}
    exec(compile(job["helpers"], "<prompt>", "exec"), scope)
    candidate = link.get(job["entry_point"])
    scope[job["entry_point"]] = candidate
    exec(compile(job["test"], "<test>", "exec"), scope)
    progress["total"] = 1
    scope["candidate_of_the_solution"] = candidate
    _hold(compile("check(candidate_of_the_solution)", "<test>", "exec"), scope, job["test"])
    progress["passed"] = 1


def run_outputs(link: Link, job: dict[str, Any], progress: dict[str, Any]) -> None:
    """HumanEval+ and MBPP+: every output, of the base inputs and then of the plus inputs, against the expected one.

    The program is loaded anew for each part, as if it had started again.
    """
    progress["total"] = sum(len(part["inputs"]) for part in job["parts"])
    expected = read_outputs(job["expected"])
    for part in job["parts"]:
        oracle = Oracle(job["family"], job["entry_point"], job["atol"])
        link.load(job["program"])
        link.get(job["entry_point"])
        for number, (text, limit) in enumerate(zip(part["inputs"], part["cpu_s"], strict=True)):
            where = f"{part['name']} input {number}"
            wanted = next(expected)
            if wanted.kind != SKIPPED:
                kind, payload = _call(link, job["entry_point"], text, limit, where)
                if not _same(kind, payload, wanted, oracle, text):
                    raise Failed(f"{where}: {payload[:100].decode(errors='replace')}")
            progress["passed"] += 1
        progress["parts"][part["name"]] = "pass"


def record_outputs(link: Link, job: dict[str, Any], progress: dict[str, Any]) -> None:
    """Runs the canonical solution and writes its outputs; its times are CPU seconds, as the worker measured them."""
    times: list[float] = []
    with OutputWriter(job["expected"]) as writer:
        for part in job["parts"]:
            link.load(job["program"])
            for number, text in enumerate(part["inputs"]):
                try:
                    kind, payload = _call(link, job["entry_point"], text, None, f"{part['name']} input {number}")
                except SolutionError:
                    if not job["skip_errors"]:
                        raise
                    kind, payload = SKIPPED, b""
                writer.add(kind, payload)
                times.append(link.seconds)
                progress["passed"] += 1
    progress["times"] = times


def _call(link: Link, function: str, text: str, limit: float | None, where: str) -> tuple[bytes, bytes]:
    head = json.dumps({"f": function, "k": {"d": []}, "cpu": limit})[:-1]
    request = f'{head},"a":{text}}}'.encode()
    try:
        kind, payload, link.seconds = link.session.ask(wire.CALL, request, None if limit is None else 3 * limit + 1)
    except Ended as end:
        raise Ended(end.status, f"{where}: {end.text}") from None
    if kind == wire.ERROR:
        raise Report.of(payload).exception(where)
    return kind, payload


def _same(kind: bytes, payload: bytes, expected: Expected, oracle: Oracle, text: str) -> bool:
    if kind == wire.DIGEST or expected.kind == wire.DIGEST:
        return _digest(kind, payload) == _digest(expected.kind, expected.payload)
    if payload == expected.payload and not codec.has_handle(payload):
        if oracle.atol == 0:
            oracle.note(codec.decode(expected.payload, _opaque))
        return True
    inputs = codec.decode(text, _opaque) if oracle.needs_inputs else []
    return oracle.accepts(codec.decode(payload, _opaque), codec.decode(expected.payload, _opaque), inputs)


def _digest(kind: bytes, payload: bytes) -> bytes:
    return payload if kind == wire.DIGEST else hashlib.sha256(payload).hexdigest().encode()


def _hold(code: Any, scope: dict[str, Any], test: str) -> None:
    """Runs a test. An exception of the solution passes through; one of the test itself means that it failed."""
    try:
        exec(code, scope)
    except (SolutionError, codec.BadValue):
        raise
    except AssertionError as error:
        raise Failed(f"{_line(error, test)} {str(error)[:100]}".strip()) from None
    except Exception as error:
        raise Failed(f"{_line(error, test)} raised {type(error).__name__}: {str(error)[:100]}") from None


def _line(error: Exception, test: str) -> str:
    """The line of the test that failed: the innermost one that the traceback has of it."""
    lines, trace, found = test.splitlines(), error.__traceback__, ""
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == "<test>" and trace.tb_lineno <= len(lines):
            found = lines[trace.tb_lineno - 1].strip()
        trace = trace.tb_next
    return found[:300]


def _imports_of(code: str) -> str:
    """The imports from the standard library, and nothing else that the code does."""
    tree = ast.parse(code)
    tree.body = [node for node in tree.body if _imported_modules(node) & sys.stdlib_module_names]
    return ast.unparse(tree)


def _imported_modules(node: ast.stmt) -> set[str]:
    if isinstance(node, ast.Import):
        return {alias.name.partition(".")[0] for alias in node.names}
    return {(node.module or "").partition(".")[0]} if isinstance(node, ast.ImportFrom) else set()


def _bind(link: Link, name: str, scope: dict[str, Any]) -> None:
    """Makes a name of the solution known to the tests; of a name that the judge has itself it need only exist."""
    value = link.get(name)
    scope.setdefault(name, value)


def _bind_if_there(link: Link, name: str, scope: dict[str, Any]) -> None:
    """Names that neither the gold program nor the setup defines. A test that lacks one fails, as it does in Python."""
    try:
        _bind(link, name, scope)
    except Missing:
        scope.pop(name, None)


class Opaque:
    """An object that cannot be compared; equal to nothing."""

    def __init__(self, truth: bool) -> None:
        self._truth = truth

    def __bool__(self) -> bool:
        return self._truth


def _opaque(_number: int, _name: str, truth: bool) -> Opaque:
    return Opaque(truth)
