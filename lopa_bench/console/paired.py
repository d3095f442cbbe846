"""The runs of a sweep against one of them, for the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lopa_bench.console.numbers import UNKNOWN, over_interval, p_value, plain, points, times
from lopa_bench.metrics.paired import compare_all
from lopa_bench.metrics.varied import Measured

if TYPE_CHECKING:
    from rich.console import Group


def paired_table(runs: Sequence[Measured]) -> Group | None:
    """What `compare_all` found, for the terminal; None if there is nothing to compare."""
    from rich.console import Group
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    found = compare_all(runs)
    if not found:
        return None
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="underline")
    for name in ("decoder", "model"):
        table.add_column(name, overflow="fold")
    for name in ("pairs", "accuracy", "p", "adjusted p", "TPF", "TPS", "latency"):
        table.add_column(name, justify="right", no_wrap=True)
    for (run, _), numbers in found:
        table.add_row(*map(Text, _cells(run, numbers)))
    first = plain(f"{_name(runs[0][0])} ({runs[0][0]['model']})")
    heading = f"paired with {first}: same problems, difference or ratio to it"
    note = (
        "p: McNemar's exact test of equal accuracy; adjusted for the number of rows (Benjamini-Hochberg). "
        "Ranges are 95 % intervals of paired bootstraps."
    )
    return Group(*(Padding(part, (1, 0, 0, 0)) for part in (Text(heading, style="bold"), table, Text(note))))


def _cells(run: Mapping[str, Any], numbers: Mapping[str, Any]) -> list[str]:
    return [
        plain(_name(run)),
        plain(run["model"]),
        str(numbers["pairs"]),
        points(numbers["accuracy_difference"]),
        p_value(numbers["mcnemar_p"]),
        p_value(numbers["adjusted_p"]),
        _times(numbers, "tpf"),
        _times(numbers, "tps"),
        times(numbers["latency_s_ratio"]),
    ]


def _name(run: Mapping[str, Any]) -> str:
    parts = [run["decoder"]]
    if run.get("base"):
        parts.append(f"k={run['k']} on {run['base']}")
    if run["device"] == "server":
        parts.append(f"by {run['backend']} server")
    return " ".join(parts)


def _times(numbers: Mapping[str, Any], name: str) -> str:
    text = over_interval(numbers[f"{name}_ratio"], numbers[f"{name}_ratio_ci95"])
    return text if text == UNKNOWN else f"×{text}"
