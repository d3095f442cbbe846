"""Reading the final number of a GSM8K completion. (The rules of lm_eval are in gsm8k_lm_eval.py.)"""

from __future__ import annotations

import re
from decimal import Decimal
from fractions import Fraction

from tasks.segments import answer_segment, last_box

# A number as models write it: sign, currency, thousands separators, decimals, exponent, fraction, mixed number.
# A minus after a digit, letter or bracket is a subtraction, and one before a space a bullet: "18 - 5" ends in 5.
NUMBER = re.compile(
    r"""(?P<sign>(?<![\w)\]])(?<![\w)\]][ ])-)?
        (?:\\?[$€£¥]\s?)?
        (?P<inner>-)?
        (?:(?P<whole>\d+)[ ](?=\d+/\d))?
        (?P<number>(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?|(?<!\d)\.\d+)
        (?P<exponent>[eE][+-]?\d{1,2}(?!\w))?
        (?:\s?/\s?(?P<denominator>0*[1-9]\d*)(?![\d/]))?""",
    re.VERBOSE,
)
# "x =" or "2 + 3 =" before the number that counts.
TERM = r"\(*\\?\$?[\d.,]+\)*"
EQUATION = rf"(?:\w[ \t]*=[ \t]*|(?:{TERM}(?:[ \t]*[-+*/x×÷][ \t]*{TERM})+[ \t]*=[ \t]*)+)?"
DECORATION = r"(?:\\boxed\{|\\\(|[*_\s(:~≈])*"
MARKER = re.compile(
    r"\#{4}[ \t]*(?:(?:the\s+)?(?:final\s+)?answer(?:\s+is)?\s*:?\s*)?" + DECORATION + EQUATION + DECORATION,
    re.IGNORECASE,
)
# "#### 2. Add the tax" above more text is a heading of Markdown, not an answer.
HEADING = re.compile(r"\d{1,2}[.):]\s+[*_]*[A-Za-z]")
PHRASE = re.compile(r"answer(?:\s+is)?\s*(?:[:=]|(?<=is))" + DECORATION + EQUATION + DECORATION, re.IGNORECASE)


def strict_answer(completion: str) -> str | None:
    """The number after the last "####" of the asked question's own answer."""
    segment = answer_segment(completion)
    return None if segment is None else _after_marker(_plain(segment))


def flexible_answer(completion: str) -> str | None:
    """The number after the last "####", else in the last \\boxed{}, else after "answer is" or "Answer:", else the last.

    The gold answer is never looked at: a completion whose last number is a left-over is wrong.
    """
    segment = answer_segment(completion)
    if segment is None:
        return None
    text = _plain(segment)
    return _after_marker(text) or _in_box(text) or _after_phrase(text) or _last(text)


def canonical(match: re.Match[str]) -> str:
    """The value of a NUMBER match as text: "1,450.00" -> "1450", "3/4" -> "0.75", "1/3" -> "1/3"."""
    value = Fraction(match["number"].replace(",", "") + (match["exponent"] or ""))
    if match["denominator"]:
        value /= int(match["denominator"])
    value += int(match["whole"] or 0)
    return _text_of(-value if match["sign"] or match["inner"] else value)


def same_number(left: str | None, right: str | None) -> bool:
    return left is not None and right is not None and Fraction(left) == Fraction(right)


def _text_of(value: Fraction) -> str:
    """Decimal notation where the expansion ends within the digits that models write, else a fraction."""
    for digits in range(20):
        if 10**digits % value.denominator == 0:
            return f"{Decimal(value.numerator * 10**digits // value.denominator).scaleb(-digits):f}"
    return str(value)


def _plain(text: str) -> str:
    """Unicode minus signs and LaTeX's separators in their plain form; \\frac{a}{b} as a/b."""
    text = re.sub("[\u2212\u2012\u2013](?=[$€£¥]?\\.?\\d)", "-", text)
    text = re.sub(r"\{,\}|(?<=\d)(?:\\[,!]|[\u00a0\u202f\u2009])(?=\d{3})", ",", text)
    return re.sub(r"(\d)?\\[dt]?frac\{(\d+)\}\{(\d+)\}", _fraction, text)


def _fraction(match: re.Match[str]) -> str:
    mixed = match[1] + " " if match[1] else ""
    return f"{mixed}{match[2]}/{match[3]}"


def _after_marker(text: str) -> str | None:
    answer = None
    for marker in MARKER.finditer(text):
        number = NUMBER.match(text, marker.end())
        if number and not _is_heading(text, number):
            answer = canonical(number)
    return answer


def _is_heading(text: str, number: re.Match[str]) -> bool:
    line_end = text.find("\n", number.end())
    return line_end != -1 and bool(text[line_end:].strip()) and HEADING.match(text, number.start()) is not None


def _in_box(text: str) -> str | None:
    content = last_box(text)
    number = NUMBER.search(content.rpartition("=")[2]) if content else None
    return canonical(number) if number else None


def _after_phrase(text: str) -> str | None:
    for phrase in reversed(list(PHRASE.finditer(text))):
        if number := NUMBER.match(text, phrase.end()):
            return canonical(number)
    return None


def _last(text: str) -> str | None:
    numbers = list(NUMBER.finditer(text))
    return canonical(numbers[-1]) if numbers else None
