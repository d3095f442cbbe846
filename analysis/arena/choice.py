"""The arena: every decoder at the setting that was chosen for it on some problems, compared on others.

An arena is two splits of the same problems (`task.rows`): the one that begins with the first problem is for tuning, the
other is held out. A contender is a decoder with its choices by word and its k; the numbers in which its runs differ are
its grid. A setting is chosen by rows of the tuning split alone, so what is measured on the other is no best of many.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from analysis.labels import decoding
from analysis.study import Group, Key, Study, place_of
from analysis.text import plain, setting
from lopa_bench.metrics.paired import PairedNumbers, compare
from lopa_bench.metrics.statistics import holm
from lopa_bench.records.runs import Run

BUDGETS = (1.0, 2.0, 5.0)  # points of accuracy that a chosen setting may lose on the tuning split
PRESET = "effective"
NO_GRID = ("k", "gen_length", "temperature")  # numbers that are no trade of quality for speed


@dataclass(frozen=True)
class Contender:
    """A decoder with its runs on both splits. `name` tells it apart from the others of its arena."""

    name: str
    tuning: Group
    held_out: Group

    @property
    def run(self) -> Run:
        return (self.tuning or self.held_out)[0]

    def setting(self, run: Run) -> str:
        """The numbers that make this run of the contender what it is: "tau_conf 0.8"."""
        every = [*self.tuning, *self.held_out]
        names = [name for name in run.settings if len({str(one.settings.get(name)) for one in every}) > 1]
        return plain(", ".join(f"{name} {setting(run.settings[name])}" for name in names))

    def held(self, chosen: Run) -> Run | None:
        """The run with the same settings on the held-out split."""
        return next((run for run in self.held_out if _same(run) == _same(chosen)), None)


@dataclass(frozen=True)
class Paired:
    """A pick and its baseline, which is the first; `adjusted_p` is Holm's over all tests of the arena."""

    baseline: Contender
    numbers: PairedNumbers
    adjusted_p: float | None = None


@dataclass(frozen=True)
class Pick:
    """What was chosen for a contender within a budget, and how it did. `why`: what is missing, in words."""

    contender: Contender
    budget: float
    chosen: Run | None = None
    held: Run | None = None
    why: str = ""
    against: Mapping[str, Paired] = field(default_factory=dict)  # "base" and "lopa"; none where there is no such pair


@dataclass(frozen=True)
class Arena:
    """`tuning` and `held_out` are all runs on the splits, on which numbers are counted: what all of a split decoded."""

    tuning: Group
    held_out: Group
    contenders: Sequence[Contender]

    @property
    def run(self) -> Run:
        return (self.tuning or self.held_out)[0]


def rows_of(run: Run) -> str | None:
    """The split that a run was told to take."""
    return (run.config.get("task") or {}).get("rows")


def split_of(group: Group) -> str:
    """In words: "1-150", "1-150, the first 20 of them"."""
    rows, limits = (
        list(dict.fromkeys(str(one) for one in found if one is not None))
        for found in ((rows_of(run) for run in group), (run.limit for run in group))
    )
    return plain(" / ".join(rows) + (f", the first {' / '.join(limits)} of them" if limits else ""))


def arenas(study: Study) -> list[Arena]:
    """One for each model, task and device with runs on a split. A split that is not there is empty.

    Of several tuning splits the one with the most runs counts, of these the largest; likewise of the held-out ones that
    share no problem with it.
    """
    places: dict[Key, list[Group]] = defaultdict(list)
    for context in study.contexts():
        group = [run for run in context if rows_of(run) and not run.is_server and not run.is_autoregressive]
        if group:
            places[place_of(group[0])].append(group)
    return [_arena(groups) for groups in places.values()]


