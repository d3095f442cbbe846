"""What every part of a task speaks of: a problem, its prompt, its source, a verdict. Plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


class TaskError(ValueError):
    """A wrong setting or wrong data; the message names the value found and the ones allowed."""


@dataclass
class TaskConfig:
    """Settings of a task (one YAML each in conf/task).

    `target`: "module:Class" of a task that is not part of this package (docs/tasks.md).
    `source`: "embedded" (small sets of this project), "hub" (through `datasets`), a path to a file in the original
    format, or "auto" (embedded for the embedded models, else hub).
    `rows`: "FIRST-LAST" or "FIRST-", a split of the problems, counted from 1 in the order of the task; None takes all.
    `limit`: of these the first so many.
    `shots`: few-shot examples in the prompt; None takes the task's own number.
    `scorer`: one of the task's `scorers`; None takes its own, the first.
    `samples`: completions a problem, for pass@k. The metadata is that of decoders/allowed.py.
    """

    name: str = "gsm8k"
    target: str | None = None
    source: str = "auto"
    rows: str | None = None
    limit: int | None = field(default=None, metadata={"range": (1, 2**63 - 1)})
    shots: int | None = None
    shots_style: str = "keyed"
    prompt_style: str = "auto"
    revision: str | None = None
    scorer: str | None = None
    samples: int = field(default=1, metadata={"range": (1, 65536)})


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
