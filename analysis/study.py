"""A set of runs with their numbers, computed once and only when asked for; and the ways in which runs form series."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from analysis.numbers import Numbers, Value, measure
from analysis.runs import Run, find_runs, usable
from analysis.stepwise import Digest, digest

Key = tuple[Any, ...]
# What makes the problems of two runs the same problems.
PROBLEMS = ("source_sha256", "limit")


class Study:
    """The finished runs under an output folder."""

    def __init__(self, runs: Iterable[Run]) -> None:
        self.all_runs = list(runs)
        self.runs = usable(self.all_runs)
        self._numbers: dict[str, Numbers] = {}
        self._digests: dict[str, Digest] = {}
        self._series: dict[Key, list[list[Run]]] = {}

    @classmethod
    def of(cls, root: Path | str) -> Study:
        return cls(find_runs(root))

    def numbers(self, run: Run) -> Numbers:
        if run.id not in self._numbers:
            self._numbers[run.id] = measure(run)
        return self._numbers[run.id]

    def value(self, run: Run, quantity: str, preset: str | None = None) -> Value:
        return self.numbers(run).get(quantity, preset)

    def digest(self, run: Run) -> Digest:
        if run.id not in self._digests:
            self._digests[run.id] = digest(run)
        return self._digests[run.id]

    def series(self, *varied: str) -> list[list[Run]]:
        """Groups of runs that differ in the named settings and in nothing else, the largest first.

        Of runs with equal settings the one with the most samples is kept, of those the newest.
        """
        if varied not in self._series:
            self._series[varied] = self._grouped(varied)
        return self._series[varied]

    def _grouped(self, varied: Key) -> list[list[Run]]:
        groups: dict[Key, dict[Key, Run]] = defaultdict(dict)
        for run in sorted(self.runs, key=lambda run: (run.row["n"] or 0, run.row["created"])):
            if all(name in run.settings for name in varied):
                groups[_rest(run, varied)][tuple(run.settings[name] for name in varied)] = run
        found = [sorted(group.values(), key=lambda run: _order(run, varied)) for group in groups.values()]
        return sorted(found, key=lambda group: (-len(group), group[0].id))

    def distinct(self) -> list[Run]:
        """The runs without repetitions of the same settings."""
        return [run for group in self.series() for run in group]

    def k_series(self) -> dict[tuple[str, str], list[Run]]:
        """The longest series over k of each model and task, k ascending; this is what the article's figures show."""
        longest: dict[tuple[str, str], list[Run]] = {}
        for group in self.series("k"):
            fixed = [run for run in group if run.k is not None]
            if len(fixed) > 1:
                longest.setdefault((group[0].model, group[0].task), fixed)
        return longest

    def baseline(self, like: Run, base: str | None = None) -> Run | None:
        """The run of a base decoder, by default `like`'s own, without lookahead, on the same problems and model.

        A base decoder run as itself is preferred to LoPA with k = 0, which has lookahead's attention.
        """
        base = base or like.base
        fitting = [
            run for run in self.runs
            if run.model == like.model and same_problems(run, like) and run.base == base and run.k == 0
        ]  # fmt: skip
        return min(fitting, key=lambda run: (run.row["decoder"] == "lopa", -likeness(run, like)), default=None)


@lru_cache
def open_study(root: Path | str) -> Study:
    return Study.of(root)


def same_problems(a: Run, b: Run) -> bool:
    return a.task == b.task and all(a.row[name] == b.row[name] for name in PROBLEMS)


def likeness(a: Run, b: Run) -> int:
    """In how many decoder settings two runs agree."""
    return sum(1 for name, value in b.settings.items() if a.settings.get(name) == value)


def best(runs: Sequence[Run]) -> Run | None:
    """Of runs that answer the same question the one with the most samples, of those the newest."""
    return max(runs, key=lambda run: (run.row["n"] or 0, run.row["created"]), default=None)


def _rest(run: Run, varied: Sequence[str]) -> Key:
    """Everything about a run but the named settings."""
    kept = tuple(sorted((name, str(value)) for name, value in run.settings.items() if name not in varied))
    where = tuple(
        str(run.row[name]) for name in ("model", "model_sha256", "task", *PROBLEMS, "backend", "device", "dtype")
    )
    return (*where, kept)


def _order(run: Run, varied: Sequence[str]) -> tuple[tuple[bool, float, str], ...]:
    values = [run.settings[name] for name in varied]
    return tuple(
        (not isinstance(value, int | float), value if isinstance(value, int | float) else 0.0, str(value))
        for value in values
    )
