"""A set of runs with their numbers, computed once and only when asked for; and the ways in which runs form series.

Runs stand side by side only where `metrics.comparable` lets them: a *context* is a group of runs that differ in their
decoder alone, on the same problems. Of runs with one decoder the largest stands, of these the newest.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analysis.stepwise import Digest, digest
from lopa_bench.errors import RunError
from lopa_bench.metrics import aggregate
from lopa_bench.metrics.aggregate import Estimates
from lopa_bench.metrics.comparable import Counted, Standing, key, shared, stand
from lopa_bench.metrics.statistics import Estimate
from lopa_bench.records.finding import find_runs
from lopa_bench.records.joining import usable
from lopa_bench.records.runs import Run

if TYPE_CHECKING:
    import pyarrow as pa

Key = tuple[Any, ...]
Group = list[Run]  # runs that stand side by side
SERVED = "ar_server"  # the preset of runs against a server, which has its own counts and no others


def measure(run: Run, samples: pa.Table | None = None) -> Estimates:
    """The numbers of a run; of these of its samples only, if they are given."""
    seed = run.seed
    if samples is None:
        return aggregate.measure(run.samples, seed, run.wall_s)
    return aggregate.measure(samples, seed)


def preset_for(run: Run, preset: str) -> str:
    """`preset`, or that of a server where a server decoded."""
    return SERVED if run.is_server and not run.is_imported else preset


class Study:
    """The finished runs under an output folder."""

    def __init__(self, runs: Iterable[Run]) -> None:
        self.all_runs = list(runs)
        self.runs = usable(self.all_runs)
        self._numbers: dict[Key, Estimates] = {}
        self._digests: dict[Key, Digest] = {}
        self._shared: dict[Key, dict[str, pa.Table | None]] = {}
        self._series: dict[Key, list[Group]] = {}

    @classmethod
    def of(cls, root: Path | str) -> Study:
        return cls(find_runs(root))

    @classmethod
    def finished(cls, root: Path | str) -> Study:
        """The same; RunError where there is no finished run."""
        study = cls.of(root)
        if not study.runs:
            seen = f"; {len(study.all_runs)} unfinished or damaged left out" if study.all_runs else ""
            raise RunError(f"no finished run under {root}{seen}; python -m lopa_bench makes one")
        return study

    def numbers(self, run: Run, among: Sequence[Run] = ()) -> Estimates:
        """Of all its samples; of a run `among` others, of the samples that all of them decoded."""
        samples = self.shared(among)[run.id] if among else None
        name = (run.id, _ids(among) if samples is not None else None)
        if name not in self._numbers:
            self._numbers[name] = measure(run, samples)
        return self._numbers[name]

    def value(self, run: Run, quantity: str, preset: str | None = None, among: Sequence[Run] = ()) -> Estimate:
        return self.numbers(run, among).get(quantity, preset)

    def digest(self, run: Run, among: Sequence[Run] = ()) -> Digest:
        samples = self.shared(among)[run.id] if among else None
        name = (run.id, _ids(among) if samples is not None else None)
        if name not in self._digests:
            self._digests[name] = digest(run, samples)
        return self._digests[name]

    def shared(self, runs: Sequence[Run]) -> dict[str, pa.Table | None]:
        """For each run the samples that all of them decoded; None where these are all that it has."""
        name = _ids(runs)
        if name not in self._shared:
            tables = shared([run.samples for run in runs])
            self._shared[name] = {
                run.id: None if _is_whole(run, table) else table for run, table in zip(runs, tables, strict=True)
            }
        return self._shared[name]

    def contexts(self) -> list[Group]:
        """All runs, in groups that differ in their decoder alone, each decoder once; the largest groups of samples
        first.
        """
        groups: dict[Key, Group] = defaultdict(list)
        for run in self.runs:
            groups[place_of(run), run.attempted].append(run)
        found = [_each_once(group) for group in groups.values()]
        return sorted(found, key=lambda group: (-len(group[0].attempted), -len(group), group[0].id))

    def largest(self, runs: Iterable[Run], enough: Callable[[Group], bool]) -> list[Group]:
        """Of runs that differ in their decoder alone or in their problems: one group for each of the rest (model, task,
        device, ...), on the most problems for which the group is `enough`. Where no set of problems is, runs on several
        sets stand together, to be counted on what they share.
        """
        places: dict[Key, Group] = defaultdict(list)
        for run in runs:
            places[place_of(run)].append(run)
        chosen = (self._most(group, enough) for group in places.values())
        return [group for group in chosen if group]

    def _most(self, runs: Group, enough: Callable[[Group], bool]) -> Group:
        pools: dict[frozenset[Any], Group] = defaultdict(list)
        for run in runs:
            pools[run.attempted].append(run)
        largest_first = sorted(pools.values(), key=lambda pool: (-len(pool[0].attempted), -len(pool)))
        for alone in map(_each_once, largest_first):
            if enough(alone):
                return alone
        for last in range(1, len(largest_first)):
            together = _each_once(run for pool in largest_first[: last + 1] for run in pool)
            if enough(together) and shared([run.samples for run in together])[0].num_rows:
                return together
        return []

    def series(self, *varied: str) -> list[Group]:
        """Groups of runs that differ in the named decoder settings and in nothing else, the largest first."""
        if varied not in self._series:
            groups: dict[Key, Group] = defaultdict(list)
            for context in self.contexts():
                for run in context:
                    if all(name in run.settings for name in varied):
                        groups[place_of(run), run.attempted, _rest(run, varied)].append(run)
            found = [sorted(group, key=lambda run: _order(run, varied)) for group in groups.values()]
            self._series[varied] = sorted(found, key=lambda group: (-len(group), group[0].id))
        return self._series[varied]

    def distinct(self) -> list[Run]:
        """The runs without repetitions of the same settings on the same problems."""
        return [run for group in self.contexts() for run in group]

    def k_series(self) -> list[Group]:
        """For each model, task and device the series over k with the most samples, of those the longest, k ascending;
        this is what the article's figures show.
        """
        chosen: dict[Key, Group] = {}
        for group in self._k_candidates():
            place = place_of(group[0])
            if place not in chosen or _weight(group) > _weight(chosen[place]):
                chosen[place] = group
        return list(chosen.values())

    def _k_candidates(self) -> list[Group]:
        """Series over k on the same problems; where a model and task has none, series on what their runs share."""

        def of_numbers(group: Iterable[Run]) -> Group:
            return sorted((run for run in group if run.k is not None), key=lambda run: run.k or 0)

        found = [fixed for group in self.series("k") if len(fixed := of_numbers(group)) > 1]
        places = {place_of(group[0]) for group in found}
        groups: dict[Key, Group] = defaultdict(list)
        for run in self.runs:
            if run.k is not None and "k" in run.settings and place_of(run) not in places:
                groups[_rest(run, ["k"])].append(run)
        for group in groups.values():
            found += map(of_numbers, self.largest(group, lambda runs: len(of_numbers(runs)) > 1))
        return found

    def baseline(self, like: Run, base: str | None = None) -> Run | None:
        """The run of a base decoder, by default `like`'s own, without lookahead, in the same place.

        The one with the most problems in common; of those the one with the most decoder settings in common.
        """
        base = base or like.base
        fitting = [
            run for run in self.runs
            if run is not like and run.base == base and run.k == 0 and place_of(run) == place_of(like)
        ]  # fmt: skip
        beside = [(pairs, run) for run in fitting if (pairs := len(run.decoded & like.decoded))]
        return max(
            beside,
            key=lambda one: (one[0], -_tuned_apart(one[1], like), one[1].decoder != "lopa",
                             likeness(one[1], like), one[1].created),
            default=(0, None),
        )[1]  # fmt: skip

    def standing(self, a: Run, b: Run, but: Sequence[str] = ()) -> Standing:
        return stand(Counted(a, a.samples), Counted(b, b.samples), but)


def place_of(run: Run) -> Key:
    """All that two runs must share to stand side by side, but the problems of a source."""
    return key(run)


# Settings with which a base decoder trades quality for speed. Who is shown at the best of several of them was tuned.
TUNED = (
    "tau_conf",
    "tau_add",
    "tau_act",
    "factor",
    "gamma",
    "delta",
    "tau_entropy",
    "tau_kl",
    "kl_steps",
    "tokens_per_step",
    "steps",
    "block_size",
    "buffer_size",
)


def _tuned_apart(a: Run, b: Run) -> int:
    return sum(a.settings.get(name) != b.settings.get(name) for name in TUNED)


def likeness(a: Run, b: Run) -> int:
    """In how many decoder settings two runs agree."""
    return sum(1 for name, value in b.settings.items() if a.settings.get(name) == value)


def best(runs: Iterable[Run]) -> Run | None:
    """Of runs that answer the same question the one with the most samples, of those the newest."""
    return max(runs, key=_size, default=None)


def _size(run: Run) -> tuple[int, str]:
    return run.n, run.created


def _each_once(runs: Iterable[Run]) -> Group:
    """Each decoder with its settings once."""
    chosen: dict[Key, Run] = {}
    for run in sorted(runs, key=_size):
        chosen[_rest(run, ())] = run
    return sorted(chosen.values(), key=lambda run: run.id)


def _weight(group: Group) -> tuple[int, int, str]:
    return min(run.n for run in group), len(group), max(run.created for run in group)


def _ids(runs: Sequence[Run]) -> Key:
    return tuple(sorted(run.id for run in runs))


def _is_whole(run: Run, samples: pa.Table) -> bool:
    """Whether these are all samples that a run decoded, with all of its verdicts."""
    return (samples.num_rows, _judged(samples)) == (len(run.decoded), _judged(run.samples))


def _judged(samples: pa.Table) -> int:
    return samples.num_rows - samples["correct"].null_count


def _rest(run: Run, varied: Sequence[str]) -> Key:
    """Decoder and settings, but for the named ones; where a score of one's own comes from goes with its name."""
    left_out = {*varied, "score.target"} if "score.kind" in varied else varied
    kept = tuple(sorted((name, str(value)) for name, value in run.settings.items() if name not in left_out))
    return (run.decoder, run.wraps, kept)


def _order(run: Run, varied: Sequence[str]) -> tuple[tuple[bool, float, str], ...]:
    values = [run.settings[name] for name in varied]
    return tuple(
        (not isinstance(value, int | float), value if isinstance(value, int | float) else 0.0, str(value))
        for value in values
    )
