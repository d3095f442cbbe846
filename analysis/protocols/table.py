"""Published values of protocols beside the runs that were made with their settings."""

from __future__ import annotations

from typing import Any

from analysis.labels import model_of, source_of
from analysis.protocols.packs import pack
from analysis.study import Study, best
from analysis.tables.model import Head, Table
from analysis.tables.published import Row, number, rows
from analysis.text import plain, typeset
from lopa_bench.console.numbers import UNKNOWN, fixed, signed
from lopa_bench.records.runs import Run

FILE = "protocols"  # analysis/published/protocols.csv
QUANTITIES = {"score": ("score (%)", "accuracy", 100.0), "tpf": ("TPF", "tpf", 1.0), "tps": ("TPS", "tps", 1.0)}


def protocol_table(study: Study) -> Table:
    """Every published value of a protocol, with the run of its settings that has the most samples."""
    found = [(row, _run(study, row)) for row in rows(FILE)]
    heads = [
        *(Head(text, is_words=True) for text in ("protocol", "model", "task")),
        *(Head(title, ("measured", "published", "difference")) for title, _, _ in QUANTITIES.values()),
        Head("n"),
        *(Head(text, is_words=True) for text in ("run", "source of the published value")),
    ]
    keys = ["protocol", "model", "task"]
    keys += [name + part for name in QUANTITIES for part in ("", "_low", "_high", "_published", "_difference")]
    return Table(
        name="protocols",
        caption="Published protocols: published and measured, where all settings of a run are those of the protocol",
        heads=heads,
        rows=[_cells(study, row, run) for row, run in found],
        keys=[*keys, "n", "run", "problems", "source", "note"],
        records=[_record(study, row, run) for row, run in found],
        notes=(
            "Published values are their publications' own, by their scorers and counting rules; docs/protocols.md says "
            "what differs. Measured TPF and TPS are counted by the preset effective. A row without a protocol is of a "
            "way to decode that is not offered here.",
        ),
        labels=3,
        kinds=["none" if run is None else "both" for _, run in found],
    )


def _run(study: Study, row: Row) -> Run | None:
    if not row["protocol"]:
        return None
    wanted = pack(row["protocol"])
    return best(run for run in study.runs if wanted.fits(run))


def _cells(study: Study, row: Row, run: Run | None) -> list[str]:
    cells = [row["protocol"] or typeset(UNKNOWN), row["model"], row["task"]]
    for name, (_, quantity, factor) in QUANTITIES.items():
        said, measured = number(row, name), None
        digits = 1 if name != "tpf" else 2
        if run is not None:
            found = study.value(run, quantity, None if name == "score" else "effective").scaled(factor)
            measured = found.value
            cells.append(typeset(fixed(found.value, digits, found.interval)))
        else:
            cells.append("no run")
        apart = None if said is None or measured is None else measured - said
        cells += [row[name] or typeset(UNKNOWN), typeset(signed(apart, digits))]
    n = typeset(UNKNOWN) if run is None else str(study.numbers(run).n)
    return [*cells, n, "" if run is None else plain(run.id), row["source"]]


def _record(study: Study, row: Row, run: Run | None) -> list[Any]:
    record: list[Any] = [row["protocol"] or None, row["model"] if run is None else model_of(run), row["task"]]
    for name, (_, quantity, factor) in QUANTITIES.items():
        said = number(row, name)
        if run is None:
            record += [None, None, None, said, None]
            continue
        found = study.value(run, quantity, None if name == "score" else "effective").scaled(factor)
        low, high = found.interval or (None, None)
        apart = None if said is None or found.value is None else found.value - said
        record += [found.value, low, high, said, apart]
    n = None if run is None else study.numbers(run).n
    problems = None if run is None else source_of(run)
    return [*record, n, None if run is None else run.id, problems, row["source"], row["note"] or None]
