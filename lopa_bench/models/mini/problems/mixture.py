"""Streams of problems: the training mixture, and held-out problems of one kind."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from lopa_bench.models.mini.problems.code_problems import code_problem
from lopa_bench.models.mini.problems.problem import Problem
from lopa_bench.models.mini.problems.word_problems import drill, word_problem


@dataclass(frozen=True)
class Mixture:
    """Shares of the kinds (word problems take the rest) and the variety of phrasing in answers."""

    variety: float
    function: float = 0.22
    completion: float = 0.14
    drill: float = 0.12

    def draw(self, rng: random.Random) -> Problem:
        point = rng.random()
        if point < self.drill:
            return drill(rng)
        if point < self.drill + self.function:
            return code_problem(rng, self.variety)
        if point < self.drill + self.function + self.completion:
            return code_problem(rng, self.variety, completion=True)
        return word_problem(rng, self.variety)


def training_problems(mixture: Mixture, seed: int, exclude: Collection[str] = ()) -> Iterator[Problem]:
    """Endless training problems; none has a held-out key, nor a question in `exclude`."""
    rng = random.Random(f"training {seed}")
    while True:
        problem = mixture.draw(rng)
        if not problem.held_out and problem.question not in exclude:
            yield problem


def held_out_problems(kind: str, seed: int, variety: float, held_out: bool = True) -> Iterator[Problem]:
    """Endless problems of one kind with distinct questions, from the held-out split (or from the training split)."""
    rng = random.Random(f"held out {kind} {seed}")
    seen: set[str] = set()
    while True:
        if kind == "word":
            problem = word_problem(rng, variety)
        else:
            problem = code_problem(rng, variety, completion=kind == "completion")
        if problem.held_out == held_out and problem.question not in seen:
            seen.add(problem.question)
            yield problem
