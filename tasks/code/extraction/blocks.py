"""The parts of a Markdown text with Python in it: fenced blocks, what stands outside of them, and no thinking.

A fence or a thinking tag inside a string or a comment of the code is part of the code.
"""

from __future__ import annotations

import re
from bisect import bisect
from collections.abc import Set
from dataclasses import dataclass, field

from tasks.segments import TAG

PYTHON = frozenset({"", "python", "py", "python3", "py3", "python2", "ipython"})
FENCE = re.compile(r"([ \t]*)(`{3,}|~{3,})")
CODE = re.compile(r"(?:async[ \t]+def|def|class|import|from)[ \t]|@\w|[ \t]+\S")  # how a program without a fence begins
QUOTE = re.compile(r"\\.|\"\"\"|'''|[\"'#]")
PREFIX = re.compile(r"(?<!\w)[rRbBuUfF]{1,2}\Z")
MOST_BLOCKS = 200  # later ones are left out
MOST_UNENDED = 5  # strings without an end before none is taken for one
DEEPEST = 3  # how far blocks of Markdown inside blocks are opened


@dataclass
class Block:
    language: str
    closed: bool = False
    marker: str = "```"
    indent: str = ""
    lines: list[str] = field(default_factory=list)

    @property
    def python(self) -> bool:
        return self.language in PYTHON

    @property
    def code(self) -> str:
        """A block inside a list item is indented as a whole; that indentation is the list's and not the code's."""
        return "\n".join(line.removeprefix(self.indent) for line in self.lines) + "\n"


@dataclass
class Parts:
    """`lead` is what stands before the first fence; `is_tagged` whether that fence names a language."""

    lead: str
    is_tagged: bool
    outside: str
    blocks: list[Block]


def split_parts(text: str, starts_inside: bool = False, with_strings: bool = True, depth: int = 0) -> Parts:
    """Takes a text apart. A block that is never closed ends with the text, or where the next one begins.

    With `starts_inside` the text begins within a block, if its first fence names no language and stands after some
    text; then what is before that fence is the first block. Without `with_strings` every fence and tag is one.
    """
    no_strings: set[int] = set()
    scan = _Scan(text, starts_inside, with_strings, no_strings)
    while scan.quote and with_strings:  # a string that never ends is none: an apostrophe, or code with an error
        with_strings = len(no_strings) < MOST_UNENDED
        no_strings.add(scan.quoted_from)
        scan = _Scan(text, starts_inside, with_strings, no_strings)
    blocks = [inner for block in scan.blocks[:MOST_BLOCKS] for inner in _opened(block, depth) if inner.code.strip()]
    return Parts("\n".join(scan.lead), scan.is_tagged, "\n".join(scan.outside), blocks)


def _opened(block: Block, depth: int) -> list[Block]:
    """The block, or those that a block of Markdown holds."""
    if block.python or depth >= DEEPEST:
        return [block]
    return split_parts(block.code, depth=depth + 1).blocks or [block]


