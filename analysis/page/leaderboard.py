"""The runs there are, side by side: what the report opens with."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from analysis.comparisons import Comparison, against_baselines
from analysis.labels import decoding, hardware, model_of, task_of, varied
from analysis.sides import point
from analysis.study import Study, preset_for
from analysis.tables.model import Head, Table
from analysis.text import file_name, plain, setting, typeset
from lopa_bench.console.numbers import fixed, p_value, signed
from lopa_bench.metrics.aggregate import Estimates
from lopa_bench.metrics.statistics import Estimate
from lopa_bench.records.runs import Run

PRESET = "effective"
LONGEST_SETTINGS = 60  # characters
LEVEL = 0.05  # of a test: from here on a difference may be chance


@dataclass(frozen=True)
class Measure:
    """A column of numbers."""

    key: str
    title: str
    digits: int
    about: str


MEASURES = (
    Measure("score", "score (%)", 1, "problems solved, of those that were judged"),
    Measure("tpf", "TPF", 2, "content tokens for each call of the model"),
    Measure("tpf_row", "TPF/row", 2, "content tokens for each row that a call computes: a branch is a row"),
    Measure("tps", "TPS", 0, "content tokens a second"),
    Measure("latency_s", "latency (s)", 2, "seconds for a problem"),
)


@dataclass(frozen=True)
class Entry:
    """A run of the leaderboard. `against`: its comparison with its baseline, where it has one."""

    run: Run
    settings: str
    n: int
    values: Mapping[str, Estimate]
    against: Comparison | None
    tried: int | None = None  # settings of its decoder and k, where some decoder beside it was tuned
    is_fastest: bool = False
    is_fastest_without_loss: bool = False

    @property
    def page(self) -> str:
        """Of its samples, from the report's folder."""
        return f"runs/{file_name(self.run.id)}.html"

    @property
    def marks(self) -> tuple[str, ...]:
        named = {"fastest": self.is_fastest, "fastest, no significant loss": self.is_fastest_without_loss}
        return tuple(name for name, holds in named.items() if holds)


class Leaderboard:
    """Every usable run once. Runs that stand side by side are neighbours, the largest such group first, in each the
    fastest first; runs that repeat one of them stand behind.
    """

    def __init__(self, study: Study) -> None:
        self.study = study
        self.comparisons = against_baselines(study)
        self._against = {one.b.id: one for one in self.comparisons}

    @cached_property
    def entries(self) -> list[Entry]:
        groups = self.study.contexts()
        ordered = [entry for group in groups for entry in self._group(group)]
        placed = {entry.run.id for entry in ordered}
        return ordered + [self._entry(run) for run in self.study.runs if run.id not in placed]

    def comparison(self, run: Run) -> Comparison | None:
        return self._against.get(run.id)

    def _group(self, group: Sequence[Run]) -> list[Entry]:
        known = [(value, run.id) for run in group if (value := self._speed(run)) is not None]
        whole = [one for one in known if not any(self._is_worse(run) for run in self._line(one[1]))]
        fastest = max(known)[1] if len(known) > 1 else None
        best = max(whole)[1] if len(known) > 1 and whole and self._is_compared(group) else None
        tried = _tried(group)
        entries = [self._entry(run, run.id == fastest, run.id == best, tried.get(run.id)) for run in group]
        return sorted(entries, key=lambda entry: -(self._speed(entry.run) or 0.0))

    def _is_compared(self, group: Sequence[Run]) -> bool:
        return any(run.id in self._against for run in group)

    def _speed(self, run: Run) -> float | None:
        return self.study.value(run, "tps", preset_for(run, PRESET)).value

    def _line(self, run_id: str) -> Iterator[str]:
        """The run, its baseline, the baseline of that, and so on."""
        seen: set[str] = set()
        while run_id not in seen:
            seen.add(run_id)
            yield run_id
            if run_id in self._against:
                run_id = self._against[run_id].a.id

    def _is_worse(self, run_id: str) -> bool:
        """By the p value that is not adjusted: of the two it finds a loss first."""
        one = self._against.get(run_id)
        if one is None or one.numbers.mcnemar_p is None:
            return False
        return one.numbers.mcnemar_p < LEVEL and (difference_of(one) or 0.0) < 0

    def _entry(self, run: Run, is_fastest: bool = False, is_best: bool = False, tried: int | None = None) -> Entry:
        numbers = self.study.numbers(run)
        settings = told_settings(run, self.study.runs)
        values, against = values_of(run, numbers), self.comparison(run)
        return Entry(run, settings, numbers.n, values, against, tried, is_fastest, is_best)


