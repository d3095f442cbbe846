"""What a task is: problems from a named source, prompts, stop strings, and a scorer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tasks.sources import Split


class TaskError(ValueError):
    """A wrong setting or wrong data; the message names the value found and the ones allowed."""


@dataclass
class TaskConfig:
    """Settings of a task (one YAML each in conf/task).

    `target`: "module:Class" of a task that is not part of this package (docs/tasks.md).
    `source`: "embedded" (small sets of this project), "hub" (through `datasets`), a path to a file in the original
    format, or "auto" (embedded for the embedded models, else hub).
    `shots`: few-shot examples in the prompt; None takes the task's own number.
    `scorer`: one of the task's `scorers`; None takes its own, the first.
    `samples`: completions a problem, for pass@k.
    """

    name: str = "gsm8k"
    target: str | None = None
    source: str = "auto"
    limit: int | None = None
    shots: int | None = None
    shots_style: str = "keyed"
    prompt_style: str = "auto"
    revision: str | None = None
    scorer: str | None = None
    samples: int = 1


@dataclass(frozen=True)
class Problem:
    """One row of a benchmark. `id` is stable and unique inside its source; `row` is the row as it was loaded."""

    id: str
    question: str
    gold: str
    row: Mapping[str, Any] = field(repr=False)


@dataclass(frozen=True)
class Source:
    """Where the problems came from, as every record of a run must show it."""

    kind: str  # embedded, hub, file
    name: str  # what a table may call it, e.g. "embedded word problems (GSM8K format)" or "openai/gsm8k main/test"
    sha256: str  # of the file's bytes; for the Hub, of the rows as canonical JSON lines
    rows: int  # in the whole source, before any limit
    revision: str | None = None
    path: str | None = None  # of a file

    @property
    def where(self) -> str:
        """What a message about a row calls it."""
        return self.path or self.name


@dataclass(frozen=True)
class Prompt:
    """A prompt as chat messages (the model's template is applied to them) or, if there are none, as plain text."""

    text: str
    messages: tuple[Mapping[str, str], ...] | None = None


@dataclass(frozen=True)
class Score:
    """The verdict on one completion.

    `correct` is None when the completion could not be judged (then `status` says why); a completion that was judged
    and is wrong has False. `details` holds the values of other scorers, e.g. {"strict": "18", "flexible": "18"}.
    """

    correct: bool | None
    status: str
    extracted: str | None = None
    details: Mapping[str, Any] = field(default_factory=dict)


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

    def __init__(self, config: TaskConfig, embedded_default: bool) -> None:
        """`embedded_default` says what source=auto means for the model. Raises TaskError."""
        from tasks.problems import unique_problems  # it needs the types above

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
        self.in_source: Sequence[Problem] = self.arrange(problems)  # all of them, in the order that a limit follows
        self.problems = self.in_source[: config.limit]

    def load(self) -> tuple[list[dict[str, Any]], Source]:
        """The rows, checked, and where they came from."""
        from tasks.sources import load_split

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
        """The order of which a limit takes the first ones."""
        return problems

    @abstractmethod
    def prompt(self, problem: Problem) -> Prompt: ...

    @abstractmethod
    def score(self, problem: Problem, completion: str) -> Score:
        """Judges a completion that was already cut at its end token and at the first stop string."""

    def score_all(self, pairs: Sequence[tuple[Problem, str]]) -> list[Score]:
        """Judges many; tasks whose scorer is slow override this with a parallel one."""
        return [self.score(problem, completion) for problem, completion in pairs]
