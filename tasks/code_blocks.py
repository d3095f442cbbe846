"""Fenced code blocks of a Markdown text."""

from __future__ import annotations

import re
from dataclasses import dataclass

FENCE = re.compile(r"^([ \t]*)(`{3,}|~{3,})[ \t]*([^\s`{]*)[^`]*$")
PYTHON = frozenset({"", "python", "py", "python3", "py3", "python2", "ipython"})


@dataclass(frozen=True)
class Block:
    language: str
    code: str
    closed: bool

    @property
    def python(self) -> bool:
        return self.language in PYTHON


def code_blocks(text: str, starts_inside: bool) -> list[Block]:
    """The blocks in order; one that is never closed ends with the text.

    With `starts_inside` the text may begin within a block: it does if its first fence names no language and stands
    after some text. Then what is before that fence is the first block.
    """
    lines = text.split("\n")
    blocks: list[Block] = []
    inside = starts_inside and _begins_within(lines)
    marker, indent, language, start = "```", "", "", 0
    for number, line in enumerate(lines):
        fence = FENCE.match(line)
        if fence is None:
            continue
        if not inside:
            indent, marker, language = fence[1], fence[2], fence[3].lower()
            inside, start = True, number + 1
        elif fence[2].startswith(marker) and not fence[3]:
            blocks.append(_block(lines[start:number], indent, language, closed=True))
            inside = False
            marker, indent, language = "```", "", ""
    if inside and start < len(lines):
        blocks.append(_block(lines[start:], indent, language, closed=False))
    return [block for block in blocks if block.code.strip()]


def _begins_within(lines: list[str]) -> bool:
    for number, line in enumerate(lines):
        if fence := FENCE.match(line):
            return not fence[3] and any(before.strip() for before in lines[:number])
    return True


def _block(lines: list[str], indent: str, language: str, closed: bool) -> Block:
    """A block inside a list item is indented as a whole; that indentation is the list's and not the code's."""
    if indent:
        lines = [line.removeprefix(indent) for line in lines]
    return Block(language, "\n".join(lines) + "\n", closed)
