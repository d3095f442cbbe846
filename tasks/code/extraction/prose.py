"""Telling prose from code where a text has both: what goes does nothing, or is no Python at all."""

from __future__ import annotations

import ast
import builtins
import keyword
import re
from collections.abc import Sequence

from tasks.code.extraction.trees import MOST_CHARACTERS, bindings, parse

MOST_CHUNKS_IN_ALL = 500
MOST_CHUNKS = 40  # how many pieces that start in the first column one statement may have
MOST_PARSED = 20  # how many times as much as the text itself may be parsed on the way
ASSIGNMENT_OR_CALL = re.compile(r"@|[\w.\[\]]+[ \t]*(?:[-+*/%&|^]|//|\*\*)?=(?!=)|[\w.]+\(")
WORDS = re.compile(r"[\w\s,.;:!?'’-]*")
PLACES = (  # of a line: a statement, the header of a block, a clause behind another
    *("{}", "{}\n    pass", "{}\n    pass\nfinally:\n    pass"),
    *("if 1:\n    pass\n{}\n    pass", "try:\n    pass\n{}\n    pass"),
)
BLANKS = " \t\n\f"  # of Python, to which a non-breaking space is an error
ACTIONS = (ast.Call, ast.Await, ast.Yield, ast.YieldFrom, ast.NamedExpr)


def without_idle_lines(program: str) -> str:
    """Blanks statements that do nothing but name what does not exist: "[BEGIN]", "Solution", "Note: this".

    Prose that happens to be Python would end the program with a NameError. A call is code, whatever it calls.
    """
    tree = parse(program)
    if tree is None:
        return program
    known = bindings(tree) | set(dir(builtins)) | {"__name__", "__file__"}
    lines = program.split("\n")
    ends = [0, *(node.end_lineno or node.lineno for node in tree.body)]
    starts = [*(node.lineno for node in tree.body), len(lines) + 1]
    for index, node in enumerate(tree.body):
        stands_alone = ends[index] < node.lineno and ends[index + 1] < starts[index + 1]
        if stands_alone and does_nothing(node) and (_loaded(node) - known or _is_starred(node)):
            for number in range(node.lineno - 1, ends[index + 1]):
                lines[number] = ""
    return "\n".join(lines)


def does_nothing(node: ast.stmt) -> bool:
    """Whether a statement is `pass`, a bare expression, or the annotation of a name without a value."""
    if isinstance(node, ast.Pass):
        return True
    if isinstance(node, ast.AnnAssign):
        return node.value is None and isinstance(node.target, ast.Name)
    if not isinstance(node, ast.Expr):
        return False
    if isinstance(node.value, ast.UnaryOp):  # "- O(n)", an item of a list
        return True
    return not any(isinstance(part, ACTIONS) for part in ast.walk(node))


def without_prose(text: str, names: Sequence[str], lines_only: bool = False) -> str | None:
    """The statements of a text that is not a program as a whole; None if the function is not among them.

    With `lines_only` nothing goes that could be code with an error: single lines of prose alone.
    """
    chunks = _chunks(text) if len(text) <= MOST_CHARACTERS else []
    if len(chunks) > MOST_CHUNKS_IN_ALL:
        return None
    kept: list[str] = []
    position, budget = 0, MOST_PARSED * len(text)
    while position < len(chunks):
        for end in range(position + 1, min(len(chunks), position + MOST_CHUNKS) + 1):
            piece = "".join(chunks[position:end])
            budget -= len(piece)
            if budget < 0:
                return None
            if (tree := parse(piece)) is not None:
                is_code = not all(does_nothing(node) for node in tree.body)
                kept.append(piece if is_code else "\n" * piece.count("\n"))
                position = end
                break
        else:
            if lines_only and not is_prose(chunks[position]):
                return None
            kept.append("\n" * chunks[position].count("\n"))
            position += 1
    program = "".join(kept)
    tree = parse(program)
    return program if tree is not None and names[0] in bindings(tree) else None


def is_prose(chunk: str) -> bool:
    """Whether a line in the first column is neither a statement nor what could have been meant as one."""
    first, _, rest = chunk.lstrip("\n").partition("\n")
    if rest.strip() or not first or first[0] in BLANKS:
        return False
    tree = parse(first)
    if tree is not None:
        return all(does_nothing(node) for node in tree.body)
    word = re.match(r"\w*", first)
    is_keyword = word is not None and keyword.iskeyword(word.group())
    return not is_keyword and ASSIGNMENT_OR_CALL.match(first) is None


def is_broken_header(line: str) -> bool:
    """Whether a line in the first column begins with a keyword and is words alone that no place makes Python.

    "for example:" and "if needed" are such; "if needed:", "else:" and "if n < 2" are code or could be meant as code.
    """
    word = re.match(r"\w*", line)
    if word is None or not keyword.iskeyword(word.group()) or not WORDS.fullmatch(line):
        return False
    return all(parse(place.format(line)) is None for place in PLACES)


def body_of(code: str, lines_only: bool = False) -> str:
    """An indented body without the lines of prose in front of it; any other code as it is.

    With `lines_only` a line that begins with a keyword is code with an error, and no prose.
    """
    lines = code.split("\n")
    first = next((number for number, line in enumerate(lines) if line.strip() and line[0] in " \t"), None)
    lead = [line for line in lines[:first] if line.strip()]
    if len(lead) > MOST_CHUNKS_IN_ALL:  # such a line is parsed in every place
        lines_only = True
    if first is None or not all(is_prose(line) or (not lines_only and is_broken_header(line)) for line in lead):
        return code
    return "\n".join(lines[first:])


def _chunks(text: str) -> list[str]:
    """Cuts before every line that begins in the first column."""
    chunks: list[list[str]] = []
    for line in re.findall(r"[^\n]*\n|[^\n]+", text):  # only these end a line of Python
        if chunks and (not line.strip(BLANKS) or line[0] in BLANKS):
            chunks[-1].append(line)
        else:
            chunks.append([line])
    return ["".join(lines) for lines in chunks]


def _loaded(node: ast.stmt) -> set[str]:
    names = (part for part in ast.walk(node) if isinstance(part, ast.Name))
    return {name.id for name in names if isinstance(name.ctx, ast.Load)}


def _is_starred(node: ast.stmt) -> bool:
    """Such as "* item", which is parsed and never compiled."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Starred)
