"""Finds the program in a completion. One extractor for all code tasks.

It removes what is not code (prose, fences, other blocks) and adds what the prompt already gave (imports, helpers, the
head of the function). It never repairs: lines of code are not re-indented, completed or reordered.
"""

from __future__ import annotations

import ast
import builtins
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

from tasks.code_blocks import Block, code_blocks
from tasks.segments import visible_text

MOST_CHARACTERS = 100_000  # longer texts are taken as they are
MOST_CHUNKS_IN_ALL = 500
MOST_CHUNKS = 40  # how many pieces that start in the first column one statement may have
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
    text = visible_text(completion).replace("\r\n", "\n").replace("\r", "\n")
    if not text.strip():
        return Extracted("", "empty")
    blocks = code_blocks(text, open_fence or _starts_as_code(text, names, prompt))
    if blocks:
        return Extracted(_from_blocks(blocks, names, prompt), "fence")
    whole = _assemble(text, names, prompt)
    if parse(whole) is not None:
        return Extracted(whole, "text")
    trimmed = _without_prose(whole, names)
    return Extracted(whole, "text") if trimmed is None else Extracted(trimmed, "trimmed text")


def parse(code: str) -> ast.Module | None:
    """The syntax tree, or None. Whatever a model writes, this returns."""
    if len(code) > MOST_CHARACTERS:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(code)
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return None


def bindings(tree: ast.Module) -> set[str]:
    """Names that the top level of a program binds."""
    found: set[str] = set()
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            found.add(node.name)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            found.update((alias.asname or alias.name).partition(".")[0] for alias in node.names)
        else:
            stored = (n for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))
            found.update(name.id for name in stored)
    return found


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


def _starts_as_code(text: str, names: Sequence[str], prompt: str | None) -> bool:
    """Whether a completion with a lone closing fence has its code before that fence."""
    before, fence, _ = text.partition("```")
    return bool(fence) and ((prompt is not None and _is_body(before)) or any(_defines(before, name) for name in names))


def _assemble(code: str, names: Sequence[str], prompt: str | None) -> str:
    """Code that defines the function itself gets the prompt's preamble; any other continues the prompt."""
    if prompt is None:
        return code
    if _is_body(code) or not _defines(code, names[0]):
        return prompt + code
    future = "".join(FUTURE.findall(code))
    return future + preamble(prompt, names[0]) + "\n" + FUTURE.sub("", code)


def _from_blocks(blocks: Sequence[Block], names: Sequence[str], prompt: str | None) -> str:
    chosen = _choose(blocks, names, prompt)
    program = _assemble(chosen.code, names, prompt)
    if not chosen.closed and parse(program) is None:
        program = _without_prose(program, names) or program  # the end of the text may have cut off a later function
    return "\n".join([*_helpers(program, [block for block in blocks if block is not chosen], names), program])


def _choose(blocks: Sequence[Block], names: Sequence[str], prompt: str | None) -> Block:
    """The first block that defines the function, if possible one without errors; else a body; else the first."""
    python = [block for block in blocks if block.python] or blocks
    defining = [block for block in python if any(_defines(block.code, name) for name in names)]
    if prompt is not None and not defining:
        defining = [block for block in python if _is_body(block.code)]
    candidates = defining or python
    sound = (block for block in candidates if parse(_assemble(block.code, names, prompt)) is not None)
    return next(sound, candidates[0])


def _helpers(program: str, others: Sequence[Block], names: Sequence[str]) -> list[str]:
    """Other blocks that bind a name which the program needs and does not bind."""
    tree = parse(program)
    if tree is None:
        return []
    trees = {block.code: other for block in others if block.python and (other := parse(block.code)) is not None}
    missing = _unbound(tree) | (set(names) - bindings(tree))
    kept: list[str] = []
    while found := next((code for code, other in trees.items() if missing & bindings(other)), None):
        other = trees.pop(found)
        missing = (missing | _unbound(other)) - bindings(other)
        kept.insert(0, found)
    return kept


def _unbound(tree: ast.Module) -> set[str]:
    uses = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    loaded = {node.id for node in uses if isinstance(node.ctx, ast.Load)}
    stored = {node.id for node in uses if not isinstance(node.ctx, ast.Load)}
    arguments = {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    return loaded - stored - arguments - bindings(tree) - set(dir(builtins))


def _without_prose(text: str, names: Sequence[str]) -> str | None:
    """The statements of a text that is not a program as a whole; None if the function is not among them."""
    chunks = _chunks(text) if len(text) <= MOST_CHARACTERS else []
    if len(chunks) > MOST_CHUNKS_IN_ALL:
        return None
    kept: list[str] = []
    position = 0
    while position < len(chunks):
        for end in range(position + 1, min(len(chunks), position + MOST_CHUNKS) + 1):
            piece = "".join(chunks[position:end])
            if (tree := parse(piece)) is not None:
                kept.append(piece if _is_code(tree) else "\n" * piece.count("\n"))
                position = end
                break
        else:
            position += 1
    program = "".join(kept)
    tree = parse(program)
    return program if tree is not None and names[0] in bindings(tree) else None


def _chunks(text: str) -> list[str]:
    """Cuts before every line that begins in the first column."""
    chunks: list[str] = []
    for line in text.splitlines(keepends=True):
        if chunks and (not line.strip() or line[0] in " \t"):
            chunks[-1] += line
        else:
            chunks.append(line)
    return chunks


def _is_code(tree: ast.Module) -> bool:
    """A word of prose can be a valid expression ("Explanation", "Note: this"); such a statement does nothing."""
    return any(
        not (isinstance(node, ast.Expr) and not isinstance(node.value, ast.Call))
        and not (isinstance(node, ast.AnnAssign) and node.value is None)
        for node in tree.body
    )
