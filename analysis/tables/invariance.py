"""One setting, computed in several ways: how many samples came out otherwise, and which."""

from __future__ import annotations

from collections.abc import Sequence

from analysis.tables.model import Head, Table
from lopa_bench.console.numbers import UNKNOWN, percent
from lopa_bench.metrics.invariance import AXES, Beside, Change, Invariance, axes_of, invariance, same_settings
from lopa_bench.records.runs import Run

VERDICTS = {True: "right", False: "wrong", None: "not judged"}


def tables(runs: Sequence[Run]) -> list[Table]:
    """A table of the runs and one of the samples that changed, over all settings of which there are two or more."""
    found = [invariance(group) for group in same_settings(runs)]
    return [_of_runs(found), _of_samples(found)]


def _of_runs(found: Sequence[Invariance]) -> Table:
    rows, records, notes = [], [], []
    for one in found:
        reference = one.reference
        own = axes_of(reference)
        rows.append([_setting(reference), one.name, str(reference.n), *["-"] * 3, _accuracy(reference), reference.id])
        records.append([reference.id, reference.id, *own.values(), reference.n, 0, 0, 0, _exact(reference)])
        for beside in one.others:
            counts = (beside.samples, beside.ids, beside.verdicts, beside.ways)
            rows.append(["", beside.name, *map(str, counts), _accuracy(beside.run), beside.run.id])
            records.append([beside.run.id, reference.id, *axes_of(beside.run).values(), *counts, _exact(beside.run)])
        if one.absent:
            notes.append(f"Not run for {_setting(reference)}: {one.not_run}.")
    return Table(
        name="invariance",
        caption="One setting, computed in several ways",
        heads=[
            Head("setting", is_words=True), Head("computed with", is_words=True), Head("samples"),
            Head("samples that differ", ("in ids", "in verdicts", "in order alone")), Head("accuracy"),
            Head("run", is_words=True),
        ],
        rows=rows,
        keys=["run", "reference", *AXES, "samples", "other_ids", "other_verdicts", "other_order", "accuracy"],
        records=records,
        notes=[
            "The first line of a setting is its reference, the others stand beside it: samples that both have.",
            "In order alone: the same ids, filled in another order or number of calls.",
            *notes,
        ],
        labels=2,
    )  # fmt: skip


def _of_samples(found: Sequence[Invariance]) -> Table:
    changed = [(one, beside, change) for one in found for beside in one.others for change in beside.changes]
    return Table(
        name="invariance_samples",
        caption="Samples that came out otherwise",
        heads=[
            Head("computed with", is_words=True), Head("sample", is_words=True), Head("token"), Head("call"),
            Head("verdict", is_words=True), Head("run", is_words=True),
        ],
        rows=[_cells(beside, change) for _, beside, change in changed],
        keys=["run", "reference", "problem_id", "sample_index", "token", "call", "correct_reference", "correct"],
        records=[
            [beside.run.id, one.reference.id, *change.key, change.token, change.step, change.before, change.after]
            for one, beside, change in changed
        ],
        notes=[
            "Token: the first generated one that differs, from 0; - where the ids are the same. Call: the first that "
            "filled other positions or tokens, from 0; - where no calls are kept."
        ],
        labels=2,
    )  # fmt: skip


def _cells(beside: Beside, change: Change) -> list[str]:
    places = [UNKNOWN if place is None else str(place) for place in (change.token, change.step)]
    verdict = VERDICTS[change.after]
    if change.in_verdict:
        verdict = f"{verdict} (was {VERDICTS[change.before]})"
    problem, index = change.key
    return [beside.name, problem + (f" #{index}" if index else ""), *places, verdict, beside.run.id]


def _setting(run: Run) -> str:
    k = f" k={run.k_as_set}" if run.lookahead else ""
    return f"{run.task} {run.model} {run.decoder}{f' on {run.wraps}' if run.wraps else ''}{k}"


def _exact(run: Run) -> float | None:
    return run.aggregates.get("accuracy")


def _accuracy(run: Run) -> str:
    return percent(_exact(run))
