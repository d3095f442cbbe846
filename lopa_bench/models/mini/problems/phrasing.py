"""Sentence templates with alternatives: "[So|Then] {n} has {eq} {o}." """

from __future__ import annotations

import random
import re
from collections.abc import Mapping

_ALTERNATIVES = re.compile(r"\[([^\[\]]*)\]")


def choose(text: str, rng: random.Random, variety: float) -> str:
    """Replaces each [a|b|c] by one of its alternatives.

    With probability `variety` the alternative is drawn uniformly, else it is the first. A larger variety makes text
    harder to foresee: a model trained on it is less confident and decodes fewer tokens per forward.
    """

    def draw(match: re.Match[str]) -> str:
        options = match.group(1).split("|")
        return rng.choice(options) if rng.random() < variety else options[0]

    return _ALTERNATIVES.sub(draw, text)


def fill(text: str, rng: random.Random, variety: float, words: Mapping[str, object]) -> str:
    """Chooses the alternatives of a template, then puts `words` into its {fields}."""
    return choose(text, rng, variety).format_map(words)
