"""The tasks by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module

from tasks.base import Task, TaskConfig, TaskError

# name -> module:class, imported when the task is made; each is constructed as Class(config, embedded_default).
TASKS: dict[str, str] = {
    "gsm8k": "tasks.gsm8k:Gsm8k",
    "math": "tasks.math_task:Math",
    "math500": "tasks.math_task:Math500",
    "mbpp": "tasks.mbpp:Mbpp",
    "mbpp_plus": "tasks.mbpp:MbppPlus",
    "humaneval": "tasks.humaneval:HumanEval",
    "humaneval_plus": "tasks.humaneval:HumanEvalPlus",
}


def make_task(config: TaskConfig, embedded_default: bool) -> Task:
    """Checks the settings and loads the task. `embedded_default` says what source=auto means for the model."""
    return check_settings(config)(config, embedded_default)


def check_settings(config: TaskConfig) -> Callable[[TaskConfig, bool], Task]:
    """The task's class, after all that can be judged before anything is loaded. Raises TaskError."""
    if config.name not in TASKS:
        raise TaskError(f"task {config.name!r} is unknown, allowed: {', '.join(TASKS)}")
    module, _, class_name = TASKS[config.name].partition(":")
    task_class = getattr(import_module(module), class_name)
    check_config(config, task_class)
    return task_class


def check_config(config: TaskConfig, task_class: type) -> None:
    """Every setting that can be judged before anything is loaded. A task class lists its own styles and scorers."""
    _check_integer("limit", config.limit, least=1)
    _check_integer("shots", config.shots, least=0)
    if not config.source:
        raise TaskError("source is empty, allowed: auto, embedded, hub or a path to a file")
    _check_choice("shots_style", config.shots_style, getattr(task_class, "shots_styles", ()))
    _check_choice("prompt_style", config.prompt_style, getattr(task_class, "prompt_styles", ()))
    if config.scorer is not None:
        _check_choice("scorer", config.scorer, getattr(task_class, "scorers", ()))


def _check_integer(name: str, value: object, least: int) -> None:
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < least):
        raise TaskError(f"{name}={value!r} is not allowed: an integer >= {least}, or null for the default")


def _check_choice(name: str, value: str, allowed: Sequence[str]) -> None:
    """A task that lists no choices judges the value itself."""
    if allowed and value not in allowed:
        raise TaskError(f"{name}={value!r} is unknown, allowed: {', '.join(allowed)}")