class _Scan:
    """Reads a text line by line. `quote` is the triple quote of a string that goes on in the next line, `quoted_from`
    the number of the line where it began; in lines of the numbers `no_strings` none begins.
    """

    blocks: list[Block]
    block: Block | None  # the one that is open
    outside: list[str]
    lead: list[str]

    def __init__(self, text: str, starts_inside: bool, with_strings: bool, no_strings: Set[int]) -> None:
        self.with_strings = with_strings
        self.no_strings = no_strings
        self.starts_inside = starts_inside
        self._forget()
        for self.number, line in enumerate(text.split("\n")):
            self._line(line)
        if starts_inside and not self.has_fence:
            self.blocks, self.outside = [Block("", lines=self.lead)], []

    def _forget(self) -> None:
        """A lone closing tag: all before was thinking, whose opening tag was part of the prompt."""
        self.blocks, self.outside, self.lead, self.block = [], [], [], None
        self.has_fence = self.is_tagged = self.is_thinking = False
        self.is_code = self.starts_inside
        self.quote, self.quoted_from = "", -1

    def _line(self, line: str) -> None:
        start = 0
        starts, ends = self._literals(line)
        for tag in TAG.finditer(line):
            if (number := bisect(starts, tag.start())) and tag.start() < ends[number - 1]:
                continue
            starts = []
            if not tag[1]:
                if not self.is_thinking and line[start : tag.start()].strip():
                    self._visible(line[start : tag.start()])
                self.is_thinking = True
            elif self.is_thinking:
                self.is_thinking = False
            else:
                self._forget()
            start = tag.end()
        if not self.is_thinking and (line[start:].strip() or start == 0):
            self._visible(line[start:])

    def _literals(self, line: str) -> tuple[list[int], list[int]]:
        """Where strings and comments of a line begin and end, if it is one of code."""
        is_code = self.is_code or (self.block is None and CODE.match(line) is not None)
        spans = literals(line, self.quote)[0] if is_code and self.with_strings and not self.is_thinking else []
        return [start for start, _ in spans], [end for _, end in spans]

    def _visible(self, line: str) -> None:
        """A line outside of thinking."""
        if not self.quote and (fence := FENCE.match(line)) and self._is_fence(fence, line[fence.end() :].strip()):
            return
        spans, quote = literals(line, self.quote) if self.with_strings else ([], "")
        if self.block is not None:
            code = line.rstrip().removesuffix(self.block.marker)
            if not self.quote and len(code) < len(line.rstrip()) and not (spans and len(code) < spans[-1][1]):
                self.block.lines.append(code)  # a fence behind the last line of code
                self.block.closed, self.block, self.is_code = True, None, False
                return
            self.block.lines.append(line)
        else:
            self.outside.append(line)
            if not self.has_fence:
                self.lead.append(line)
            self.is_code = self.is_code or CODE.match(line) is not None
        if self.is_code and (self.quote or self.number not in self.no_strings):
            self.quote, self.quoted_from = quote, self.quoted_from if quote == self.quote else self.number

    def _is_fence(self, fence: re.Match[str], info: str) -> bool:
        """Opens or closes a block, if the line does so."""
        marker = fence[2]
        if marker[0] == "`" and "`" in info:
            return False
        if self.block is None and self.starts_inside and not self.has_fence and not info and "".join(self.lead).strip():
            self.block = Block("", lines=self.lead)
            self.blocks, self.outside, self.has_fence = [self.block], [], True
        if self.block is not None and not marker.startswith(self.block.marker):
            return False
        if self.block is not None and not info:
            self.block.closed, self.block, self.is_code = True, None, False
            return True
        if not self.has_fence:
            self.has_fence, self.is_tagged = True, bool(info)
        language = info.partition("{")[0].lower().split()
        self.block = Block(language[0] if language else "", marker=marker, indent=fence[1])
        self.blocks.append(self.block)
        self.is_code = True
        return True


def literals(line: str, quote: str) -> tuple[list[tuple[int, int]], str]:
    """The strings and comments of a line of Python, and the triple quote of a string that goes on in the next one.

    `quote` is that of a string which the line before has left open.
    """
    spans: list[tuple[int, int]] = []
    start = 0
    for found in QUOTE.finditer(line):
        sign = found.group()
        if quote:
            if sign.startswith(quote):  # also the three signs that end a string of one and begin an empty one
                spans.append((start, found.end()))
                quote = ""
        elif sign == "#":
            return [*spans, (found.start(), len(line))], ""
        elif sign[0] in "\"'" and _can_open(line, found.start()):
            start, quote = found.start(), sign
    if len(quote) < 3:
        return spans, ""
    return [*spans, (start, len(line))], quote


def _can_open(line: str, at: int) -> bool:
    """Whether a quote may begin a string; an apostrophe in a word may not."""
    return not line[at - 1 : at].isalnum() or PREFIX.search(line[max(0, at - 3) : at]) is not None
