"""The runs of a sweep against one of them, problem by problem: is it faster, and is it worse?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lopa_bench.metrics.comparable import Counted, stand
from lopa_bench.metrics.statistics import adjusted

if TYPE_CHECKING:
    from lopa_bench.metrics.varied import Run

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
    from lopa_bench.metrics.aggregate import compare
    from lopa_bench.records.reading import read_samples

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
