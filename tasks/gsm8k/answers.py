"""Reading the final number of a GSM8K completion. (The rules of lm_eval are in gsm8k_lm_eval.py.)"""

from __future__ import annotations

import re
from fractions import Fraction

from tasks.segments import answer_segment, last_box

# A number as models write it: sign, currency, thousands separators, decimals, exponent, fraction, mixed number. It is
# looked for in `_plain` text, where every dash that is no sign stands between spaces.
NUMBER = re.compile(
    r"""(?P<sign>(?<![\w)\]}-])-)?
        (?:\\?[$€£¥]\s?(?P<inner>-)?)?
        (?P<part>(?<=\d/))?                        # of a date, so no numerator: 12/25/2024
        (?:(?P<whole>\d+)[ ](?=\d+/\d))?
        (?P<number>(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?|(?<!\d)\.\d+)
        (?:[eE](?P<exponent>[+-]?\d{1,2})(?!\w)
          |\s?(?:\\times|\\cdot|[x×*·])\s?10\^\{?(?P<power>[+-]?\d{1,2})(?!\d)\}?)?
        (?(part)|(?:\s?/\s?(?P<denominator>0*[1-9]\d*)(?![\d/]))?)""",
    re.VERBOSE,
)
MOST_DIGITS = 100  # a longer number equals only the same text, so that reading one never takes long or fails
SIGNS = "\u2010\u2011\u2012\u2013\u2212\u02d7\u2796\ufe63\uff0d"  # dashes that may be a minus
STROKES = "\u00ad\u2014\u2015\u2e3a\u2e3b\ufe58"  # dashes that part: the soft hyphen, and those of an em and more
DASHES = str.maketrans(dict.fromkeys(SIGNS, "-") | dict.fromkeys(STROKES, " - "))
# A dash behind a value is a subtraction, a range, a date or a phone number: "18-5", "$18 -$5" and "30%-5%" end in 5.
OPERATOR = re.compile(r"(?:(?<=\d)|(?<=\d[%°$€£¥!'\"′″²³)\]}])|(?<=\d\\[%$])|(?<=\d[ ]%)|(?<=\d[ ]\\%))[^\S\n]*-+")
# "10 000" is one number; digits before or behind make it a list: "1 200 3".
SPACED = re.compile(r"(?<!\d)(?<!\d[ .,:/^])[1-9]\d{0,2}(?: \d{3})+(?![ ]?[\d/]|[,:]\d)")
SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻", "0123456789+-")
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
    number, sign = match["number"].replace(",", ""), "-" if match["sign"] or match["inner"] else ""
    if max(len(part or "") for part in (number, match["whole"], match["denominator"])) > MOST_DIGITS:
        return sign + number
    value = Fraction(number) * Fraction(10) ** int(match["exponent"] or match["power"] or 0)
    if match["denominator"]:
        value /= int(match["denominator"])
    value += int(match["whole"] or 0)
    return _text_of(-value if sign else value)


def same_number(left: str | None, right: str | None) -> bool:
    if left is None or right is None:
        return False
    if max(len(left), len(right)) > 4 * MOST_DIGITS:
        return left == right
    return Fraction(left) == Fraction(right)


def _text_of(value: Fraction) -> str:
    """Decimal notation where the expansion ends within the digits that models write, else a fraction."""
    for places in range(20):
        if 10**places % value.denominator == 0:
            digits = str(abs(value.numerator) * 10**places // value.denominator).zfill(places + 1)
            whole, decimals = digits[: len(digits) - places], digits[len(digits) - places :]
            return ("-" if value < 0 else "") + whole + ("." + decimals if decimals else "")
    return str(value)


def _plain(text: str) -> str:
    """Signs and LaTeX in plain form: a dash that is no sign between spaces, \\frac{a}{b} as a/b, 10³ as 10^3."""
    text = text.translate(DASHES)
    text = re.sub(r"\{,\}|(?<=\d)(?:\\[,!]|[\u00a0\u202f\u2009])(?=\d{3})", ",", text)
    text = SPACED.sub(lambda number: number.group().replace(" ", ","), text)
    text = re.sub(r"(\d)?\\[dt]?frac\{(-?\d+)\}\{(\d+)\}", _fraction, text)
    text = re.sub(r"(?<=10)[⁺⁻]?[⁰¹²³⁴⁵⁶⁷⁸⁹]+", lambda power: "^" + power.group().translate(SUPERSCRIPTS), text)
    return OPERATOR.sub(" - ", text)


def _fraction(match: re.Match[str]) -> str:
    mixed = match[1] + " " if match[1] else ""
    return f"{mixed}{match[2]}/{match[3]}"


def _after_marker(text: str) -> str | None:
    answer, last_line = None, text.rfind("\n", 0, len(text.rstrip()))
    for marker in MARKER.finditer(text):
        number = NUMBER.match(text, marker.end())
        if number and not (number.end() <= last_line and HEADING.match(text, number.start())):
            answer = number
    return canonical(answer) if answer else None


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
    last = None
    for last in NUMBER.finditer(text):  # noqa: B007  # the last one is wanted
        pass
    return canonical(last) if last else None
