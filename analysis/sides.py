"""Who stands for a decoder where decoders are set side by side: everybody at one setting, or everybody at the best of
the same settings. A single run never stands beside the best of many.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from analysis.study import TUNED, Group
from analysis.text import setting
from lopa_bench.metrics.comparable import common_grid
from lopa_bench.metrics.statistics import Estimate
from lopa_bench.records.runs import Run

Point = tuple[Any, ...]  # values of TUNED
# settings that a decoder has otherwise without lookahead
LOOKAHEAD = ("confidence", "attention", "complete", "floor", "select", "gate", "confirm", "confirm_best", "eager")
BASES = (
    *("greedy", "dream", "llada", "fast_dllm", "eb", "frechet", "entropy", "klass", "d2f"),
    *("sdar", "fast_dllm_v2", "llada2", "multibd", "d3llm", "joint_threshold", "wino", "saber"),
)  # in the order of tables; others behind them


@dataclass(frozen=True)
class Entrant:
    """A run, and the number of settings whose best it is: 1 was not tuned."""

    run: Run
    tried: int = 1


def bases(runs: Iterable[Run]) -> list[str]:
    """The decoders that a group decoded with, without their lookahead; one's own decoder is one of them."""
    found = dict.fromkeys(run.base for run in runs if not run.is_server and not run.is_autoregressive)
    return sorted(found, key=lambda base: (BASES.index(base) if base in BASES else len(BASES), base))


def at_one_setting(group: Group, base: str, k: int) -> list[Run]:
    """A base decoder without lookahead and LoPA on it with this k, or the nearest that was run, at the same setting.

    Where no setting was run with both, each has the setting that it was run with most.
    """
    plain, ours = _plain_and_ours(group, base)
    branches = [run for run in ours if run.is_lopa and run.k is not None]
    nearest = min((run.k or 0 for run in branches), key=lambda found: (abs(found - k), found), default=None)
    sides = [plain + [run for run in ours if run.k == 0], [run for run in branches if run.k == nearest]]
    sides = [side for side in sides if side]
    setting = _setting(sides, group)
    return [next((run for run in side if point(run) == setting), _most_like(side, setting)) for side in sides]


def tuned(group: Group, base: str, value: Callable[[Run, Group], Estimate]) -> list[Entrant]:
    """A base decoder and LoPA on it with every k, each at the best of the settings that all of them were tried on.

    `value` of a run among others counts the samples that all of them decoded. Those that were tried on fewer than two
    of these settings are left out; none is left if there are no such settings.
    """
    found = []
    sides = curves(group, base)
    among = [run for offered in sides for run in offered]
    for offered in sides:
        known = [run for run in offered if value(run, among).value is not None]
        if known:
            found.append(Entrant(max(known, key=lambda run: value(run, among).value or 0.0), len(offered)))
    return found if len(found) > 1 else []


def curves(group: Group, base: str) -> list[Group]:
    """A base decoder and LoPA on it with every k, k ascending: the runs of each on the settings that all of these were
    tried on. Where only one was tried on several, its runs alone.
    """
    sides: dict[str, dict[Point, Run]] = defaultdict(dict)
    plain, ours = _plain_and_ours(group, base)
    for run in plain:
        sides[""][point(run)] = run
    for run in ours:
        sides[str(run.k_as_set)][point(run)] = run
    grid, names = common_grid(sides)
    if not names:
        tried = [name for name, runs in sides.items() if len(runs) > 1]
        return [list(sides[name].values()) for name in tried] if len(tried) == 1 else []
    return [[run for at, run in sides[name].items() if at in grid] for name in sorted(names, key=_by_k)]


def _by_k(name: str) -> tuple[bool, int, str]:
    return not name.isdecimal() and bool(name), int(name) if name.isdecimal() else -1, name


