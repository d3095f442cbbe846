"""What a person and a program see at the end of a run or a sweep: tables, then one line of JSON (stdout)."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TextIO

from lopa_bench.console.numbers import plain
from lopa_bench.console.side_by_side import result_table
from lopa_bench.records.schema import to_json

if TYPE_CHECKING:
    from rich.console import Console, RenderableType


log = logging.getLogger(__name__)

WIDTH_WITHOUT_TERMINAL = 100


def report(run: Mapping[str, Any], aggregates: Mapping[str, Any], path: Any, stream: TextIO | None = None) -> None:
    """The end of a run on stdout: the table, then the JSON line, which is the last one."""
    stream = stream or sys.stdout
    show(console_on(stream), lambda: result_table(run, aggregates))
    print(json_line(run, aggregates, path), file=stream, flush=True)  # not rich: it would break the line


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


def json_line(run: Mapping[str, Any], aggregates: Mapping[str, Any], path: Any) -> str:
    """The run in one line of strict JSON, for programs."""
    return to_json(json_values(run, aggregates, path))


def json_values(run: Mapping[str, Any], aggregates: Mapping[str, Any], path: Any) -> dict[str, Any]:
    k = run.get("k")
    return {
        "run_id": run["run_id"],
        "status": run["status"],
        "task": run["task"],
        "source": run["source_name"],
        "model": run["model"],
        "model_is_toy": run["model_is_toy"],
        "decoder": run["decoder"],
        "k": int(k) if k is not None and k.isdecimal() else k,
        **{name: aggregates.get(name) for name in _JSON_NUMBERS},
        "path": str(path),
    }


_JSON_NUMBERS = (
    "preset", "n", "errors", "accuracy", "accuracy_ci95", "pass_at", "tpf", "tpf_ci95", "tpf_row",
    "tps", "tps_ci95", "latency_s", "forwards", "rows",
)  # fmt: skip
