"""What a task is: problems from a named source, prompts, stop strings, and a scorer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tasks.sources.taken import taken_of
from tasks.types import Problem, Prompt, Score, Source, TaskConfig, TaskError

if TYPE_CHECKING:
    from tasks.sources.split import Split


class Task(ABC):
    """Problems, prompts and verdicts of one benchmark. Loading happens in the constructor; nothing here needs torch.

    A class says what it reads; a setting that it does not name is refused before anything is loaded:
    `split`: the rows, and where they can be had (or the class has a `load` of its own).
    `scorers`: names of its rules of judgement, its own first. `prompt_styles`: how the question can be put, "auto"
    beside them. `most_shots`: examples that a prompt can show, None for any number. `shots_styles`: how they are drawn.
    `id_field`: the field that ids come from. `libraries`: distributions whose version can change a verdict.
    """

    split: Split
    scorers: tuple[str, ...] = ()
    prompt_styles: tuple[str, ...] = ()
    shots_styles: tuple[str, ...] = ()
    most_shots: int | None = 0
    id_field: str | None = None
    libraries: tuple[str, ...] = ()

    name: str
    scorer: str  # named in every row, e.g. "lopa_bench"
    stop: tuple[str, ...] = ()
    source: Source
    problems: Sequence[Problem]
    taken: Sequence[Problem] | None = None  # `problems` as the constructor below took them

    def __init__(self, config: TaskConfig, embedded_default: bool) -> None:
        """`embedded_default` says what source=auto means for the model. Raises TaskError."""
        from tasks.sources.problems import unique_problems  # it needs the types above

        self.config, self.embedded_model = config, embedded_default
        self.name = config.name
        self.scorer = config.scorer or (self.scorers[0] if self.scorers else config.name)
        loaded, self.source = self.load()
        rows = list(loaded)
        self.prompt_style = self.auto_style() if config.prompt_style == "auto" else config.prompt_style
        self.shots = self.number_of_shots(config.shots)
        taken = [number for number, row in enumerate(rows) if self.takes(row)]
        problems = [self.problem(number, rows[number]) for number in taken]
        unique_problems(problems, self.source.where, [number + 1 for number in taken], self.id_field)
        self.in_source: Sequence[Problem] = self.arrange(problems)  # all of them, in the order of rows and limit
        self.problems = self.taken = taken_of(self.in_source, config)

    def load(self) -> tuple[list[dict[str, Any]], Source]:
        """The rows, checked, and where they came from."""
        from tasks.sources.load import load_split

        return load_split(self.split, self.config.source, self.config.revision, self.embedded_model)

    def auto_style(self) -> str:
        """What prompt_style=auto comes to. The source is known."""
        return next((style for style in self.prompt_styles if style != "auto"), "auto")

    def number_of_shots(self, asked: int | None) -> int:
        """The examples of a prompt; `asked` is None for the task's own number. The style and the source are known."""
        return asked or 0

    def takes(self, row: Mapping[str, Any]) -> bool:
        """Whether a row of the source is a problem."""
        return True

    def problem(self, number: int, row: dict[str, Any]) -> Problem:
        """The problem in a row; `number` counts the rows of the source from 0."""
        raise TaskError(f"{type(self).__name__} has no method `problem`, which makes a problem of a row")

    def arrange(self, problems: Sequence[Problem]) -> Sequence[Problem]:
        """The order in which `rows` count, and of which a limit takes the first ones."""
        return problems

    @abstractmethod
    def prompt(self, problem: Problem) -> Prompt: ...

    @abstractmethod
    def score(self, problem: Problem, completion: str) -> Score:
        """Judges a completion that was already cut at its end token and at the first stop string."""

    def score_all(self, pairs: Sequence[tuple[Problem, str]]) -> list[Score]:
        """Judges many; tasks whose scorer is slow override this with a parallel one."""
        return [self.score(problem, completion) for problem, completion in pairs]
