"""The arithmetic that the embedded model is asked for: about 2,500 facts, learnt by lookup."""

from __future__ import annotations

import random

LARGEST = 100
ROUND_TOTALS = (20, 50, 100)  # what one pays with; any amount may be taken from these


def calculate(left: int, operator: str, right: int) -> int:
    if operator == "+":
        return left + right
    if operator == "-":
        return left - right
    if operator == "*":
        return left * right
    if operator == "/":
        return left // right
    raise ValueError(f"operator {operator!r} is none of + - * /")


def is_fact(left: int, operator: str, right: int) -> bool:
    """Whether left (operator) right is among the facts: all numbers in 1..100 and no long carry or borrow."""
    if min(left, right) < 1 or max(left, right) > LARGEST:
        return False
    if operator == "/" and left % right:
        return False
    if not 1 <= calculate(left, operator, right) <= LARGEST:
        return False
    small, large = min(left, right), max(left, right)
    if operator == "+":
        return small <= 9 or large <= 20
    if operator == "-":
        return right <= 9 or left <= 20 or left in ROUND_TOTALS
    if operator == "*":
        return (small <= 9 and large <= 12) or left == 2
    return True


def write_fact(left: int, operator: str, right: int) -> str:
    return f"{left}{operator}{right}={calculate(left, operator, right)}"


def draw_fact(rng: random.Random) -> str:
    """One fact for a drill. Differences from a round total get a large share: they are learnt last."""
    while True:
        kind = rng.random()
        if kind < 0.27:
            fact = (rng.randint(2, 9), "*", rng.randint(2, 12))
        elif kind < 0.49:
            fact = (rng.randint(2, LARGEST), "+", rng.randint(1, 9))
        elif kind < 0.72:
            fact = (rng.randint(3, LARGEST), "-", rng.randint(1, 9))
        elif kind < 0.77:
            divisor = rng.randint(2, 9)
            fact = (divisor * rng.randint(2, 12), "/", divisor)
        elif kind < 0.96:
            fact = (rng.choice(ROUND_TOTALS), "-", rng.randint(1, LARGEST - 1))
        else:
            fact = (rng.randint(3, 20), rng.choice("+-"), rng.randint(10, 20))
        if is_fact(*fact):
            return write_fact(*fact)
