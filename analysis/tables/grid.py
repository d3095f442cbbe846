"""Tables without published columns: a head and rows of text, as CSV, Markdown and HTML."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from analysis.aup import Aup, aup_d3llm, aup_mbd
from analysis.comparisons import MANY_TESTS, Comparison, p_text
from analysis.labels import base_name, decoding, facts, model_of, number, task_of, unusual
from analysis.runs import Run
from analysis.study import Study


@dataclass(frozen=True)
class Grid:
    """`words` are the headers of columns that hold no numbers."""

    name: str
    title: str
    headers: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    notes: Sequence[str] = ()
    words: tuple[str, ...] = ()

    def csv(self) -> str:
        stream = io.StringIO()
        csv.writer(stream, lineterminator="\n").writerows([self.headers, *self.rows])
        return stream.getvalue()

    def markdown(self) -> str:
        lines = [self.headers, ("---",) * len(self.headers), *self.rows]
        body = ["| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines]
        return "\n".join([f"### {self.title}", "", *body, "", *(f"- {note}" for note in self.notes), ""])

    def html(self) -> str:
        kinds = [' class="words"' if name in self.words else "" for name in self.headers]
        head = "".join(f'<th scope="col"{kind}>{escape(text)}</th>' for kind, text in zip(kinds, self.headers))
        body = ""
        for row in self.rows:
            cells = "".join(f"<td{kind}>{escape(text)}</td>" for kind, text in zip(kinds[1:], row[1:]))
            body += f'<tr><th scope="row">{escape(row[0])}</th>{cells}</tr>'
        title = escape(self.title, quote=True)
        notes = "".join(f"<li>{escape(note)}</li>" for note in self.notes)
        return (
            f'<div class="scroll" tabindex="0" role="region" aria-label="{title}"><table><caption>{title}</caption>'
            f'<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div><ul class="notes">{notes}</ul>'
        )


def comparison_grid(comparisons: Sequence[Comparison]) -> Grid:
    headers = (
        "decoding", "against", "problems", "pairs", "score difference (points)", "only one right (a / b)", "McNemar p",
        "adjusted p", "TPF ratio", "TPS ratio", "run",
    )  # fmt: skip
    runs = [one.b for one in comparisons]
    rows = [_comparison_row(one, unusual(one.b, runs)) for one in comparisons]
    note = (
        "Differences are run − baseline, ratios run / baseline; a is the baseline. Counting preset effective. "
        "In brackets: settings that most runs of the decoder have otherwise."
    )
    title, words = "Every run against its baseline, pair by pair", ("decoding", "against", "problems", "run")
    return Grid("comparisons", title, headers, rows, (note, MANY_TESTS), words)


def _comparison_row(one: Comparison, unusual_settings: str) -> tuple[str, ...]:
    numbers = one.numbers
    difference = numbers["accuracy_difference"]
    return (
        _settings(one.b) + unusual_settings,
        decoding(one.a),
        f"{model_of(one.b)}, {task_of(one.b)}",
        str(numbers["pairs"]),
        "–" if difference is None else f"{100 * difference:+.1f}".replace("-", "−"),
        f"{numbers['only_a_correct']} / {numbers['only_b_correct']}",
        p_text(numbers["mcnemar_p"]),
        p_text(one.adjusted_p),
        _with_range(numbers["tpf_ratio"], numbers["tpf_ratio_ci95"]),
        _with_range(numbers["tps_ratio"], numbers["tps_ratio_ci95"]),
        one.b.id,
    )


def _settings(run: Run) -> str:
    tau = run.settings.get("tau_conf")
    return decoding(run) + (f", tau_conf {tau:g}" if isinstance(tau, float) else "")


def _with_range(value: float | None, interval: tuple[float, float] | None) -> str:
    return number(value) + ("" if interval is None else f" [{interval[0]:.2f}, {interval[1]:.2f}]")


def aup_grid(study: Study) -> Grid:
    """AUP of each decoder along its own sweep, weighted by the best accuracy of all its rivals."""
    rows = []
    for series in aup_series(study):
        points = [(x, y) for run in series if (x := _tpf(study, run)) and (y := _score(study, run)) is not None]
        if len(points) < 2:
            continue
        rivals = [run for run in study.runs if (run.model, run.task) == (series[0].model, series[0].task)]
        best = max(_score(study, run) or 0.0 for run in rivals)
        name = f"LoPA on {base_name(series[0].base)}" if series[0].row["decoder"] == "lopa" else decoding(series[0])
        rows += [_aup_row(series[0], name, one) for one in (aup_d3llm(points, best), aup_mbd(points)) if best]
    headers = ("decoder", "problems", "version", "AUP", "best accuracy (%)", "points (TPF, score %)")
    notes = (
        "d3llm: points over 5 accuracy points below the first are dropped, weight min(exp(−3 (1 − acc/best)), 1); "
        "mbd: plain trapezoid. The two are on different scales, and sweeps over other points have other areas.",
    )
    words = ("decoder", "problems", "version", "points (TPF, score %)")
    return Grid("aup", "Accuracy under parallelism (AUP), both definitions", headers, rows, notes, words)


def aup_series(study: Study) -> list[list[Run]]:
    return [*study.k_series().values(), *(group for group in study.series("tau_conf", "tau_act") if len(group) > 2)]


def _aup_row(run: Run, name: str, one: Aup) -> tuple[str, ...]:
    k = "" if run.row["decoder"] != "lopa" else f" (from k = {run.k})"
    points = " ".join(f"({tpf:.2f}, {score:.1f})" for tpf, score in one.points)
    return (
        name + k, f"{model_of(run)}, {task_of(run)}", one.version, f"{one.value:.1f}", number(one.best, 1), points
    )  # fmt: skip


def _tpf(study: Study, run: Run) -> float | None:
    return study.value(run, "tpf", "effective").value


def _score(study: Study, run: Run) -> float | None:
    return study.value(run, "accuracy").scaled(100).value


def run_grid(study: Study) -> Grid:
    """Every run that was found; those that are left out say why."""
    rows = [(run.id, "used", *facts(run, study.numbers(run).n)) for run in study.runs]
    used = {folder for run in study.runs for folder in run.folders}
    for run in study.all_runs:
        if run.folders[0] not in used:
            reason = run.row["status"] if run.row["shard"] is None else f"shard {run.row['shard']}, others are missing"
            rows.append((run.id, f"left out: {reason}", *facts(run, int(run.row["n"] or 0))))
    words = ("run", "status", "model", "decoding", "problems", "where")
    return Grid("runs", "Every run that was found", (*words[:5], "n", words[5]), rows, words=words)
