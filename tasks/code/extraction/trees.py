"""Syntax trees of what a model wrote: whether there is one, what it binds, and what it lacks."""

from __future__ import annotations

import ast
import builtins
import warnings
from functools import lru_cache

MOST_CHARACTERS = 100_000  # longer texts are taken as they are


@lru_cache(maxsize=4)  # the same text is looked at several times in a row
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


def unbound(tree: ast.Module) -> set[str]:
    """Names that a program uses and binds nowhere."""
    uses = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    loaded = {node.id for node in uses if isinstance(node.ctx, ast.Load)}
    stored = {node.id for node in uses if not isinstance(node.ctx, ast.Load)}
    arguments = {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    return loaded - stored - arguments - bindings(tree) - set(dir(builtins))
