"""The runs of a sweep against one of them, for the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from lopa_bench.console.numbers import UNKNOWN, over_interval, p_value, plain, points, times
from lopa_bench.metrics.paired import PairedNumbers, compare_all
from lopa_bench.metrics.statistics import Estimate
from lopa_bench.metrics.varied import Measured
from lopa_bench.records.runs import Run

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
    for one, numbers in found:
        table.add_row(*map(Text, _cells(one.run, numbers)))
    first = plain(f"{_name(runs[0].run)} ({runs[0].run.model})")
    heading = f"paired with {first}: same problems, difference or ratio to it"
    note = (
        "p: McNemar's exact test of equal accuracy; adjusted for the number of rows (Benjamini-Hochberg). "
        "Ranges are 95 % intervals of paired bootstraps."
    )
    return Group(*(Padding(part, (1, 0, 0, 0)) for part in (Text(heading, style="bold"), table, Text(note))))


def _cells(run: Run, numbers: PairedNumbers) -> list[str]:
    return [
        plain(_name(run)),
        plain(run.model),
        str(numbers.pairs),
        points(numbers.accuracy.difference.value),
        p_value(numbers.mcnemar_p),
        p_value(numbers.adjusted_p),
        _times(numbers.quantities["tpf"].ratio),
        _times(numbers.quantities["tps"].ratio),
        times(numbers.quantities["latency_s"].ratio.value),
    ]


def _name(run: Run) -> str:
    parts = [run.decoder]
    if run.wraps:
        parts.append(f"k={run.k_as_set} on {run.wraps}")
    if run.device == "server":
        parts.append(f"by {run.backend} server")
    return " ".join(parts)


def _times(ratio: Estimate) -> str:
    text = over_interval(ratio.value, ratio.interval)
    return text if text == UNKNOWN else f"×{text}"
