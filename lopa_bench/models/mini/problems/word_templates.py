"""The 15 kinds of word problems: three with one step, nine with two, three with three.

A step "x = a*b" names its result and its operands; {eq} in its sentence becomes, say, "6*7=42".
Alternatives in an answer mostly have as many words as each other, so that the place of what follows is foreseeable.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

Values = Mapping[str, int]
NEXT = "[So|Then|Thus|Next] "


@dataclass(frozen=True)
class Template:
    """`ranges` are what the operands are drawn from; `derive` adds operands that follow from the drawn ones. `steps`:
    formula -> its sentence, which NEXT begins.
    """

    name: str
    weight: float
    ranges: Mapping[str, Sequence[int]]
    question: str
    steps: Mapping[str, str]
    allow: Callable[[Values], bool] = field(default=lambda v: True)
    derive: Callable[[Values], dict[str, int]] = field(default=lambda v: {})


def upto(low: int, high: int) -> range:
    return range(low, high + 1)


ONE_STEP = (
    Template(
        "gain", 0.6, {"a": upto(2, 90), "b": upto(2, 20)},
        "{n} has {a} {o} and [finds|gets] {b} more. How many {o} does {he} have?",
        {"x = a+b": "[{n}|{he}] [has|owns] {eq} {o} [now|total]."},
    ),
    Template(
        "lose", 0.8, {"a": (*upto(3, 99), *[20, 50, 100] * 20), "b": upto(2, 60)},
        "{n} has {a} {o} and [sells|loses] {b} of them. How many {o} are left?",
        {"x = a-b": "[{n}|{he}] [has|keeps] {eq} {o} [left|now]."},
    ),
    Template(
        "boxes", 0.4, {"a": upto(2, 9), "b": upto(2, 12)},
        "There are {a} {box} with {b} {o} in each. How many {o} are there?",
        {"x = a*b": "there [are|were] {eq} {o} [total|altogether]."},
    ),
)  # fmt: skip

TWO_STEPS = (
    Template(
        "gift", 1.0, {"a": upto(2, 9), "b": upto(2, 12), "c": upto(1, 9)},
        "{n} [buys|has] {a} {box} of {o} with {b} in each and gives {c} {o} to {his} {kin}. How many are left?",
        {"x = a*b": "[{n}|{he}] [has|owns] {eq} {o} [total|first].",
         "y = x-c": "[{n}|{he}] [has|keeps] {eq} {o} [left|now]."},
    ),
    Template(
        "change", 1.5, {"a": upto(2, 9), "b": upto(2, 12), "bill": (20, 50, 100)},
        "{n} buys {a} {o} for ${b} each and pays with ${bill}. How much [change|money] does {he} get back?",
        {"x = a*b": "[{n}|{he}] [spends|pays] ${eq} [total|first].",
         "y = bill-x": "[{n}|{he}] [gets|has] ${eq} [back|left]."},
    ),
    Template(
        "months", 0.9, {"a": upto(2, 9), "c": upto(2, 6)},
        "{n} sold {a} {o} in {month} and {c} times as many in {later}. How many [in both months|in both]?",
        {"x = c*a": "in {later} [{n}|{he}] sold {eq} {o}.",
         "y = x+a": "in [both|all] [{n}|{he}] sold {eq} {o}."},
    ),
    Template(
        "age", 0.9, {"a": upto(2, 9), "b": upto(5, 60), "c": upto(2, 9)},
        "{m} is {b} years old. {n} is {a} years older. How old is {n} [after|in] {c} years?",
        {"x = b+a": "[{n}|{he}] is {eq} years old [now|today].",
         "y = x+c": "in {c} years [{n}|{he}] is {eq}."},
    ),
    Template(
        "book", 0.9, {"a": upto(2, 9), "b": upto(2, 12), "c": upto(2, 9)},
        "{n} reads {b} pages a day. After {a} days {c} pages are left. How long is the book?",
        {"x = a*b": "[{n}|{he}] [finished|read] {eq} pages [already|first].",
         "y = x+c": "the book [has|contains] {eq} pages [total|altogether]."},
    ),
    Template(
        "share", 1.0, {"a": upto(2, 12), "b": upto(2, 9), "c": upto(1, 9)},
        "{n} has {all} {o}, gets {c} more and [splits|shares] them among {b} {kin}s. How many does each get?",
        {"x = all+c": "[{n}|{he}] [has|owns] {eq} {o} [total|now].",
         "y = x/b": "each {kin} [gets|receives] {eq} {o}."},
        derive=lambda v: {"all": v["a"] * v["b"] - v["c"]},
    ),
    Template(
        "bus", 1.0, {"a": upto(10, 90), "b": upto(2, 9), "c": upto(2, 9)},
        "A [bus|train|boat] carries {a} people. {b} get off and {c} get on. How many people does it carry now?",
        {"x = a-b": "it [carries|has] {eq} people [left|first].",
         "y = x+c": "it [carries|has] {eq} people [now|total]."},
    ),
    Template(
        "compare", 1.0, {"a": upto(2, 12), "b": upto(2, 9), "c": upto(2, 9)},
        "{n} has {a} {o}. {m} has {b} times as many. {r} has {c} [fewer|less] than {m}. How many does {r} have?",
        {"x = b*a": "{m} [has|owns] {eq} {o} [total|now].",
         "y = x-c": "{r} [has|owns] {eq} {o} [total|now]."},
    ),
    Template(
        "fence", 0.8, {"a": upto(3, 20), "b": upto(3, 20)},
        "A [garden|yard|field] is {a} feet long and {b} feet wide. How long is the fence around it?",
        {"x = a+b": "two sides [measure|are] {eq} feet [total|first].",
         "y = 2*x": "the fence [measures|is] {eq} feet [total|long]."},
        allow=lambda v: v["a"] != v["b"],
    ),
)  # fmt: skip

THREE_STEPS = (
    Template(
        "hens", 1.2, {"a": upto(2, 9), "b": upto(2, 5), "c": upto(1, 9), "d": upto(2, 9)},
        "{n} has {a} hens that lay {b} eggs each. {He} eats {c} eggs and sells the rest for ${d} each. "
        "How much does {he} [make|earn]?",
        {"x = a*b": "the hens [lay|give] {eq} eggs [total|first].",
         "y = x-c": "[{n}|{he}] [sells|has] {eq} eggs [left|now].",
         "z = y*d": "[{n}|{he}] [makes|earns] ${eq} [total|now]."},
    ),
    Template(
        "save", 1.3, {"a": upto(2, 9), "b": upto(2, 12), "c": upto(1, 9), "d": upto(1, 9)},
        "{n} saves ${b} a week for {a} weeks, spends ${c} on a [game|book|gift] and earns ${d}. "
        "How much does {he} have?",
        {"x = a*b": "[{n}|{he}] [saves|has] ${eq} [total|first].",
         "y = x-c": "[{n}|{he}] [keeps|has] ${eq} [left|now].",
         "z = y+d": "[{n}|{he}] [ends|stops] with ${eq}."},
    ),
    Template(
        "tickets", 1.2, {"a": upto(2, 9), "b": upto(3, 9), "c": upto(2, 4), "d": upto(2, 4)},
        "A [show|fair|zoo] costs ${b} for adults and ${d} for children. How much do {a} adults and {c} children pay?",
        {"x = a*b": "the adults [pay|spend] ${eq} [total|first].",
         "y = c*d": "the children [pay|spend] ${eq} [total|next].",
         "z = x+y": "they all [pay|spend] ${eq} [total|together]."},
        allow=lambda v: v["b"] > v["d"],
    ),
)  # fmt: skip

TEMPLATES = (*ONE_STEP, *TWO_STEPS, *THREE_STEPS)
WEIGHTS = [template.weight for template in TEMPLATES]
