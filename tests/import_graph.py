"""What imports what, read from the source: every import of a file, and those that run when the file is imported."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
OURS = ("lopa_bench", "decoders", "tasks", "analysis", "conf")


def name_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


class Graph:
    """The modules of the project. `all_of` and `at_import` give, per module, the full names of what it imports."""

    def __init__(self) -> None:
        self.files = {name_of(path): path for package in OURS for path in (ROOT / package).rglob("*.py")}
        self.all_of: dict[str, set[str]] = {}
        self.at_import: dict[str, set[str]] = {}
        for name, path in self.files.items():
            self._read(name, path.read_text())

    def with_line(self, file: str, line: str) -> Graph:
        """The graph of a project in which one file has a further line."""
        other = copy.copy(self)
        other.all_of, other.at_import = dict(self.all_of), dict(self.at_import)
        other._read(name_of(ROOT / file), f"{(ROOT / file).read_text()}\n{line}\n")
        return other

    def _read(self, module: str, text: str) -> None:
        tree = ast.parse(text)
        self.all_of[module] = set(self._names(module, ast.walk(tree)))
        self.at_import[module] = set(self._names(module, _run_at_import(tree)))

    def ours(self, module: str) -> set[str]:
        """Our modules that a module imports, also inside functions."""
        return {name for name in self.all_of[module] if name.split(".")[0] in OURS}

    def loads(self, module: str, package: str) -> list[str] | None:
        """The chain of imports by which importing `module` loads `package`, or None."""
        chains, seen = [[module]], {module}
        while chains:
            chain = chains.pop(0)
            for name in sorted(self.at_import.get(chain[-1], ())):
                if name.split(".")[0] == package:
                    return [*chain, name]
                for parent in _with_packages(name):
                    if parent in self.files and parent not in seen:
                        seen.add(parent)
                        chains.append([*chain, parent])
        return None

    def _names(self, module: str, nodes: Iterator[ast.AST]) -> Iterator[str]:
        """Full names, with `from x import y` resolved to x.y where that is a module, and names given as text."""
        package = module if self.files[module].name == "__init__.py" else module.rpartition(".")[0]
        for node in nodes:
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                above = package.split(".")[: len(package.split(".")) + 1 - node.level] if node.level else []
                base = ".".join([*above, *([node.module] if node.module else [])])
                for alias in node.names:
                    full = f"{base}.{alias.name}"
                    yield full if full in self.files else base
            elif isinstance(node, ast.Call) and _is_import_call(node.func):
                yield from (str(a.value) for a in node.args[:1] if isinstance(a, ast.Constant))


def _is_import_call(function: ast.expr) -> bool:
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    return name in ("import_module", "__import__")


def _with_packages(name: str) -> list[str]:
    """a.b.c runs a and a.b first."""
    parts = name.split(".")
    return [".".join(parts[: i + 1]) for i in range(len(parts))]


def _run_at_import(tree: ast.AST) -> Iterator[ast.AST]:
    """The nodes that run when a module is imported: not the bodies of functions, not what only a type checker sees."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        yield node
        yield from _run_at_import(node)
