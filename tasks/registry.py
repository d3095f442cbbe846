"""The tasks by name, and those of one's own by `task.target`."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

from tasks.base import Task
from tasks.own import check_class, check_made, named
from tasks.sources.problems import unique_problems
from tasks.sources.taken import bounds, taken_of
from tasks.types import TaskConfig, TaskError

# name -> module:class, imported when the task is made; each is constructed as Class(config, embedded_default).
TASKS: dict[str, str] = {
    "gsm8k": "tasks.gsm8k.task:Gsm8k",
    "math": "tasks.math.task:Math",
    "math500": "tasks.math.task:Math500",
    "mbpp": "tasks.code.mbpp:Mbpp",
    "mbpp_plus": "tasks.code.mbpp:MbppPlus",
    "humaneval": "tasks.code.humaneval:HumanEval",
    "humaneval_plus": "tasks.code.humaneval:HumanEvalPlus",
    "requests": "tasks.requests:Requests",
}


def make_task(config: TaskConfig, embedded_default: bool) -> Task:
    """Checks the settings and loads the task. `embedded_default` says what source=auto means for the model."""
    task_class = check_settings(config)
    with named(config.target, "it is made"):
        task = task_class(config, embedded_default)
        check_made(config.target, task)
        unique_problems(task.problems, task.source.where, range(1, len(task.problems) + 1), task.id_field)
        if task.problems is not task.taken:  # those of a constructor of its own
            task.problems = taken_of(task.problems, config)
    return task


def check_settings(config: TaskConfig) -> type[Task]:
    """The task's class, after all that can be judged before anything is loaded. Raises TaskError.

    A task of one's own that was not given a name takes that of its class.
    """
    if config.target is not None:
        task_class = load_target(config.target)
        if config.name in TASKS:
            config.name = getattr(task_class, "name", task_class.__name__.lower())
        if config.name in TASKS:
            raise TaskError(
                f"task.target={config.target} is named {config.name}, as a task of this package; "
                "allowed: a name of its own (task.name=...)"
            )
    elif config.name in TASKS:
        module, _, class_name = TASKS[config.name].partition(":")
        task_class = getattr(import_module(module), class_name)
    else:
        raise TaskError(
            f"task {config.name!r} is unknown, allowed: {', '.join(TASKS)}; "
            "task.target=module:Class names one of your own"
        )
    check_config(config, task_class)
    return task_class


def load_target(target: str) -> type[Task]:
    """The task class at "module:Class", from anywhere Python can import from. Raises TaskError."""
    module, _, name = target.partition(":")
    try:
        found = getattr(import_module(module), name)
    except Exception as error:  # whatever the module does when it is imported
        reason = f"{type(error).__name__}: {error}" if not isinstance(error, (ImportError, AttributeError)) else error
        raise TaskError(f"task.target={target} cannot be loaded ({reason}); allowed: module:Class") from error
    if not (isinstance(found, type) and issubclass(found, Task)):
        raise TaskError(f"task.target={target} is {_described(found)}; allowed: a subclass of tasks.base.Task")
    check_class(target, found)
    return found


def _described(found: object) -> str:
    return f"the class {found.__name__}" if isinstance(found, type) else f"a {type(found).__name__}"


def check_config(config: TaskConfig, task_class: type[Task]) -> None:
    """Every setting that can be judged before anything is loaded, against what the class says that it reads."""
    bounds(config.rows)
    _check_integer("limit", config.limit, least=1)
    _check_integer("shots", config.shots, least=0)
    if not config.source:
        raise TaskError("task.source is empty, allowed: auto, embedded, hub or a path to a file")
    most = task_class.most_shots
    if most is not None and (config.shots or 0) > most:
        examples = f"{most} fixed examples" if most else "no examples"
        raise TaskError(
            f"task.shots={config.shots}: task={config.name} has {examples}; allowed: at most {most}, or null"
        )
    defaults = TaskConfig()
    for name, allowed in (
        ("shots_style", task_class.shots_styles),
        ("prompt_style", task_class.prompt_styles),
        ("scorer", task_class.scorers),
    ):
        _check_choice(name, getattr(config, name), getattr(defaults, name), allowed, config.name)


def _check_integer(name: str, value: object, least: int) -> None:
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or not least <= value < 2**63):
        raise TaskError(f"task.{name}={value!r} is not allowed: an integer >= {least}, or null for the default")


def _check_choice(name: str, value: Any, default: Any, choices: Sequence[str], task: str) -> None:
    """The default is always allowed; a task that lists no choices reads no other value."""
    if value == default or value in choices:
        return
    unset = "null" if default is None else default
    if choices:
        raise TaskError(f"task.{name}={value!r} is unknown, allowed: {', '.join(dict.fromkeys([*choices, unset]))}")
    raise TaskError(f"task.{name}={value!r} has no meaning for task={task}, which reads no {name}; allowed: {unset}")
