"""Which run answers which row of the article, and which runs stand below as rows of their own."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from analysis.sides import BASES, Entrant, at_one_setting, bases, tuned
from analysis.study import Group, Key, Study, best
from analysis.tables import published
from lopa_bench.metrics.comparable import source
from lopa_bench.metrics.statistics import Estimate
from lopa_bench.records.runs import Run

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
            and run.source_kind != "embedded"
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


def others(study: Study, tasks: Iterable[str], is_timed: bool = True) -> list[Group]:
    """Groups of runs on these tasks that no row of the article is about: other models, one's own decoders, and this
    project's own problems. The runs of a group stand side by side.

    Of several groups of a model on a source (and a device, where times are shown) the one with the most samples. Where
    that has no decoder with and without lookahead, the largest that has follows it.
    """
    places: dict[Key, list[Run]] = defaultdict(list)
    wanted = list(tasks)
    for run in study.runs:
        if run.task in wanted and _is_own(run):
            device = (run.device, run.backend) if is_timed else None
            places[wanted.index(run.task), not run.toy, run.model, source(run), device].append(run)
    found: list[Group] = []
    for _, runs in sorted(places.items(), key=lambda place: place[0][:4]):
        found.append(max(study.largest(runs, bool), key=_weight))
        if not _sets_side_by_side(found[-1]):
            found += sorted(study.largest(runs, _sets_side_by_side), key=_weight)[-1:]
    return found


def _is_own(run: Run) -> bool:
    if run.model not in published.MODELS.values() or run.source_kind == "embedded":
        return True
    return not (run.is_server or run.is_autoregressive or run.base in BASES)


def _sets_side_by_side(group: Group) -> bool:
    """Whether there is a decoder with and without lookahead."""
    return any(
        any(run.k == 0 for run in group if run.base == base) and any(run.lookahead for run in group if run.base == base)
        for base in bases(group)
    )


def _weight(group: Group) -> tuple[int, bool, int, str]:
    samples = min(len(run.attempted) for run in group)
    return samples, _sets_side_by_side(group), len(group), max(run.created for run in group)


def plain_and_lopa(group: Group, k: int) -> list[Run]:
    """For each base decoder the run without lookahead and the one with this k, or the nearest, at one setting."""
    return [run for base in bases(group) for run in at_one_setting(group, base, k)]


def tuned_systems(study: Study, group: Group, preset: str) -> list[list[Entrant]]:
    """For each base decoder that was tuned: itself and LoPA on it with every k, each at the fastest of the settings
    that all of these were tried on. Other base decoders have other settings and stand apart.
    """

    def speed(run: Run, among: Group) -> Estimate:
        return study.value(run, "tps", preset, among)

    return [entrants for base in bases(group) if (entrants := tuned(group, base, speed))]


def references(runs: Iterable[Run]) -> Iterator[Run]:
    """Autoregressive models and servers: one run for each decoder and backend."""
    groups: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        if run.is_autoregressive or run.is_server:
            groups.setdefault((run.decoder, run.backend), []).append(run)
    yield from filter(None, map(best, groups.values()))


def _has_shots(run: Run, shots: str) -> bool:
    asked = (run.config.get("task") or {}).get("shots")
    return not shots or asked is None or asked == int(shots)


def _decodes(run: Run, decoding: str, is_d2f: bool) -> bool:
    if decoding == "server":
        return run.is_server
    if decoding == "lopa":
        return run.is_lopa
    if run.lookahead or run.is_server:
        return False
    if decoding == "fast_dllm":
        return run.base == "fast_dllm"
    return run.base == published.PIPELINE if is_d2f else run.base in PLAIN
