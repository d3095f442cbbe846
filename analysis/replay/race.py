"""What stands beside the lanes of a race and below it: numbers of the whole runs, and what they were run on."""

from __future__ import annotations

from collections.abc import Sequence

from analysis.labels import model_of, task_of
from analysis.text import plain
from lopa_bench.console.numbers import number, percent
from lopa_bench.records.runs import Run


def about(run: Run) -> str:
    """The whole run in a few words: one problem is one, and says little."""
    facts = run.aggregates
    words = [f"{percent(facts.get('accuracy'))} right", f"TPF {number(facts.get('tpf'))}", f"n = {run.n}"]
    return f"({model_of(run)}: {', '.join(words)})"


def caption(runs: Sequence[Run], sample: str) -> str:
    machines = sorted({name for run in runs for name in run.aggregates.get("machines") or ()})
    where = plain(", ".join(machines)) or "a machine that is not recorded"
    places = sorted({f"{run.device} {run.dtype}" for run in runs})
    return (
        f"Problem {plain(sample)} of {task_of(runs[0])}, one problem; a token appears when its call was over, by the "
        f"recorded time of each call. {where}; {', '.join(places)}."
    )
