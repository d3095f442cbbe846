"""A user's own text (names of models, tasks, runs, problems) in every format that is written: none parses it."""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from html import escape
from typing import Any

from lopa_bench.console.numbers import UNKNOWN
from lopa_bench.console.numbers import plain as plain  # of names, like all the others here

LONGEST = 48  # characters of a name in a picture
FILE_NAME = 60
_ISOLATE, _END = "\u2068", "\u2069"  # first strong isolate
_LEFTWARDS = ("R", "AL", "AN")
_FORMULA = "=+-@\uff0b\uff0d\uff1d\uff20"  # what a spreadsheet takes for the beginning of a formula, wide forms too
_MARKDOWN = re.compile(r"([\\`*{}\[\]<>#!|~$&]|(?<![^\W_])_|_(?![^\W_]))")
_LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{",
    "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "–": "--", "−": "$-$", "×": r"$\times$",
    "†": r"\textsuperscript{\textdagger}", "‡": r"\textsuperscript{\textdaggerdbl}", "τ": r"$\tau$", "…": r"\ldots{}",
    "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", "`": r"\`{}", "·": r"\textperiodcentered{}",
}  # fmt: skip


class Ours(str):
    """A cell's text that no user chose, with signs that are meant as they stand: "+ LoPA", "[a]"."""


def typeset(number: str) -> str:
    """A text of lopa_bench.console.numbers as it is printed: with a dash, or a minus of the width of a plus."""
    return "–" if number == UNKNOWN else number.replace("-", "−")


def setting(value: object) -> str:
    """A value of a setting without the zeros behind a point."""
    if value is None:
        return "not set"
    return plain(f"{value:g}" if isinstance(value, float) else value)


def clipped(text: str, longest: int = LONGEST) -> str:
    """Beginning and end of a long name, which are what tells it from others."""
    if len(text) <= longest:
        return text
    head = (longest - 1) * 2 // 3
    return f"{text[:head]}…{text[-(longest - 1 - head) :]}"


def html(text: object) -> str:
    """Text of an element or of a quoted attribute; words that run from right to left do not turn what is around."""
    escaped = escape(plain(text))
    turns = any(unicodedata.bidirectional(sign) in _LEFTWARDS for sign in escaped)
    return f"{_ISOLATE}{escaped}{_END}" if turns else escaped


def markdown(text: str) -> str:
    """Text of a table's cell or of a line; signs that Markdown would read stand behind backslashes."""
    return text if isinstance(text, Ours) else _MARKDOWN.sub(r"\\\1", plain(text))


def latex(text: str) -> str:
    """Text as pdflatex sets it without further packages; letters that its fonts lack are named by their number."""
    return "".join(_LATEX.get(sign) or (sign if _is_latin(sign) else f"[U+{ord(sign):04X}]") for sign in plain(text))


def csv_cell(value: Any) -> Any:
    """Numbers as they are. Text that a spreadsheet would compute gets an apostrophe in front."""
    if not isinstance(value, str) or isinstance(value, Ours):
        return value
    text = plain(value)
    return f"'{text}" if text.lstrip()[:1] and text.lstrip()[0] in _FORMULA else text


def script_json(value: Any) -> str:
    """JSON for a script element: no sign in it can end the element or open a comment."""
    text = json.dumps(value, ensure_ascii=False)
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


def file_name(text: str) -> str:
    """A name that every file system takes. Two texts never share one, not even where case does not count."""
    name = re.sub(r"[^a-z0-9._-]+", "_", text).strip("._")[:FILE_NAME]
    if name and name == text and not re.search(r"-[0-9a-f]{10}$", name):
        return name
    return f"{name or 'name'}-{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:10]}"


def _is_latin(sign: str) -> bool:
    """ASCII, and its letters with one of the accents of Latin-1."""
    letter = unicodedata.normalize("NFD", sign)[0]
    return sign.isascii() or ("\u00c0" <= sign <= "\u00ff" and letter != sign and letter.isascii())
