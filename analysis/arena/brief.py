"""The arena in a table that fits a screen or a README: one budget, and each decoder beside the tuned base."""

from __future__ import annotations

from typing import Any

from analysis.arena.choice import PRESET, Arena, Pick, arenas, picks, split_of
from analysis.labels import model_of, task_of
from analysis.study import Study
from analysis.tables.model import Head, Table
from analysis.text import typeset
from lopa_bench.console.numbers import fixed, p_value, signed
from lopa_bench.metrics.statistics import Estimate

BUDGET = 2.0  # points that a chosen setting may lose on the tuning split
KEYS = (
    "decoder", "model", "task", "setting", "n", "accuracy", "tpf", "tokens_per_processed", "base",
    "accuracy_difference", "holm_p", "tpf_ratio", "missing",
)  # fmt: skip


def brief_table(study: Study, budget: float = BUDGET) -> Table:
    """A line a decoder, the fastest first; those without a setting within the budget last, with the reason."""
    found = [(arena, pick) for arena in arenas(study) for pick in picks(study, arena) if pick.budget == budget]
    records = [_record(study, arena, pick) for arena, pick in found]
    records.sort(key=lambda record: -(record["tpf"].value or 0.0) if record["tpf"] else 0.0)
    heads = [
        Head("decoder", is_words=True), Head("chosen setting", is_words=True), Head("score (%)"), Head("TPF"),
        Head("tokens per position processed"), Head("TPF to the base"), Head("points to the base"), Head("Holm p"),
    ]  # fmt: skip
    notes = [
        f"Held-out problems {split_of(arena.held_out)} of {task_of(arena.run)}, {model_of(arena.run)}; n = "
        f"{study.numbers(arena.held_out[0], arena.held_out).decoded}. Settings chosen on {split_of(arena.tuning)}: the "
        f"highest TPF that loses at most {budget:g} points there. Base: the tuned base of a decoder with lookahead, "
        f"for the others the one LoPA stands on. Counting preset {PRESET}; brackets are 95 % intervals, p values "
        "McNemar's, corrected by Holm over all pairs."
        for arena in arenas(study)
        if arena.held_out
    ]
    return Table(
        name="arena_brief",
        caption=f"The arena at a loss of at most {budget:g} points",
        heads=heads,
        rows=[_row(record) for record in records],
        keys=KEYS,
        records=[[_bare(record[key]) for key in KEYS] for record in records],
        notes=notes,
    )


def _record(study: Study, arena: Arena, pick: Pick) -> dict[str, Any]:
    def held(name: str, preset: str | None = None) -> Any:
        return study.value(pick.held, name, preset, arena.held_out) if pick.held else None

    paired = pick.against.get("base")
    numbers = paired.numbers if paired else None
    return {
        "decoder": pick.contender.name, "model": model_of(arena.run), "task": task_of(arena.run),
        "setting": pick.contender.setting(pick.chosen) or "the only one" if pick.chosen else None,
        "n": study.numbers(pick.held, arena.held_out).decoded if pick.held else None,
        "accuracy": held("accuracy"), "tpf": held("tpf", PRESET),
        "tokens_per_processed": held("tokens_per_processed"),
        "base": paired.baseline.name if paired else None, "holm_p": paired.adjusted_p if paired else None,
        "accuracy_difference": numbers.accuracy.difference if numbers else Estimate(),
        "tpf_ratio": numbers.quantities["tpf"].ratio if numbers else Estimate(), "missing": pick.why or None,
    }  # fmt: skip


def _row(record: dict[str, Any]) -> tuple[str, ...]:
    if record["tpf"] is None:
        return (record["decoder"], record["missing"], *("–",) * 6)
    score, points = (record[name].scaled(100) for name in ("accuracy", "accuracy_difference"))
    tpf, processed, ratio = (record[name] for name in ("tpf", "tokens_per_processed", "tpf_ratio"))
    cells = (
        fixed(score.value, 1, score.interval), fixed(tpf.value, 2, tpf.interval), fixed(processed.value, 3),
        fixed(ratio.value, 2, ratio.interval), signed(points.value, 1), p_value(record["holm_p"]),
    )  # fmt: skip
    return (record["decoder"], record["setting"], *(typeset(cell) for cell in cells))


def _bare(value: Any) -> Any:
    return getattr(value, "value", value)
