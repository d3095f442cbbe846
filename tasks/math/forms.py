"""What the form of a LaTeX answer says and math-verify does not look at: bases, lists, words, units, spaced digits."""

from __future__ import annotations

import re

from tasks.math.answers import TEXT, tidy

LONGEST = 2000  # characters of an answer that is looked at; the golds of MATH have less than 200
SPACE = re.compile(r"\\[,;: ]|~|\\q?quad\b|[\s\u00a0\u2009\u202f]+")
THOUSANDS = re.compile(r"(?<![\d.,])\d{1,3}(?:,\d{3})+(?![\d])|(?<![\d.,])\d{1,3}(?: \d{3})+(?![\d ])")
MIXED = re.compile(r"(?<![\d/.])(\d+) (\d+)/(\d+)(?![\d/])")
BASE = re.compile(r"\(?(?P<digits>[0-9A-Z]+)\)?_\{?(?P<base>\d+)\}?")
AND = re.compile(r"\\(?:text|mathrm|mbox)\s*\{\s*,?\s*(?:and|or)\s*\}|\b(?:and|or)\b|;")
WORD = re.compile(r"[A-Za-z][A-Za-z '.,-]*[A-Za-z]")
BRACKETS = re.compile(r"\\left|\\right|\\[Bb]igg?[lr]?(?![A-Za-z])")
NAME = re.compile(
    r"\\?[A-Za-z]+(?:_\{?\w+\}?)?'?|[A-Za-z]\s*\([A-Za-z, ]*\)|\([A-Za-z, ]+\)"
)  # what "y = 2x" may leave out
NAMED = re.compile(r"=|\\in(?![a-z])")  # "(x,y)=(3,5)", "x \\in [2,5]"
RELATION = re.compile(r"\\c[ua]p|[<>]|\\[lg]eq?(?![a-z])")  # one set can be written as intervals or as inequalities
PLUS_MINUS = re.compile(r"\\(?:pm|mp)(?![A-Za-z])|±|∓")
OPENING, CLOSING = "([{", ")]}"
UNITS = {
    "cent": "cents", "dollar": "dollars \\$", "degree": "degrees \\circ", "radian": "radians", "second": "seconds sec",
    "minute": "minutes min", "hour": "hours hr h", "day": "days", "week": "weeks", "month": "months", "year": "years",
    "millimetre": "mm millimeter millimeters", "centimetre": "cm centimeter centimeters", "metre": "m meter meters",
    "kilometre": "km kilometer kilometers", "inch": "inches in", "foot": "feet ft", "yard": "yards yd",
    "mile": "miles mi", "gram": "grams g", "kilogram": "kilograms kg", "ounce": "ounces oz", "pound": "pounds lb lbs",
}  # fmt: skip
UNIT_OF = {word: unit for unit, words in UNITS.items() for word in (unit, *words.split())}
STATED = re.compile(r"\\\$|\\circ|\\(?:text|mathrm|mbox|textrm)\s*\{\s*([A-Za-z]+)\s*\}|(?<=\d)\s*([A-Za-z]{2,})\.?$")


def plain(answer: str) -> str:
    """With plain spaces, numbers without separators, mixed numbers as LaTeX, and digits set apart as a list."""
    answer = SPACE.sub(" ", answer.replace("\\!", "").replace("{,}", ",")).strip()
    answer = THOUSANDS.sub(lambda number: re.sub("[, ]", "", number.group()), answer)
    answer = MIXED.sub(r"\1\\frac{\2}{\3}", answer)
    if re.search(r"\\[A-Za-z]+ ?\d", answer):  # "\frac 1 2"
        return answer
    return re.sub(r"(?<=\d) (?=\d)", ", ", answer)


def by_form(gold: str, answer: str) -> tuple[bool, str] | None:
    """A verdict on two plain answers with its reason, where their form alone decides; else None."""
    if (verdict := _by_base(gold, answer)) is not None:
        return verdict, "bases"
    if _is_word(gold):
        return _bare_word(gold) == _bare_word(answer), "words"
    if "=" in gold and "=" not in answer and not NAME.fullmatch(gold.partition("=")[0].strip()):
        return False, "no equation"
    if not RELATION.search(gold + answer) and (differing := _by_parts(gold, answer)):
        return differing
    units, other_units = _units(gold), _units(answer)
    if units and other_units and units != other_units:
        return False, "units"
    return None


def _by_parts(gold: str, answer: str) -> tuple[bool, str] | None:
    (kind, parts), (other_kind, other_parts) = _parts(gold), _parts(answer)
    both_listed = bool(kind) == bool(other_kind) or (parts > 1 and other_parts > 1)  # "x > 2" may be an interval
    if parts != other_parts and both_listed and "{}" not in (kind, other_kind):
        return False, f"{other_parts} values where {parts} are right"
    if parts > 1 and other_parts > 1 and kind and other_kind and kind != other_kind:
        return False, f"{other_kind} is not {kind}"
    return None


def _by_base(gold: str, answer: str) -> bool | None:
    """ "2516_8" is not 2516_9. A gold's base need not be said, as the question names it."""
    number, other = _in_base(gold), _in_base(answer)
    if number and other:
        return number == other
    if other and re.fullmatch(r"\d+", gold):
        return int(other[0], other[1]) == int(gold)
    return None


def _in_base(answer: str) -> tuple[str, int] | None:
    found = BASE.fullmatch(answer.replace(" ", "").replace("$", ""))
    if found is None or not 2 <= int(found["base"]) <= 36:
        return None
    digits, base = found["digits"].lstrip("0") or "0", int(found["base"])
    return (digits, base) if all(int(digit, 36) < base for digit in digits) else None


def _is_word(gold: str) -> bool:
    """Letters that are no product of variables: in \\text{}, or four and more of them."""
    word = TEXT.sub(r"\1", tidy(gold)).strip("() ")
    return WORD.fullmatch(word) is not None and (TEXT.search(gold) is not None or len(word) > 3)


def _bare_word(answer: str) -> str:
    return re.sub(r"[^a-z0-9\\^_{}+*/=-]", "", TEXT.sub(r"\1", tidy(answer)).lower())


def _parts(answer: str) -> tuple[str, int]:
    """The brackets around the whole ("" if there are none) and how many values a list, tuple or set holds."""
    text = BRACKETS.sub("", AND.sub(",", answer)).replace("\\{", "{").replace("\\}", "}").replace(" ", "")
    kind, values = _count(text)
    return _count(NAMED.split(text)[-1]) if values == 1 and not kind else (kind, values)


def _count(text: str) -> tuple[str, int]:
    kind = _brackets(text)
    inner = text[1:-1] if kind else text
    depth, sizes = 0, [0]
    for sign in inner:
        depth += (sign in OPENING) - (sign in CLOSING)
        if sign == "," and depth == 0:
            sizes.append(0)
        else:
            sizes[-1] += 1
    values = sum(1 for size in sizes if size)
    return kind, 2 * values if PLUS_MINUS.search(inner) else values


def _brackets(text: str) -> str:
    """The first and last sign, if they are a pair of brackets around all; those of an interval need not match."""
    if len(text) < 2 or text[0] not in OPENING or text[-1] not in CLOSING:
        return ""
    depth = 0
    for place, sign in enumerate(text):
        depth += (sign in OPENING) - (sign in CLOSING)
        if depth == 0:
            return text[0] + text[-1] if place == len(text) - 1 else ""
    return ""


def _units(answer: str) -> set[str]:
    words = (found[1] or found[2] or found.group() for found in STATED.finditer(answer))
    return {UNIT_OF[word] for word in words if word in UNIT_OF}
