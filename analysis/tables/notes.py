"""What a reader must know of a table before comparing its numbers."""

from __future__ import annotations

from collections.abc import Sequence

from analysis.study import SERVED
from analysis.tables import published
from lopa_bench.metrics.presets import PRESETS
from lopa_bench.records.runs import Run

INTERVALS = (
    "Measured values carry 95 % intervals in brackets: Wilson's for scores, a bootstrap over problems for TPF, TPS and "
    "latency. The fastest sample and the mean of the ten fastest are extremes and have none; nor has the TPS of a run "
    "whose samples were decoded together, which is by the wall clock of the whole run."
)
DIFFERENCE = "Published values are the article's own; the difference is measured − published."


def notes_of(name: str, runs: Sequence[Run], preset: str | None, stands_apart: bool = False) -> list[str]:
    notes = [DIFFERENCE]
    if preset:
        rule = PRESETS[preset]
        notes = [f"Counting preset {preset}: {rule.formula}.", INTERVALS, DIFFERENCE]
        if any(run.is_server and not run.is_imported for run in runs):
            notes.insert(1, f"Runs against a server: counting preset {SERVED}: {PRESETS[SERVED].formula}.")
    if any(run.toy for run in runs):
        notes.append("Rows marked (toy) are of a small embedded model: they show mechanics, not what a 7B model does.")
    if any(run.source_kind == "embedded" for run in runs):
        notes.append(
            "Embedded problems are this project's own synthetic ones in the format of the benchmark; "
            "their scores are not scores on the benchmark."
        )
    if preset and any(_stops_early(run) for run in runs):
        notes.append(
            "Runs marked † stop at the end token (decode_tail=false). The article's programs go on behind it and count "
            "that text, so their TPF and TPS are higher by construction."
        )
    if stands_apart:
        notes.append(
            "Rows marked ‡ are on other problems or another device, or otherwise asked, judged or batched, than the "
            "row of their task with the most samples: they compare with their published value, not with that row."
        )
    return notes + [f"Publication: {note}" for note in published.notes(name)]


def _stops_early(run: Run) -> bool:
    return not run.is_server and not run.is_autoregressive and not run.settings.get("decode_tail")


def mark(run: Run | None, preset: str | None) -> str:
    """The dagger of runs that the article's counting does not fit."""
    return "†" if run is not None and preset and preset.startswith("lopa") and _stops_early(run) else ""