def on_common_settings(group: Group) -> Group:
    """The runs of a group among which the best may be sought: a base decoder with and without lookahead, on the
    settings that both were tried on; of several such decoders, whose settings are others, the one with the most runs.
    Where none was tried on several, each with the setting that most of its runs share.
    """
    sides: dict[str, dict[tuple[str, bool], list[Run]]] = defaultdict(lambda: defaultdict(list))
    for base in dict.fromkeys(run.base for run in group):
        for run in _set_up_alike([run for run in group if run.base == base]):
            sides[base][run.decoder, run.lookahead].append(run)
    tried: list[Group] = []
    single: Group = []
    for of_base in sides.values():
        grid, names = common_grid({name: {point(run) for run in runs} for name, runs in of_base.items()})
        tried.append([run for name in names for run in of_base[name] if point(run) in grid])
        setting = _setting(list(of_base.values()), group)
        single += [run for runs in of_base.values() for run in runs if point(run) == setting]
    return max(tried, key=len, default=[]) or single


def point(run: Run) -> Point:
    """Where on the grid of tuned settings a run is."""
    return tuple(run.settings.get(name) for name in TUNED)


def tuned_words(run: Run, among: Sequence[Run]) -> str:
    """The tuned settings in which runs of the same decoder differ: "τ 0.7, tau_act 0.7"."""
    alike = [other for other in among if other.base == run.base]
    names = [name for name in TUNED if len({str(other.settings.get(name)) for other in alike}) > 1]
    if "tau_conf" in names and "tau_act" in names and run.settings.get("tau_conf") == run.settings.get("tau_act"):
        names.remove("tau_act")
    return ", ".join(f"{'τ' if name == 'tau_conf' else name} {setting(run.settings.get(name))}" for name in names)


def _plain_and_ours(group: Group, base: str) -> tuple[list[Run], list[Run]]:
    """The runs of a base decoder and those of LoPA on it, which are set up alike."""
    alike = _set_up_alike([run for run in group if run.base == base and not run.is_server])
    plain = [run for run in alike if run.decoder != "lopa"]
    return _usual(plain), _usual([run for run in alike if run.decoder == "lopa"])


def _set_up_alike(runs: list[Run]) -> list[Run]:
    """Of the ways in which a base decoder was set up, with lookahead or without, the one that shows most: both sides,
    then the most runs. Lengths, caches and the like are no part of what lookahead is.
    """
    families: dict[Any, list[Run]] = defaultdict(list)
    for run in runs:
        kept = {name: str(value) for name, value in run.settings.items() if not _may_differ(name)}
        families[tuple(sorted(kept.items()))].append(run)
    sides = {kept: {run.lookahead for run in family} for kept, family in families.items()}
    best = max(families, key=lambda kept: (len(sides[kept]), len(families[kept]), max(_newest(families[kept]))),
               default=None)  # fmt: skip
    return families.get(best, [])


def _may_differ(name: str) -> bool:
    return name in ("name", "base", "k", *LOOKAHEAD, *TUNED) or name.startswith("score.")


def _usual(runs: list[Run]) -> list[Run]:
    """Of the ways in which a decoder was set up, tuned settings and k aside, the one that was run most."""
    families: dict[Any, list[Run]] = defaultdict(list)
    for run in runs:
        kept = {name: str(value) for name, value in run.settings.items() if name not in TUNED and name != "k"}
        families[tuple(sorted(kept.items()))].append(run)
    return max(families.values(), key=lambda family: (len(family), max(_newest(family))), default=[])


def _newest(runs: Iterable[Run]) -> list[str]:
    return [run.created for run in runs]


def _setting(sides: Sequence[Sequence[Run]], group: Group) -> Point | None:
    """The setting that most sides were run with; of several the one with most runs of the whole group."""
    counts = Counter(at for side in sides for at in {point(run) for run in side})
    popular = Counter(point(run) for run in group)
    return max(counts, key=lambda at: (counts[at], popular[at], str(at)), default=None)


def _most_like(side: Sequence[Run], setting: Point | None) -> Run:
    agreeing = {run.id: sum(a == b for a, b in zip(point(run), setting or ())) for run in side}
    return max(side, key=lambda run: (agreeing[run.id], run.created, run.id))
