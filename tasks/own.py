"""Tasks of one's own: what is wrong with their code is one sentence that names the class, before the first decode."""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

from tasks.base import Task
from tasks.sources.fields import TEXT, TEXT_OR_BLANK, shown
from tasks.types import Problem, Prompt, Source, TaskError

METHODS = ("load", "auto_style", "number_of_shots", "takes", "problem", "arrange", "prompt", "score", "score_all")
LISTS = ("scorers", "prompt_styles", "shots_styles", "libraries", "stop")


@contextmanager
def named(target: str | None, doing: str) -> Iterator[None]:
    """An exception of the code behind `target` becomes a TaskError; None is a task of this project."""
    try:
        yield
    except TaskError:
        raise
    except Exception as error:
        if target is None:
            raise
        place = traceback.extract_tb(error.__traceback__)[-1]
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        raise TaskError(
            f"task.target={target} fails as {doing} ({reason}, in {Path(place.filename).name}, line {place.lineno}); "
            "allowed: a class as docs/tasks.md has it"
        ) from error


def check_class(target: str, task_class: type[Task]) -> None:
    """Raises TaskError for a class whose attributes are not of their types."""
    if missing := sorted(task_class.__abstractmethods__):
        raise TaskError(f"task.target={target} lacks what a task must have: {', '.join(missing)}")
    for name in METHODS:
        if not callable(getattr(task_class, name)):
            raise _wrong(target, name, getattr(task_class, name), "a method")
    for name in LISTS:
        _check_texts(target, name, getattr(task_class, name))
    most = task_class.most_shots
    if most is not None and (not isinstance(most, int) or isinstance(most, bool) or most < 0):
        raise _wrong(target, "most_shots", most, "an integer >= 0, or None")


def check_made(target: str | None, task: Task) -> None:
    """What every task must have, also one whose class has a constructor of its own. Raises TaskError."""
    where = target or type(task).__name__
    for name in ("name", "scorer"):
        if TEXT.fault(found := getattr(task, name, None)):
            raise _wrong(where, name, found, TEXT.allowed)
    _check_texts(where, "stop", getattr(task, "stop", None))
    source = getattr(task, "source", None)
    if not isinstance(source, Source):
        raise _wrong(where, "source", source, "a tasks.types.Source")
    _check_source(where, source)
    problems: Any = getattr(task, "problems", None)
    if not isinstance(problems, Sequence):
        raise _wrong(where, "problems", problems, "a list or tuple of tasks.types.Problem")
    for number, problem in enumerate(problems, 1):
        if not isinstance(problem, Problem):
            raise _wrong(where, f"problem {number}", problem, "a tasks.types.Problem")
        if target is not None and not _is_object(problem.row):
            raise _wrong(where, f"row of problem {number}", problem.row, "an object with texts as keys")


def prompt_of(task: Task, problem: Problem, target: str | None) -> Prompt:
    """A task's prompt for a problem. Raises TaskError for a wrong one of a task of one's own."""
    with named(target, f"it makes the prompt of {problem.id}"):
        prompt = task.prompt(problem)
    if target is not None:
        _check_prompt(target, f"prompt of {problem.id}", prompt)
    return prompt


def _check_prompt(target: str, what: str, prompt: Any) -> None:
    if not isinstance(prompt, Prompt):
        raise _wrong(target, what, prompt, "a tasks.types.Prompt")
    kind = TEXT if prompt.messages is None else TEXT_OR_BLANK
    if fault := kind.fault(prompt.text):
        raise TaskError(f"task.target={target}: text of the {what} is {shown(prompt.text)}; {fault}")
    messages: Any = prompt.messages
    if messages is None:
        return
    if isinstance(messages, str) or not isinstance(messages, Sequence) or not messages:
        raise _wrong(target, f"messages of the {what}", messages, "None, or a tuple of messages")
    for message in messages:
        texts = [message.get(name) for name in ("role", "content")] if isinstance(message, Mapping) else [None]
        if any(map(TEXT_OR_BLANK.fault, texts)):
            raise _wrong(target, f"a message of the {what}", message, "{'role': text, 'content': text}")


def _check_source(where: str, source: Source) -> None:
    wanted: dict[str, tuple[Callable[[Any], bool], str]] = {
        "str": (lambda value: not TEXT.fault(value), TEXT.allowed),
        "str | None": (lambda value: value is None or not TEXT.fault(value), f"{TEXT.allowed}, or None"),
        "int": (lambda value: isinstance(value, int) and value >= 0, "an integer >= 0"),
    }
    for field in fields(source):
        fits, allowed = wanted[str(field.type)]
        if not fits(value := getattr(source, field.name)):
            raise _wrong(where, f"source.{field.name}", value, allowed)


def _check_texts(target: str, name: str, value: Any) -> None:
    if not isinstance(value, (tuple, list)) or any(not isinstance(one, str) or not one for one in value):
        raise _wrong(target, name, value, "a tuple of texts that are not empty")


def _is_object(row: Any) -> bool:
    """Whether it can be part of a run's key."""
    try:
        return isinstance(row, Mapping) and bool(json.dumps(dict(row), sort_keys=True, default=str))
    except (TypeError, ValueError, RecursionError):
        return False


def _wrong(target: str, name: str, value: Any, allowed: str) -> TaskError:
    return TaskError(f"task.target={target}: {name} is {shown(value)}; allowed: {allowed}")
