"""What the article has no table of: comparisons of runs, areas under curves, and the runs themselves."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from analysis.comparisons import MANY_TESTS, Comparison
from analysis.labels import base_name, decoding, facts, model_of, task_of, varied
from analysis.sides import bases, curves, tuned_words
from analysis.study import Study
from analysis.tables.aup import Aup, aup_d3llm, aup_mbd
from analysis.tables.model import Head, Table
from analysis.text import plain, typeset
from lopa_bench.console.numbers import fixed, p_value, signed
from lopa_bench.records.runs import Run

Record = Mapping[str, Any]  # every digit, by key


def _listed(
    name: str,
    caption: str,
    headers: Iterable[str],
    rows: Sequence[Sequence[str]],
    keys: Sequence[str],
    records: Iterable[Record],
    words: Collection[str],
    notes: Sequence[str] = (),
) -> Table:
    """`words`: headers of columns that hold no numbers."""
    heads = [Head(text, is_words=text in words) for text in headers]
    values = [[record[key] for key in keys] for record in records]
    return Table(name=name, caption=caption, heads=heads, rows=rows, keys=keys, records=values, notes=notes)


def comparison_table(comparisons: Sequence[Comparison]) -> Table:
    headers = (
        "decoding", "settings", "against", "its settings", "problems", "pairs", "score difference (points)",
        "only one right (a / b)", "McNemar p", "adjusted p", "TPF ratio", "TPS ratio", "run",
    )  # fmt: skip
    columns = (
        "decoding", "settings", "against", "its_settings", "model", "task", "pairs", "judged_pairs",
        "score_difference_points", "only_a_right", "only_b_right", "mcnemar_p", "adjusted_p", "tpf_ratio",
        "tpf_ratio_low", "tpf_ratio_high", "tps_ratio", "tps_ratio_low", "tps_ratio_high", "run", "baseline_run",
    )  # fmt: skip
    runs = [run for one in comparisons for run in (one.a, one.b)]
    note = (
        "Differences are run − baseline, ratios run / baseline; a is the baseline. Counting preset effective. "
        "Settings: those in which runs of a decoder differ."
    )
    return _listed(
        "comparisons",
        "Every run against its baseline, pair by pair",
        headers,
        [_comparison_row(one, runs) for one in comparisons],
        columns,
        [_comparison_record(one, runs) for one in comparisons],
        ("decoding", "settings", "against", "its settings", "problems", "run"),
        (note, MANY_TESTS),
    )


def _comparison_row(one: Comparison, runs: Sequence[Run]) -> tuple[str, ...]:
    numbers, difference = one.numbers, one.numbers.accuracy.difference.value
    tpf, tps = (numbers.quantities[name].ratio for name in ("tpf", "tps"))
    return (
        decoding(one.b),
        varied(one.b, runs),
        decoding(one.a),
        varied(one.a, runs),
        f"{model_of(one.b)}, {task_of(one.b)}",
        str(numbers.pairs),
        typeset(signed(None if difference is None else 100 * difference)),
        f"{numbers.only_a_correct} / {numbers.only_b_correct}",
        typeset(p_value(numbers.mcnemar_p)),
        typeset(p_value(numbers.adjusted_p)),
        typeset(fixed(tpf.value, 2, tpf.interval)),
        typeset(fixed(tps.value, 2, tps.interval)),
        plain(one.b.id),
    )


def _comparison_record(one: Comparison, runs: Sequence[Run]) -> Record:
    numbers, difference = one.numbers, one.numbers.accuracy.difference.value
    cells: dict[str, Any] = {
        "decoding": decoding(one.b), "settings": varied(one.b, runs), "against": decoding(one.a),
        "its_settings": varied(one.a, runs), "model": model_of(one.b), "task": task_of(one.b),
        "pairs": numbers.pairs, "judged_pairs": numbers.judged_pairs,
        "score_difference_points": None if difference is None else 100 * difference,
        "only_a_right": numbers.only_a_correct, "only_b_right": numbers.only_b_correct,
        "mcnemar_p": numbers.mcnemar_p, "adjusted_p": numbers.adjusted_p, "run": one.b.id, "baseline_run": one.a.id,
    }  # fmt: skip
    for name in ("tpf", "tps"):
        ratio = numbers.quantities[name].ratio
        low, high = ratio.interval or (None, None)
        cells |= {f"{name}_ratio": ratio.value, f"{name}_ratio_low": low, f"{name}_ratio_high": high}
    return cells


@dataclass(frozen=True)
class Curve:
    """A decoder along a sweep: `beside` are the runs of all curves over the same settings, itself included."""

    name: str
    over: str
    runs: Sequence[Run]
    beside: Sequence[Run]


def aup_curves(study: Study) -> list[Curve]:
    """Sweeps over k, and sweeps over the tuned settings: of these, on settings that all curves of a decoder share."""
    found = []
    for series in study.k_series():
        ks = f"k = {series[0].k} to {series[-1].k}"
        found.append(Curve(_swept_name(series[0]), f"{ks}; no other decoder has a k", series, series))
    for group in study.contexts():
        for base in bases(group):
            offered = curves(group, base)
            beside = [run for runs in offered for run in runs]
            for runs in offered:
                names = tuned_names(runs)
                alone = "; no other decoder was tuned" if len(offered) == 1 else ", the same for all of this decoder"
                found.append(Curve(decoding(runs[0]), f"{len(runs)} settings of {names}{alone}", runs, beside))
    return [curve for curve in found if len(curve.runs) > 1]


def tuned_names(runs: Sequence[Run]) -> str:
    """The tuned settings in which runs differ."""
    words = [part.rpartition(" ")[0] for run in runs for part in tuned_words(run, runs).split(", ")]
    return ", ".join(dict.fromkeys(words))


def _swept_name(run: Run) -> str:
    return f"LoPA on {base_name(run.base)}" if run.decoder == "lopa" else decoding(run)


def aup_table(study: Study) -> Table:
    """AUP of each decoder along its own sweep, weighted by the best accuracy of all its rivals."""
    headers = (
        "decoder", "problems", "n", "swept over", "version", "AUP", "best accuracy (%)", "points (TPF, score %)"
    )  # fmt: skip
    columns = ("decoder", "model", "task", "n", "swept_over", "version", "aup", "best_accuracy_percent", "points")
    found = [(curve, n, one) for curve in aup_curves(study) for n, one in _aups(study, curve)]
    values = [
        {"decoder": curve.name, "model": model_of(curve.runs[0]), "task": task_of(curve.runs[0]), "n": n,
         "swept_over": curve.over, "version": one.version, "aup": one.value, "best_accuracy_percent": one.best,
         "points": len(one.points)}
        for curve, n, one in found
    ]  # fmt: skip
    notes = (
        "d3llm: points over 5 accuracy points below the first are dropped, weight min(exp(−3 (1 − acc/best)), 1); "
        "mbd: plain trapezoid. The two are on different scales. Two decoders compare only over the same settings: rows "
        "of one decoder that are swept over the same ones.",
    )
    words = ("decoder", "problems", "swept over", "version", "points (TPF, score %)")
    rows = [_aup_row(*each) for each in found]
    title = "Accuracy under parallelism (AUP), both definitions"
    return _listed("aup", title, headers, rows, columns, values, words, notes)


def aup_points_table(study: Study) -> Table:
    """The points behind each AUP, one a line."""
    columns = ("decoder", "model", "task", "swept_over", "version", "tpf", "score_percent")
    values = [
        {"decoder": curve.name, "model": model_of(curve.runs[0]), "task": task_of(curve.runs[0]),
         "swept_over": curve.over, "version": one.version, "tpf": tpf, "score_percent": score}
        for curve in aup_curves(study) for _, one in _aups(study, curve) for tpf, score in one.points
    ]  # fmt: skip
    rows = [tuple(fixed(cell) if isinstance(cell, float) else str(cell) for cell in line.values()) for line in values]
    return _listed("aup_points", "The points behind each AUP", columns, rows, columns, values, columns[:5])


def _aups(study: Study, curve: Curve) -> list[tuple[int, Aup]]:
    """n, and both areas; none where fewer than two points are known."""

    def point(run: Run, among: Sequence[Run]) -> tuple[float | None, float | None]:
        score = study.value(run, "accuracy", among=among).scaled(100)
        return study.value(run, "tpf", "effective", among).value, score.value

    points = [point(run, curve.beside) for run in curve.runs]
    known = [(tpf, score) for tpf, score in points if tpf and score is not None]
    rivals = next((group for group in study.contexts() if curve.runs[0] in group), list(curve.beside))
    best = max((score or 0.0 for _, score in (point(run, rivals) for run in rivals)), default=0.0)
    if len(known) < 2 or not best:
        return []
    n = study.numbers(curve.runs[0], curve.beside).decoded
    return [(n, aup_d3llm(known, best)), (n, aup_mbd(known))]


def _aup_row(curve: Curve, n: int, one: Aup) -> tuple[str, ...]:
    points = " ".join(f"({fixed(tpf)}, {fixed(score, 1)})" for tpf, score in one.points)
    problems = f"{model_of(curve.runs[0])}, {task_of(curve.runs[0])}"
    return (
        curve.name,
        problems,
        str(n),
        curve.over,
        one.version,
        fixed(one.value, 1),
        typeset(fixed(one.best, 1)),
        points,
    )


def run_table(study: Study) -> Table:
    """Every run that was found; those that are left out say why."""
    found = [(run, "used", study.numbers(run).n) for run in study.runs]
    used = {folder for run in study.runs for folder in run.folders}
    found += [(run, f"left out: {_reason(run)}", run.n) for run in study.all_runs if run.folder not in used]
    rows, runs = [], [run for run, _, _ in found]
    for run, status, n in found:
        model, how, source, count, where = facts(run, n)
        rows.append((plain(run.id), status, task_of(run), model, how, varied(run, runs), source, count, where))
    headers = ("run", "status", "task", "model", "decoding", "settings", "problems", "n", "where")
    values = [dict(zip(headers, row)) | {"n": n} for row, (_, _, n) in zip(rows, found)]
    words = tuple(name for name in headers if name != "n")
    return _listed("runs", "Every run that was found", headers, rows, headers, values, words)


def _reason(run: Run) -> str:
    if run.status != "finished":
        return run.status
    return run.damage or (f"shard {run.shard}, others are missing" if run.shard else "a copy of the run with its id")