def _arena(groups: Sequence[Group]) -> Arena:
    def weight(group: Group) -> tuple[int, int, str]:
        return len(group), len(group[0].attempted), group[0].id

    tuning = max((group for group in groups if _begins(group[0]) == 1), key=weight, default=[])
    seen = tuning[0].attempted if tuning else frozenset()
    others = [group for group in groups if _begins(group[0]) > 1 and not group[0].attempted & seen]
    held_out = max(others, key=weight, default=[])
    kinds: dict[Key, tuple[Group, Group]] = defaultdict(lambda: ([], []))
    tuning, held_out = _each_once(tuning), _each_once(held_out)
    for side, group in enumerate((tuning, held_out)):
        for run in group:
            kinds[_kind(run)][side].append(run)
    names = _names([(tuned or held)[0] for tuned, held in kinds.values()])
    return Arena(tuning, held_out, [Contender(name, *runs) for name, runs in zip(names, kinds.values(), strict=True)])


def reference(study: Study, arena: Arena) -> tuple[float | None, str]:
    """The accuracy on the tuning split that a setting may lose points against, and whose it is: of one token a call
    (greedy), which pays nothing for speed; where there is no such run, the best.
    """
    scores = {run.id: _value(study, run, "accuracy", arena.tuning) for run in arena.tuning}
    slow = [run for run in arena.tuning if run.decoder == "greedy" and run.settings.get("tokens_per_step") == 1]
    known = [score for score in scores.values() if score is not None]
    of_slow = [score for run in slow if (score := scores[run.id]) is not None]
    if of_slow:
        return max(of_slow), "greedy, one token a call"
    return max(known, default=None), "the best of all, since there is no run of one token a call"


def choose(study: Study, arena: Arena, contender: Contender, budget: float) -> Run | None:
    """The setting with the highest TPF of those that lose at most `budget` points on the tuning split."""
    best, _ = reference(study, arena)
    allowed = []
    for run in contender.tuning:
        score, tpf = (_value(study, run, name, arena.tuning) for name in ("accuracy", "tpf"))
        if best is not None and score is not None and tpf is not None and score >= best - budget / 100 - 1e-9:
            allowed.append((tpf, score, run.id, run))
    return max(allowed, default=(0, 0, "", None))[3]


def picks(study: Study, arena: Arena) -> list[Pick]:
    """For every contender and budget what was chosen, with its paired tests on the held-out split."""
    found = [_pick(study, arena, contender, budget) for contender in arena.contenders for budget in BUDGETS]
    return _adjusted([replace(pick, against=_against(study, arena, pick, found)) for pick in found])


def _pick(study: Study, arena: Arena, contender: Contender, budget: float) -> Pick:
    if not arena.tuning:
        return Pick(contender, budget, why="no tuning split (task.rows=1-...): nothing is chosen")
    if not contender.tuning:
        return Pick(contender, budget, why="no run on the tuning split: nothing is chosen")
    chosen = choose(study, arena, contender, budget)
    if chosen is None:
        return Pick(contender, budget, why="no setting of its grid loses so little")
    held = contender.held(chosen)
    if held is None:
        where = "no held-out split" if not arena.held_out else "this setting has no run on the held-out split"
        return Pick(contender, budget, chosen, why=where)
    tried = {_same(run) for run in contender.tuning}
    untried = sum(_same(run) not in tried for run in contender.held_out)
    why = f"{untried} more of its settings without a run on the tuning split" if untried else ""
    return Pick(contender, budget, chosen, held, why)


def _against(study: Study, arena: Arena, pick: Pick, every: Sequence[Pick]) -> dict[str, Paired]:
    """The same budget's pick of the base decoder, and that of the article's LoPA."""
    beside = [one for one in every if one.budget == pick.budget]
    baselines = {"base": _base(study, arena, pick, beside), "lopa": _lopa(study, arena, beside)}
    found = {}
    for name, other in baselines.items():
        if other is None or other.held is None or pick.held is None or other.held.id == pick.held.id:
            continue
        tables = study.shared(arena.held_out)
        a, b = ((tables[run.id] or run.samples) for run in (other.held, pick.held))
        found[name] = Paired(other.contender, compare(a, b, PRESET, other.held.seed))
    return found