def _tried(group: Sequence[Run]) -> dict[str, int]:
    """Of each run on how many points of the tuned settings its decoder with its k was tried; empty where none was
    tried on several.
    """
    points: dict[tuple[object, ...], set[object]] = defaultdict(set)
    for run in group:
        points[run.decoder, run.base, run.k].add(point(run))
    if max(map(len, points.values()), default=0) < 2:
        return {}
    return {run.id: len(points[run.decoder, run.base, run.k]) for run in group}


def told_settings(run: Run, among: Sequence[Run]) -> str:
    """What was varied; where that is long, only that in which a run is not as most of its kind are."""
    settings = varied(run, among)
    if len(settings) <= LONGEST_SETTINGS:
        return settings
    alike = [other for other in among if (other.decoder, other.base, other.task) == (run.decoder, run.base, run.task)]
    told = []
    for name, value in run.overrides.items():
        values = Counter(str(other.overrides[name]) for other in alike if name in other.overrides)
        if len(values) > 1 and str(value) != values.most_common(1)[0][0]:
            told.append(f"{name} {setting(value)}")
    return plain(", ".join(told)) or "as most of its kind"


def values_of(run: Run, numbers: Estimates) -> dict[str, Estimate]:
    """By the keys of MEASURES; the score in percent."""
    preset = preset_for(run, PRESET)
    return {
        "score": numbers.get("accuracy").scaled(100),
        "tpf": numbers.get("tpf", preset),
        "tpf_row": numbers.get("tpf_row"),
        "tps": numbers.get("tps", preset),
        "latency_s": numbers.get("latency_s"),
    }


def p_of(one: Comparison) -> float | None:
    """McNemar's, adjusted where there were several tests."""
    return one.numbers.mcnemar_p if one.numbers.adjusted_p is None else one.numbers.adjusted_p


def difference_of(one: Comparison) -> float | None:
    """Of the scores, in points: run - baseline."""
    return one.numbers.accuracy.difference.scaled(100).value


def ratio_of(one: Comparison, quantity: str) -> Estimate:
    """Run / baseline; nothing where one of the two did not record it."""
    found = one.numbers.quantities.get(quantity)
    return Estimate() if found is None else found.ratio


def against_words(one: Comparison | None) -> list[str]:
    """A comparison in three short lines: calls, time, score."""
    if one is None:
        return []
    ratios = {name: ratio_of(one, key).value for name, key in (("calls", "calls"), ("time", "latency_s"))}
    lines = [f"{name} ×{typeset(fixed(ratio))}" for name, ratio in ratios.items() if ratio is not None]
    if difference_of(one) is not None:
        p = p_value(p_of(one))
        relation = p if p.startswith("<") else f"= {p}"
        lines.append(f"score {typeset(signed(difference_of(one)))} (p {relation})")
    return lines


def leaderboard_table(board: Leaderboard) -> Table:
    """The same as a file: every digit, an interval's ends in columns of their own."""
    heads = [
        *(Head(text, is_words=True) for text in ("decoder", "settings", "model", "task")), Head("n"),
        *(Head(measure.title) for measure in MEASURES), Head("against its baseline", is_words=True),
        Head("run", is_words=True),
    ]  # fmt: skip
    keys = ["decoder", "settings", "model", "task", "n"]
    keys += [measure.key + part for measure in MEASURES for part in ("", "_low", "_high")]
    keys += ["baseline_run", "pairs", "calls_ratio", "latency_s_ratio", "score_difference_points", "mcnemar_p"]
    keys += ["adjusted_p", "settings_tried", "hardware", "run"]
    return Table(
        name="leaderboard",
        caption="Every run: score, parallelism and speed with 95 % intervals (counting preset effective)",
        heads=heads,
        rows=[_row(entry) for entry in board.entries],
        keys=keys,
        records=[list(_record(entry)) for entry in board.entries],
    )


def _row(entry: Entry) -> list[str]:
    run = entry.run
    numbers = [
        typeset(fixed(value.value, measure.digits, value.interval))
        for measure in MEASURES
        for value in (entry.values[measure.key],)
    ]
    against = "; ".join(against_words(entry.against))
    return [decoding(run), entry.settings, model_of(run), task_of(run), str(entry.n), *numbers, against, plain(run.id)]


def _record(entry: Entry) -> Iterator[object]:
    run = entry.run
    yield from (decoding(run), entry.settings, model_of(run), task_of(run), entry.n)
    for measure in MEASURES:
        value = entry.values[measure.key]
        yield from (value.value, *(value.interval or (None, None)))
    one = entry.against
    if one is None:
        yield from [None] * 7
    else:
        yield from (one.a.id, one.numbers.pairs, ratio_of(one, "calls").value, ratio_of(one, "latency_s").value)
        yield from (difference_of(one), one.numbers.mcnemar_p, one.numbers.adjusted_p)
    yield from (entry.tried, hardware(run), run.id)
