"""Two runs on the same problems, pair by pair; and every run against its baseline, with a correction for many tests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from analysis.labels import decoding, model_of, source_of, task_of, varied
from analysis.study import Study
from analysis.text import plain
from lopa_bench.console.numbers import fixed, p_value, percent, signed
from lopa_bench.metrics.comparable import Counted, stand
from lopa_bench.metrics.paired import PairedNumbers, with_adjusted_p
from lopa_bench.metrics.paired import compare as compare_samples
from lopa_bench.metrics.presets import PRESETS
from lopa_bench.records.runs import Run

MANY_TESTS = (
    "Each p value is McNemar's exact test for one pair of runs. Of many such tests some are small by chance: the "
    "adjusted p values control the expected share of false findings among all comparisons listed here "
    "(Benjamini-Hochberg, scipy.stats.false_discovery_control), which is valid for tests that share a baseline. "
    "Intervals of TPF and TPS ratios are not adjusted: of a hundred 95 % intervals about five miss."
)


@dataclass(frozen=True)
class Comparison:
    """Two runs and their numbers: differences are b - a, ratios b / a."""

    a: Run
    b: Run
    numbers: PairedNumbers
    differs: str = ""  # beside the decoder: what is no comparison of decoders


def compare(a: Run, b: Run, preset: str = "effective") -> Comparison:
    """Raises ValueError when the runs are not on the same problems, or a run is damaged."""
    for run in (a, b):
        run.check_whole()
    standing = stand(Counted(a, a.samples, preset), Counted(b, b.samples, preset))
    apart = [one for one in standing.differences if one.fact in ("task", "source") or one.fact.startswith("gold")]
    if apart:
        raise ValueError(f"{a.id} and {b.id} are on not the same problems ({'; '.join(map(str, apart))})")
    if not standing.pairs:
        raise ValueError(f"{a.id} and {b.id} have no problem in common that both decoded")
    return Comparison(a, b, compare_samples(a.samples, b.samples, preset, a.seed), differs=standing.why)


def against_baselines(study: Study) -> list[Comparison]:
    """Lookahead against its base decoder, the other decoders against greedy; same model, same problems."""
    found = []
    for run in study.distinct():
        baseline = study.baseline(run) if run.lookahead else study.baseline(run, base="greedy")
        if baseline is not None and study.standing(baseline, run) and not run.is_server:
            found.append(compare(baseline, run))
    adjusted = with_adjusted_p([one.numbers for one in found])
    return [replace(one, numbers=numbers) for one, numbers in zip(found, adjusted, strict=True)]


def in_words(one: Comparison) -> str:
    """A comparison as plain text, for the terminal."""
    numbers = one.numbers
    rows = [
        *(f"{name}: {plain(run.id)} ({_in_full(run, (one.a, one.b))})" for name, run in (("a", one.a), ("b", one.b))),
        *([f"not like with like, in {plain(one.differs)}"] if one.differs else []),
        f"{task_of(one.a)}; {source_of(one.a)}; {numbers.pairs} pairs, {numbers.unpaired} samples without"
        f" a partner; counting {numbers.preset} ({PRESETS[numbers.preset].formula}); ranges are 95 % intervals",
        "",
    ]
    score = numbers.accuracy
    if score.difference.value is not None:
        rows += [
            f"score: a {percent(score.a)}, b {percent(score.b)}, difference "
            f"{signed(100 * score.difference.value)} points over {numbers.judged_pairs} judged pairs",
            f"       only a right: {numbers.only_a_correct}, only b right: {numbers.only_b_correct}, "
            f"McNemar's exact p {_relation(p_value(numbers.mcnemar_p))}",
        ]
    for name in ("tpf", "tps"):
        of = numbers.quantities[name]
        if of.ratio.value is not None:
            rows.append(
                f"{name.upper()}:   a {fixed(of.a)}, b {fixed(of.b)}, "
                f"difference {signed(of.difference.value, 2, of.difference.interval)}, "
                f"ratio {fixed(of.ratio.value, 3, of.ratio.interval)}"
            )
    rows += ["", "One comparison: its p value is not adjusted. Among many runs, take the adjusted ones of the report."]
    return "\n".join(rows)


def _in_full(run: Run, among: Sequence[Run]) -> str:
    return ", ".join(filter(None, (model_of(run), decoding(run), varied(run, among))))


def _relation(text: str) -> str:
    return text if text.startswith("<") else f"= {text}"
