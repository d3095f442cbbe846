"""What a person and a program see at the end of a run or a sweep (stdout): tables, then one line, which is JSON unless
it goes to a terminal.
"""

from __future__ import annotations

import logging
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from lopa_bench.console.numbers import plain
from lopa_bench.console.side_by_side import side_by_side
from lopa_bench.metrics.varied import Measured
from lopa_bench.records.schema import to_json

if TYPE_CHECKING:
    from rich.console import Console, RenderableType


log = logging.getLogger(__name__)

WIDTH_WITHOUT_TERMINAL = 100


def report(one: Measured, stream: TextIO | None = None, json: str = "auto", out: str = "outputs") -> None:
    """The end of a run on stdout: the table, then the last line."""
    stream = stream or sys.stdout
    show(console_on(stream), lambda: side_by_side([one]))
    last_line(stream, json, lambda: to_json(json_values(one)), [one.run.folder], out)


def last_line(stream: TextIO, json: str, line: Callable[[], str], kept: Sequence[Any], out: str) -> None:
    """JSON if `run.json` asks for it or a program reads; else where it is `kept`, and what to do next with all that
    `out` holds. Not by rich, which would break the line.
    """
    if json == "always" or (json == "auto" and not stream.isatty()):
        print(line(), file=stream, flush=True)
        return
    where = from_here(kept[0]) if len(kept) == 1 else f"{len(kept)} folders of {from_here(out)}"
    folder = shlex.quote(from_here(Path(out).expanduser()))
    print(plain(f"kept in {where}; next: python -m analysis report {folder}"), file=stream, flush=True)


def from_here(path: Any) -> str:
    """The path from the working folder, if it is below."""
    relative = os.path.relpath(path)
    return str(path) if relative.startswith("..") else relative


def show(console: Console, make: Callable[[], RenderableType]) -> None:
    """A table, which is for people: one that cannot be drawn costs a warning, never the JSON line or a verdict."""
    try:
        console.print(make())
    except Exception as error:
        log.warning("a table cannot be shown (%s: %s)", type(error).__name__, plain(error))


def console_on(stream: TextIO) -> Console:
    from rich.console import Console

    console = Console(file=stream, markup=False, emoji=False, highlight=False)  # what users name is text
    if not console.is_terminal:
        console.width = WIDTH_WITHOUT_TERMINAL
    return console


def json_values(one: Measured) -> dict[str, Any]:
    """The run for programs, in one line."""
    run = one.run
    return {
        "run_id": run.id,
        "status": run.status,
        "task": run.task,
        "source": run.source_name,
        "model": run.model,
        "model_is_toy": run.toy,
        "decoder": run.decoder,
        "k": run.k_as_set if run.k is None or run.k_as_set is None else run.k,
        **{name: one.numbers.get(name) for name in _JSON_NUMBERS},
        **{name: one.numbers[name] for name in _OF_EDITS if one.numbers.get("edits") is not None},
        "path": str(run.folder),
    }


_JSON_NUMBERS = (
    "preset", "n", "errors", "accuracy", "accuracy_ci95", "pass_at", "tpf", "tpf_ci95", "tpf_row",
    "tps", "tps_ci95", "latency_s", "forwards", "rows",
)  # fmt: skip
_OF_EDITS = ("edits", "edits_per_token", "tokens_per_processed")
