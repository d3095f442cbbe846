"""The runs of a sweep against one of them, problem by problem: is it faster, and is it worse?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lopa_bench.comparable import Counted, stand
from lopa_bench.statistics import adjusted
from lopa_bench.words import number, plain

if TYPE_CHECKING:
    from rich.console import Group

    from lopa_bench.console import Run

ASKED_FOR = ("model", "device", "batch")  # what a run and its baseline may differ in
COLUMNS = ("decoder", "k", "model", "backend")  # of a run row, by which a run can be named


def parse(text: str) -> tuple[str, str]:
    """From "column:value". Raises ValueError."""
    name, sign, value = text.partition(":")
    if name not in COLUMNS or not sign or not value:
        raise ValueError(f"against={text} is not allowed; allowed: NAME:VALUE with NAME one of {', '.join(COLUMNS)}")
    return name, value


def baseline_first(runs: Sequence[Run], against: str) -> tuple[list[Run], bool]:
    """The runs, the first one that `against` names in front, and whether there is one."""
    name, value = parse(against)
    chosen = next((run for run in runs if str(run[0].get(name)) == value), None)
    if chosen is None:
        return list(runs), False
    return [chosen, *(run for run in runs if run is not chosen)], True


def compare_all(runs: Sequence[Run]) -> list[tuple[Run, Mapping[str, Any]]]:
    """Each further run with its comparison to the first, p values adjusted for their number (Benjamini-Hochberg, as in
    the report). The first was asked for, so it may be another model elsewhere; runs of another task, other problems,
    prompts or scorers, or counted in another way, are left out.
    """
    from lopa_bench.metrics import compare
    from lopa_bench.reading import read_samples

    first, numbers = runs[0]
    samples = read_samples(_folders(first))
    rule = numbers["preset"]
    found = []
    for run in runs[1:]:
        others = read_samples(_folders(run[0]))
        counted = Counted(first, samples, rule), Counted(run[0], others, run[1].get("preset", rule))
        if stand(*counted, but=ASKED_FOR):
            found.append((run, compare(samples, others, rule, first["seed"])))
    return _with_adjusted_p([(run, numbers) for run, numbers in found if numbers["pairs"]])


def _folders(run: Mapping[str, Any]) -> list[Path]:
    """All shards of a union."""
    return [Path(folder) for folder in run.get("folders") or [run["folder"]]]


def _with_adjusted_p(found: list[tuple[Run, dict[str, Any]]]) -> list[tuple[Run, Mapping[str, Any]]]:
    tested = [numbers for _, numbers in found if numbers["mcnemar_p"] is not None]
    for numbers, p in zip(tested, adjusted([numbers["mcnemar_p"] for numbers in tested]), strict=True):
        numbers["adjusted_p"] = p
    return list(found)


def paired_table(runs: Sequence[Run]) -> Group | None:
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
    for (run, own), numbers in found:
        table.add_row(*map(Text, _cells(run, own, runs[0][1], numbers)))
    first = plain(f"{_name(runs[0][0])} ({runs[0][0]['model']})")
    heading = f"paired with {first}: same problems, difference or ratio to it"
    note = (
        "p: McNemar's exact test of equal accuracy; adjusted for the number of rows (Benjamini-Hochberg). "
        "Ranges are 95 % intervals of paired bootstraps."
    )
    return Group(*(Padding(part, (1, 0, 0, 0)) for part in (Text(heading, style="bold"), table, Text(note))))


def _cells(
    run: Mapping[str, Any], own: Mapping[str, Any], first: Mapping[str, Any], numbers: Mapping[str, Any]
) -> list[str]:
    accuracy = numbers["accuracy_difference"]
    latency, reference = own.get("latency_s"), first.get("latency_s")
    return [
        plain(_name(run)),
        plain(run["model"]),
        str(numbers["pairs"]),
        "-" if accuracy is None else f"{100 * accuracy:+.1f} pt",
        _p(numbers["mcnemar_p"]),
        _p(numbers.get("adjusted_p")),
        _times(numbers, "tpf"),
        _times(numbers, "tps"),
        "-" if latency is None or not reference else f"×{number(latency / reference)}",
    ]


def _name(run: Mapping[str, Any]) -> str:
    parts = [run["decoder"]]
    if run.get("base"):
        parts.append(f"k={run['k']} on {run['base']}")
    if run["device"] == "server":
        parts.append(f"by {run['backend']} server")
    return " ".join(parts)


def _times(numbers: Mapping[str, Any], name: str) -> str:
    value, interval = numbers[f"{name}_ratio"], numbers[f"{name}_ratio_ci95"]
    if value is None:
        return "-"
    return f"×{number(value)}" + (f"\n{number(interval[0])}–{number(interval[1])}" if interval else "")


def _p(value: float | None) -> str:
    return "-" if value is None else "< 0.001" if value < 0.001 else f"{value:.3f}"
