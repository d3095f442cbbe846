"""What changed as one setting was computed in several ways, for the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from lopa_bench.console.numbers import UNKNOWN, percent, plain
from lopa_bench.metrics.invariance import Beside, Change, invariance, same_settings
from lopa_bench.metrics.varied import Measured

if TYPE_CHECKING:
    from rich.console import Group

SHOWN = 3  # samples of a run that are named; the analysis names all
LEGEND = (
    "other ids: samples with another text; other order: the same text, filled in another order or number of calls. "
    "Samples that both runs have are counted; python -m analysis invariance names all that change."
)


def invariance_table(runs: Sequence[Measured]) -> Group | None:
    """The table of a sweep whose runs differ in how they computed and in nothing else; None for any other sweep."""
    groups = same_settings(one.run for one in runs)
    if len(groups) != 1 or len(groups[0]) != len({one.run.id for one in runs}):
        return None
    from rich.console import Group
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    found = invariance(groups[0])
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="underline")
    table.add_column("beside it", no_wrap=True)
    for name in ("samples", "other ids", "other verdicts", "other order", "accuracy"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("for example", overflow="fold")
    for one in found.others:
        table.add_row(*map(Text, _cells(one)))
    heading = f"one setting, computed in several ways; the reference: {found.name}"
    notes = [LEGEND, *([f"not run: {found.not_run}"] if found.absent else [])]
    title = Text(plain(heading), style="bold")
    return Group(*(Padding(part, (1, 0, 0, 0)) for part in (title, table, Text("\n".join(notes)))))


def where(change: Change) -> str:
    """A sample, and where it first came out otherwise."""
    name = change.key[0] + (f" #{change.key[1]}" if change.key[1] else "")
    places = [f"token {change.token}"] if change.in_ids else []
    places += [] if change.step is None else [f"call {change.step}"]
    return f"{name} ({', '.join(places) or 'verdict'})"


def _cells(one: Beside) -> list[str]:
    first = sorted(one.changes, key=lambda change: (not change.in_verdict, not change.in_ids))[:SHOWN]
    more = [f"and {len(one.changes) - len(first)} more"] if len(one.changes) > len(first) else []
    numbers = map(str, (one.samples, one.ids, one.verdicts, one.ways))
    accuracy = percent(one.run.aggregates.get("accuracy"))
    return [plain(one.name), *numbers, accuracy, plain(", ".join([*map(where, first), *more])) or UNKNOWN]
