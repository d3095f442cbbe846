"""Finds the program in a completion. One extractor for all code tasks.

It removes what is not code (prose, fences, other blocks) and adds what the prompt already gave (imports, helpers, the
head of the function). It never repairs: lines of code are not re-indented, completed or reordered.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass

from tasks.code.extraction.blocks import Block, split_parts
from tasks.code.extraction.prose import body_of, does_nothing, without_idle_lines, without_prose
from tasks.code.extraction.trees import bindings, parse, unbound

FUTURE = re.compile(r"^from __future__ import .*\n?", re.MULTILINE)


@dataclass(frozen=True)
class Extracted:
    """`program` is what runs; `how` says where it was found: empty, text, trimmed text or fence."""

    program: str
    how: str


def extract(completion: str, names: Sequence[str], prompt: str | None = None, open_fence: bool = False) -> Extracted:
    """The program in `completion` that defines `names`.

    `prompt` is given where the completion may go on with the prompt's code (HumanEval); `open_fence` where the prompt
    ends inside a code block that the completion is expected to close.
    """
    text = completion.replace("\r\n", "\n").replace("\r", "\n")
    tree = parse(_assemble(text, names, prompt))
    if (
        text.strip() and tree is not None and names[0] in bindings(tree)
    ):  # what looks like a fence or a tag is part of the program
        return _from_text(text, names, prompt)
    if not text.strip():
        return Extracted("", "empty")
    found = _from_parts(text, names, prompt, open_fence)
    if parse(found.program) is None:  # an error in a string may have hidden a fence
        other = _from_parts(text, names, prompt, open_fence, with_strings=False)
        tree = parse(other.program)
        if tree is not None and names[0] in bindings(tree):
            return other
    return found


def _from_parts(
    text: str, names: Sequence[str], prompt: str | None, open_fence: bool, with_strings: bool = True
) -> Extracted:
    parts = split_parts(text, with_strings=with_strings)
    if not parts.is_tagged and (open_fence or (parts.blocks and _goes_on(parts.lead, names, prompt))):
        parts = split_parts(text, starts_inside=True, with_strings=with_strings)
    has_code = any(block.python and _goes_on(block.code, names, prompt) for block in parts.blocks)
    if parts.blocks and (has_code or not _goes_on(parts.outside, names, prompt)):
        return Extracted(_from_blocks(parts.blocks, names, prompt), "fence")
    if not parts.outside.strip():
        return Extracted("", "empty")
    return _from_text(parts.outside, names, prompt)


def _from_text(text: str, names: Sequence[str], prompt: str | None) -> Extracted:
    whole = _assemble(text, names, prompt)
    program = whole if parse(whole) is not None else without_prose(whole, names) or whole
    program = without_idle_lines(program)
    return Extracted(program, "text" if program == whole else "trimmed text")


def preamble(prompt: str, name: str) -> str:
    """What stands before the function in a HumanEval prompt: imports and helpers."""
    tree = parse(prompt + "\n    pass\n")
    for node in tree.body if tree else ():
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name == name:
            return "".join(prompt.splitlines(keepends=True)[: node.lineno - 1])
    return ""


def _defines(code: str, name: str) -> bool:
    """Also of code with errors, so by its text."""
    return (
        re.search(rf"^(?:(?:async[ \t]+)?def|class)[ \t]+{re.escape(name)}\b|^{re.escape(name)}[ \t]*=", code, re.M)
        is not None
    )


def _is_body(code: str) -> bool:
    first = next((line for line in code.split("\n") if line.strip()), "")
    return first[:1] in (" ", "\t")


def _goes_on(text: str, names: Sequence[str], prompt: str | None) -> bool:
    """Whether a text begins with a body for the prompt's function, or defines a function itself."""
    return (prompt is not None and _is_body(text)) or any(_defines(text, name) for name in names)


def _assemble(code: str, names: Sequence[str], prompt: str | None, is_block: bool = False) -> str:
    """Code that defines the function itself gets the prompt's preamble; any other continues the prompt."""
    if prompt is None:
        return code
    if _is_body(code) or not _defines(code, names[0]):
        return prompt + body_of(code, lines_only=is_block)
    future = "".join(FUTURE.findall(code))
    return future + preamble(prompt, names[0]) + "\n" + FUTURE.sub("", code)


def _from_blocks(blocks: Sequence[Block], names: Sequence[str], prompt: str | None) -> str:
    """The end of the text may have cut off a later function of a block that is not closed; a closed one is whole."""
    chosen = _choose(blocks, names, prompt)
    program = _assemble(chosen.code, names, prompt, is_block=True)
    if parse(program) is None:
        program = without_prose(program, names, lines_only=chosen.closed) or program
    helpers = _helpers(program, [block for block in blocks if block is not chosen], names)
    return without_idle_lines("\n".join([*helpers, program]))


def _choose(blocks: Sequence[Block], names: Sequence[str], prompt: str | None) -> Block:
    """The first block that defines the function, if possible one that is no stub, or at least without errors; else a
    body; else the first.
    """
    python = [block for block in blocks if block.python] or blocks
    defining = [block for block in python if any(_defines(block.code, name) for name in names)]
    if prompt is not None and not defining:
        defining = [block for block in python if _is_body(block.code)]
    candidates = defining or python
    trees = [(block, parse(_assemble(block.code, names, prompt, is_block=True))) for block in candidates]
    sound = [(block, tree) for block, tree in trees if tree is not None]
    whole = (block for block, tree in sound if not _is_stub(tree, names[0]))
    return next(whole, sound[0][0] if sound else candidates[0])


def _is_stub(tree: ast.Module, name: str) -> bool:
    """Whether the function only has a head, as in an outline: "pass", "...", a docstring."""
    found = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == name]
    return bool(found) and all(does_nothing(part) for part in found[-1].body)


def _helpers(program: str, others: Sequence[Block], names: Sequence[str]) -> list[str]:
    """Other blocks that bind a name which the program needs and does not bind."""
    tree = parse(program)
    if tree is None:
        return []
    trees = {block.code: other for block in others if block.python and (other := parse(block.code)) is not None}
    bound = {code: bindings(other) for code, other in trees.items()}
    missing = unbound(tree) | (set(names) - bindings(tree))
    kept: list[str] = []
    while found := next((code for code in bound if missing & bound[code]), None):
        missing = (missing | unbound(trees[found])) - bound.pop(found)
        kept.insert(0, found)
    return kept