def _lopa(study: Study, arena: Arena, beside: Sequence[Pick]) -> Pick | None:
    """The article's LoPA; with several k or bases the one that is fastest on the tuning split."""
    found = [one for one in beside if one.chosen and one.chosen.lookahead and is_articles(one.chosen)]
    return max(found, key=lambda one: _value(study, one.chosen, "tpf", arena.tuning) or 0.0, default=None)


def is_articles(run: Run) -> bool:
    """Whether its branches are chosen as in the article."""
    return run.settings.get("select") in (None, "score") and not run.settings.get("score.target")


def _base(study: Study, arena: Arena, pick: Pick, beside: Sequence[Pick]) -> Pick | None:
    """Without lookahead: the base of a decoder with lookahead, else the one that LoPA stands on in this arena."""
    bases = [one.contender.run.base for one in beside if one.contender.run.lookahead]
    base = pick.contender.run.base if pick.contender.run.lookahead or not bases else bases[0]
    plain_ones = [one for one in beside if not one.contender.run.lookahead and one.contender.run.base == base]
    chosen = [one for one in plain_ones if one.chosen]
    return max(chosen, key=lambda one: _value(study, one.chosen, "tpf", arena.tuning) or 0.0, default=None)


def _adjusted(found: Sequence[Pick]) -> list[Pick]:
    """Holm over the distinct pairs of runs: a pair that stands in several lines, either way round, is one test."""

    def pairs(pick: Pick) -> dict[str, frozenset[str]]:
        held = {one.contender.name: one.held for one in found if one.budget == pick.budget and one.held}
        own = pick.held.id if pick.held else ""
        return {name: frozenset((held[one.baseline.name].id, own)) for name, one in pick.against.items()}

    tests = {
        pair: p
        for pick in found
        for name, pair in pairs(pick).items()
        if (p := pick.against[name].numbers.mcnemar_p) is not None
    }
    corrected = dict(zip(tests, holm(list(tests.values())), strict=True))
    return [
        replace(pick, against={
            name: replace(pick.against[name], adjusted_p=corrected.get(pair)) for name, pair in pairs(pick).items()
        })
        for pick in found
    ]  # fmt: skip


def _value(study: Study, run: Run | None, quantity: str, among: Group) -> float | None:
    if run is None:
        return None
    return study.value(run, quantity, PRESET if quantity == "tpf" else None, among).value


def _begins(run: Run) -> int:
    return int(str(rows_of(run)).partition("-")[0])


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _words(run: Run) -> dict[str, str]:
    """The settings that make a contender: choices by word, and numbers that are no grid."""
    return {
        name: str(value)
        for name, value in run.settings.items()
        if name in NO_GRID or not (value is None or _is_number(value))
    }


def _kind(run: Run) -> Key:
    return run.decoder, run.wraps, tuple(sorted(_words(run).items()))


def _same(run: Run) -> Key:
    """What decodes alike; a setting that an older version did not have is as one that is not set."""
    known = {name: str(value) for name, value in run.settings.items() if value is not None}
    return run.decoder, run.wraps, tuple(sorted(known.items()))


def _each_once(group: Group) -> Group:
    """Of runs with the same settings the newest."""
    newest = {_same(run): run for run in sorted(group, key=lambda run: (run.created, run.id))}
    return sorted(newest.values(), key=lambda run: run.id)


def _names(runs: Sequence[Run]) -> list[str]:
    """What each contender is called: its decoder, and the words in which others of that name differ."""
    names = []
    for run in runs:
        words = [_words(other) for other in runs if decoding(other) == decoding(run)]
        every = dict.fromkeys(name for one in words for name in one)
        own = [name for name in every if len({one.get(name) for one in words}) > 1]
        names.append(", ".join([decoding(run), *(f"{name} {plain(_words(run).get(name, 'null'))}" for name in own)]))
    return names
