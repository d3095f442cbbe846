"""Which run answers which row of the article, and which runs stand below as rows of their own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from analysis import published
from analysis.runs import Run
from analysis.study import Study, best

BASES = ("greedy", "dream", "llada", "fast_dllm", "d2f")
PLAIN = ("greedy", "dream", "llada")  # a vanilla decoder, one position a forward or the model's own sampler


def article_run(
    study: Study,
    model: str,
    task: str,
    decoding: str,
    settings: Mapping[str, float] | None = None,
    device: str = "",
    shots: str = "",
) -> Run | None:
    """The run of a published row: its model, its task from its own source, its decoder and its settings.

    `device`: the beginning of its name. `shots`: as published; a run that left them to the task has the article's.
    """
    name = published.MODELS[model]
    return best(
        [
            run
            for run in study.runs
            if run.model == name
            and run.task == task
            and run.row["source_kind"] != "embedded"
            and _decodes(run, decoding, is_d2f="D2F" in model)
            and has_settings(run, settings or {})
            and run.device.startswith(device)
            and _has_shots(run, shots)
        ]
    )


def has_settings(run: Run, settings: Mapping[str, float], but: Iterable[str] = ()) -> bool:
    """Whether a run was made with these settings; those that its decoder does not have are not asked for."""
    return all(
        run.settings.get(name) == value
        for name, value in settings.items()
        if name not in but and not (name == "k" and not run.lookahead)
    )


def others(study: Study, tasks: Iterable[str]) -> dict[tuple[str, str], list[Run]]:
    """Runs on these tasks that no row of the article is about: other models, and this project's own problems."""
    names, groups = set(published.MODELS.values()), dict[tuple[str, str], list[Run]]()
    ordered = sorted(study.runs, key=lambda run: (not run.toy, run.model))
    for task in tasks:
        for run in ordered:
            if run.task == task and (run.model not in names or run.row["source_kind"] == "embedded"):
                groups.setdefault((run.model, task), []).append(run)
    return groups


def plain_runs(runs: Iterable[Run]) -> Iterator[Run]:
    """One run without lookahead for each base decoder."""
    runs = list(runs)
    for base in BASES:
        found = [run for run in runs if run.base == base and run.k == 0 and not run.is_server]
        found = [run for run in found if run.row["decoder"] != "lopa"] or found
        if (run := best(found)) is not None:
            yield run


def references(runs: Iterable[Run]) -> Iterator[Run]:
    """Autoregressive models and servers: one run for each decoder and backend."""
    groups: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        if run.is_autoregressive or run.is_server:
            groups.setdefault((str(run.row["decoder"]), str(run.row["backend"])), []).append(run)
    yield from filter(None, map(best, groups.values()))


def lopa_runs(study: Study, runs: Iterable[Run], k: int) -> Iterator[Run]:
    """One LoPA run for each base decoder: the one with this k, or the nearest, of its longest series over k."""
    ids = {run.id for run in runs if run.lookahead and run.k is not None}
    seen = set()
    for group in study.series("k"):
        fitting = [run for run in group if run.id in ids]
        if fitting and group[0].base not in seen:
            seen.add(group[0].base)
            yield min(fitting, key=lambda run: abs((run.k or 0) - k))


def fastest(study: Study, runs: Iterable[Run]) -> Run | None:
    """The LoPA run with the highest TPS under the rule of the article's system tables."""
    return max(
        (run for run in runs if run.lookahead),
        key=lambda run: study.value(run, "tps", "lopa_dist").value or 0.0,
        default=None,
    )


def _has_shots(run: Run, shots: str) -> bool:
    asked = (run.config.get("task") or {}).get("shots")
    return not shots or asked is None or asked == int(shots)


def _decodes(run: Run, decoding: str, is_d2f: bool) -> bool:
    if decoding == "server":
        return run.is_server
    if decoding == "lopa":
        return run.lookahead
    if run.lookahead or run.is_server:
        return False
    if decoding == "fast_dllm":
        return run.base == "fast_dllm"
    return run.base == "d2f" if is_d2f else run.base in PLAIN
