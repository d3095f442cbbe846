"""The arena as tables: what was chosen and how it did on the held-out split; areas under the curves there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from analysis.arena.choice import BUDGETS, PRESET, Arena, Paired, Pick, arenas, is_articles, picks, reference, split_of
from analysis.labels import model_of, task_of
from analysis.study import Study
from analysis.tables.aup import Aup, aup_d3llm, aup_mbd
from analysis.tables.model import Head, Table
from analysis.text import typeset
from lopa_bench.console.numbers import fixed, p_value, percent, signed
from lopa_bench.metrics.statistics import Estimate

COLUMNS: Mapping[str, tuple[str, int]] = {  # quantity -> its head, and digits
    "tpf": ("TPF", 2),
    "tpf_row": ("tokens a row", 2),
    "tokens_per_processed": ("tokens per position processed", 3),
    "tps": ("TPS", 1),
}
SIDES = {"base": "the tuned base", "lopa": "LoPA as in the article"}
PARTS = ("score (points)", "only one right (its / this)", "Holm p", "TPF ratio", "tokens/position ratio")
WORDS = ("decoder", "problems", "chosen setting", "missing")


def arena_table(study: Study) -> Table:
    """The lead of the report: a line for each decoder and budget."""
    found = [(arena, pick) for arena in arenas(study) for pick in picks(study, arena)]
    heads = [
        Head("decoder", is_words=True), Head("problems", is_words=True), Head("may lose (points)"),
        Head("chosen setting", is_words=True), Head("settings tried"), Head("tuning split", ("score (%)", "TPF")),
        Head("held-out split", ("n", "score (%)", *(head for head, _ in COLUMNS.values()))),
        *(Head(f"against {name}", PARTS) for name in SIDES.values()), Head("missing", is_words=True),
    ]  # fmt: skip
    records = [_record(study, arena, pick) for arena, pick in found]
    return Table(
        name="arena",
        caption="The arena: each decoder at the setting that was chosen for it on other problems",
        heads=heads,
        rows=[_row(study, arena, pick) for arena, pick in found],
        keys=list(records[0]) if records else [],
        records=[list(record.values()) for record in records],
        notes=list(_notes(study)),
    )


def _record(study: Study, arena: Arena, pick: Pick) -> dict[str, Any]:
    run = arena.run
    cells: dict[str, Any] = {
        "decoder": pick.contender.name, "model": model_of(run), "task": task_of(run), "may_lose_points": pick.budget,
        "setting": _setting(pick), "settings_tried": len(pick.contender.tuning),
    }  # fmt: skip
    for split, one, among in (("tuning", pick.chosen, arena.tuning), ("held_out", pick.held, arena.held_out)):
        numbers = study.numbers(one, among) if one else None
        cells[f"{split}_rows"] = split_of(among) if among else None
        cells[f"{split}_n"] = numbers.decoded if numbers else None
        for name in ("accuracy", *COLUMNS):
            value = numbers.get(name, PRESET if name in ("tpf", "tps") else None) if numbers else None
            low, high = (value.interval if value else None) or (None, None)
            cells |= {f"{split}_{name}": value.value if value else None, f"{split}_{name}_low": low}
            cells[f"{split}_{name}_high"] = high
        cells[f"{split}_run"] = one.id if one else None
    for side in SIDES:
        cells |= _paired_record(side, pick.against.get(side))
    return cells | {"missing": pick.why or None}


def _paired_record(side: str, paired: Paired | None) -> dict[str, Any]:
    numbers = paired.numbers if paired else None
    difference = numbers.accuracy.difference if numbers else Estimate()
    low, high = difference.interval or (None, None)
    cells: dict[str, Any] = {
        "decoder": paired.baseline.name if paired else None, "pairs": numbers and numbers.pairs,
        "judged_pairs": numbers and numbers.judged_pairs, "accuracy_difference": difference.value,
        "only_a_correct": numbers and numbers.only_a_correct, "only_b_correct": numbers and numbers.only_b_correct,
        "mcnemar_p": numbers and numbers.mcnemar_p, "holm_p": paired.adjusted_p if paired else None,
        "accuracy_difference_low": low, "accuracy_difference_high": high,
    }  # fmt: skip
    for name in ("tpf", "tps", "tokens_per_processed"):
        ratio = numbers.quantities[name].ratio if numbers else Estimate()
        low, high = ratio.interval or (None, None)
        cells |= {f"{name}_ratio": ratio.value, f"{name}_ratio_low": low, f"{name}_ratio_high": high}
    return {f"{side}_{name}": value for name, value in cells.items()}


def _row(study: Study, arena: Arena, pick: Pick) -> tuple[str, ...]:
    cells = _record(study, arena, pick)

    def shown(name: str, digits: int) -> str:
        low, high = cells[f"held_out_{name}_low"], cells[f"held_out_{name}_high"]
        interval = None if low is None else (low, high)
        return typeset(fixed(cells[f"held_out_{name}"], digits, interval))

    n = cells["held_out_n"]
    return (
        cells["decoder"], f"{cells['model']}, {cells['task']}", f"{pick.budget:g}", cells["setting"] or "–",
        str(cells["settings_tried"]), typeset(percent(cells["tuning_accuracy"])), typeset(fixed(cells["tuning_tpf"])),
        "–" if n is None else str(n), typeset(percent(cells["held_out_accuracy"])),
        *(shown(name, digits) for name, (_, digits) in COLUMNS.items()),
        *(cell for side in SIDES for cell in _paired_cells(pick, side)), pick.why or "–",
    )  # fmt: skip


def _paired_cells(pick: Pick, side: str) -> tuple[str, ...]:
    paired = pick.against.get(side)
    if paired is None:
        return ("–",) * len(PARTS)
    numbers = paired.numbers
    points = numbers.accuracy.difference.scaled(100)
    ratios = (numbers.quantities[name].ratio for name in ("tpf", "tokens_per_processed"))
    return (
        typeset(signed(points.value, 1, points.interval)),
        f"{numbers.only_a_correct} / {numbers.only_b_correct}",
        typeset(p_value(paired.adjusted_p)),
        *(typeset(fixed(ratio.value, 2, ratio.interval)) for ratio in ratios),
    )


def _times(value: float | None, factor: float) -> float | None:
    return None if value is None else factor * value


def _setting(pick: Pick) -> str | None:
    if pick.chosen is None:
        return None
    return pick.contender.setting(pick.chosen) or "the only one"


def _notes(study: Study) -> Iterator[str]:
    budgets = ", ".join(f"{budget:g}" for budget in BUDGETS)
    yield (
        f"Chosen on the tuning split alone: of a decoder's settings that lose at most {budgets} points there against "
        "the reference the one with the highest TPF. All further numbers are of the held-out split, on the problems "
        f"that all runs on it decoded. Counting preset {PRESET}; brackets are 95 % intervals. A grid with more "
        "settings is tried more often, on the tuning split only. Position processed: of a row that a call computed."
    )
    yield (
        "Pairs: problem by problem, baseline first, both at their own setting for the same points. McNemar's exact "
        "test, p values corrected by Holm over all distinct pairs of an arena; intervals of ratios and differences are "
        "of a paired bootstrap and are not corrected. The tuned base is the base of a decoder with lookahead; for the "
        "others it is the one that LoPA stands on here. LoPA as in the article (select=score): the k and base that are "
        "fastest on the tuning split."
    )
    for arena in arenas(study):
        score, whose = reference(study, arena)
        where = f"{model_of(arena.run)}, {task_of(arena.run)}"
        splits = [f"{name} {split_of(group)}" if group else f"no {name} split"
                  for name, group in (("tuning", arena.tuning), ("held-out", arena.held_out))]  # fmt: skip
        yield f"{where}: {', '.join(splits)}; reference {percent(score)} ({whose})."
        if not any(one.run.lookahead and is_articles(one.run) for one in arena.contenders):
            yield f"{where}: no run of LoPA as in the article, so nobody is paired with it."


def arena_aup_table(study: Study) -> Table:
    """Both areas of each contender along its own grid, on the held-out split."""
    keys = (
        "decoder", "model", "task", "n", "settings", "version", "aup", "best_accuracy_percent", "points",
    )  # fmt: skip
    records: list[tuple[Any, ...]] = []
    rows: list[tuple[str, ...]] = []
    for arena in arenas(study):
        points = {one.name: _points(study, arena, one.held_out) for one in arena.contenders}
        best = max((score for known in points.values() for _, score in known), default=0.0)
        for one in arena.contenders:
            known = points[one.name]
            if len(known) < 2 or not best:
                lack = "fewer than two settings on the held-out split"
                rows.append(
                    (one.name, f"{model_of(arena.run)}, {task_of(arena.run)}", "–", str(len(known)), lack, "–", "–")
                )
                records.append(
                    (one.name, model_of(arena.run), task_of(arena.run), None, len(known), None, None, None, 0)
                )
                continue
            n = study.numbers(one.held_out[0], arena.held_out).decoded
            for area in (aup_d3llm(known, best), aup_mbd(known)):
                rows.append(_aup_row(arena, one.name, n, len(known), area))
                records.append((one.name, model_of(arena.run), task_of(arena.run), n, len(known), area.version,
                                area.value, area.best, len(area.points)))  # fmt: skip
    heads = [Head(text, is_words=text in (*WORDS, "version")) for text in
             ("decoder", "problems", "n", "settings", "version", "AUP", "points (TPF, score %)")]  # fmt: skip
    note = (
        "Over all settings of a decoder's own grid on the held-out split, so nothing is chosen. d3llm weights by the "
        "best score of all decoders there and drops points over 5 below the first; mbd is the plain trapezoid. The two "
        "are on different scales, and an area grows with the range of TPF that a grid spans."
    )
    title = "The arena: accuracy under parallelism (AUP), both definitions, on the held-out split"
    return Table(name="arena_aup", caption=title, heads=heads, rows=rows, keys=keys, records=records, notes=(note,))


def _points(study: Study, arena: Arena, runs: Sequence[Any]) -> list[tuple[float, float]]:
    found = [
        (study.value(run, "tpf", PRESET, arena.held_out).value,
         study.value(run, "accuracy", among=arena.held_out).scaled(100).value) for run in runs
    ]  # fmt: skip
    return [(tpf, score) for tpf, score in found if tpf and score is not None]


def _aup_row(arena: Arena, name: str, n: int, settings: int, area: Aup) -> tuple[str, ...]:
    points = " ".join(f"({fixed(tpf)}, {fixed(score, 1)})" for tpf, score in area.points)
    problems = f"{model_of(arena.run)}, {task_of(arena.run)}"
    return name, problems, str(n), str(settings), area.version, fixed(area.value, 1), points
