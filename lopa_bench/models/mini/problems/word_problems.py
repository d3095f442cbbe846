"""Word problems in the manner of GSM8K, and arithmetic drills."""

from __future__ import annotations

import random
import re

from lopa_bench.models.mini.problems.arithmetic import calculate, draw_fact, is_fact, write_fact
from lopa_bench.models.mini.problems.phrasing import fill
from lopa_bench.models.mini.problems.problem import Problem
from lopa_bench.models.mini.problems.word_templates import NEXT, TEMPLATES, WEIGHTS, Template

# Few names and things: each is one token, so that the model spends itself on the steps.
MEN = ("James", "Tom", "Ben", "Carlos", "David", "Jack", "Leo", "Mark", "Sam", "Tim", "Paul", "Adam")
WOMEN = ("Natalia", "Betty", "Julie", "Anna", "Emma", "Grace", "Jane", "Kate", "Lily", "Mia", "Nora", "Sara")
OBJECTS = (
    "apples", "pencils", "marbles", "stickers", "books", "cookies", "cards", "toys", "shells", "coins", "stamps",
    "beads", "pears", "flowers", "cups", "hats", "pens", "keys", "rocks", "plums", "lemons", "ribbons",
)  # fmt: skip
CONTAINERS = ("packs", "boxes", "bags", "jars", "baskets")
KIN = ("friend", "brother", "sister", "cousin")
MONTHS = ("March", "April", "May", "June", "July")
DRILL_LENGTH = 8

_FORMULA = re.compile(r"(\w+) = (\w+)([-+*/])(\w+)")


def word_problem(rng: random.Random, variety: float) -> Problem:
    """One word problem. Its question is always phrased with full variety, its answer with `variety`."""
    template = rng.choices(TEMPLATES, WEIGHTS)[0]
    operands, facts, result = _draw_numbers(template, rng)
    words = {**_draw_words(rng), **operands}
    question = fill(template.question, rng, 1.0, words)
    lines = [
        fill(NEXT + sentence, rng, variety, {**words, "eq": fact})
        for sentence, fact in zip(template.steps.values(), facts, strict=True)
    ]
    key = f"{template.name}:" + ",".join(f"{name}={value}" for name, value in sorted(operands.items()))
    return Problem("word", key, question, "\n".join([*lines, f"#### {result}"]), facts=facts)


def drill(rng: random.Random) -> Problem:
    """Eight facts, one a line."""
    facts = tuple(draw_fact(rng) for _ in range(DRILL_LENGTH))
    return Problem("drill", "drill", "Compute.", "\n".join(facts), facts=facts)


def _draw_numbers(template: Template, rng: random.Random) -> tuple[dict[str, int], tuple[str, ...], int]:
    """Operands for which every step is an allowed fact, those facts, and the final result."""
    while True:
        operands = {name: rng.choice(values) for name, values in template.ranges.items()}
        operands |= template.derive(operands)
        steps = _solve(template, operands) if template.allow(operands) else None
        if steps is not None:
            return operands, *steps


def _solve(template: Template, operands: dict[str, int]) -> tuple[tuple[str, ...], int] | None:
    """The facts and the last result, or None if a step is not an allowed fact."""
    values, facts, value = dict(operands), [], 0
    for formula in template.steps:
        match = _FORMULA.fullmatch(formula)
        assert match, formula
        result, left, operator, right = match.groups()
        a, b = (values[name] if name in values else int(name) for name in (left, right))
        if not is_fact(a, operator, b):
            return None
        value = values[result] = calculate(a, operator, b)
        facts.append(write_fact(a, operator, b))
    return tuple(facts), value


def _draw_words(rng: random.Random) -> dict[str, str]:
    male = rng.random() < 0.5
    name = rng.choice(MEN if male else WOMEN)
    second, third = rng.sample([other for other in MEN + WOMEN if other != name], 2)
    month = rng.randrange(len(MONTHS) - 1)
    pronouns = ("He", "he", "his") if male else ("She", "she", "her")
    return {
        "n": name, "m": second, "r": third, "o": rng.choice(OBJECTS), "box": rng.choice(CONTAINERS),
        "kin": rng.choice(KIN), "month": MONTHS[month], "later": MONTHS[month + 1],
        **dict(zip(("He", "he", "his"), pronouns, strict=True)),
    }  # fmt: skip
