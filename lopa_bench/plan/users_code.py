"""The source behind a `target` (module:attribute): its module, what that imports, and the files that they name.

Read, never run, so an import inside a function counts as well. Left out is what has a version of its own instead: the
standard library, installed packages (their versions count), and this project (its code counts as a whole).
"""

from __future__ import annotations

import ast
import os
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import machinery
from importlib.machinery import ModuleSpec
from importlib.metadata import packages_distributions, version
from importlib.util import find_spec
from pathlib import Path
from pkgutil import get_importer
from typing import Any

from lopa_bench import ROOT, SIBLINGS
from lopa_bench.plan.checksums import remembered_sha256

OURS = (*SIBLINGS, "lopa_bench")
CODE_ENDINGS = (*machinery.SOURCE_SUFFIXES, *machinery.EXTENSION_SUFFIXES)
LONGEST_NAME = 255  # bytes


def targets(settings: Any) -> Iterator[str]:
    """Every `target` in nested settings (plain data)."""
    if isinstance(settings, dict):
        for name, value in settings.items():
            if name == "target" and isinstance(value, str):
                yield value
            else:
                yield from targets(value)


def target_facts(target: str) -> dict[str, str]:
    """What a result owes to a target: a checksum by the name of each file, a version by the name of each library."""
    found = _Sources()
    found.follow(target.partition(":")[0], is_target=True)
    return found.facts()


@dataclass
class _Sources:
    """Files that were reached, by the name that they are known by, which says nothing of where they lie."""

    files: dict[str, Path] = field(default_factory=dict)
    libraries: set[str] = field(default_factory=set)
    seen: set[str | Path] = field(default_factory=set)

    def follow(self, module: str, is_target: bool = False) -> None:
        """A module by its whole name, its parents and all that they import."""
        top = module.partition(".")[0]
        if top in OURS and not is_target:
            return
        for spec in _specs(module):
            if not is_target and _is_installed(spec):
                self.libraries.add(top)
                return
            if spec.name not in self.seen:
                self.seen.add(spec.name)
                self._add(spec)

    def _add(self, spec: ModuleSpec) -> None:
        if spec.origin is None or not spec.has_location:
            return  # a folder without __init__.py has no code of its own
        path = _existing(Path(spec.origin))
        if spec.submodule_search_locations is None:
            self._read(spec.name, path, spec.name.rpartition(".")[0])
            return
        self._read(spec.name, path, spec.name)
        for inner in _code_below(path.parent):  # modules that are found by a name made up as the code runs
            name = ".".join([spec.name, *inner.parent.parts, inner.name.partition(".")[0]])
            self._read(name, path.parent / inner, name.rpartition(".")[0])

    def _read(self, name: str, path: Path, package: str) -> None:
        if path in self.seen:
            return
        self.seen.add(path)
        self.files[name] = path
        if path.suffix not in machinery.SOURCE_SUFFIXES:
            return
        try:
            tree = ast.parse(path.read_bytes())
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return  # what cannot be parsed is not imported either
        for imported in _imports(tree, package):
            self.follow(imported)
        for named, file in _named_files(tree, path.parent):
            self._read(f"{name}: {named}", file, package)

    def facts(self) -> dict[str, str]:
        sums = {name: remembered_sha256([path]) for name, path in sorted(self.files.items())}
        owners = _distributions() if self.libraries else {}
        names = sorted({owner for library in self.libraries for owner in owners.get(library, ())})
        return sums | {f"library {name}": version(name) for name in names}


def _specs(module: str) -> Iterator[ModuleSpec]:
    """The module's parents and itself, as far as they are found, without importing any of them."""
    parts = module.split(".")
    places: Any = None
    for depth in range(1, len(parts) + 1):
        name = ".".join(parts[:depth])
        try:
            spec = find_spec(name) if depth == 1 else _inside(name, places)
        except (ImportError, ValueError):
            return
        if spec is None:
            return
        yield spec
        places = spec.submodule_search_locations
        if places is None:
            return


def _inside(name: str, places: Iterable[str]) -> ModuleSpec | None:
    """A module of a package whose code lies in `places`. As PathFinder has it, which wants the package imported if a
    folder in it has no __init__.py.
    """
    portions: list[str] = []
    for place in places:
        finder = get_importer(place)
        spec = finder.find_spec(name) if finder is not None else None
        if spec is not None and spec.loader is not None:
            return spec
        portions += (spec.submodule_search_locations or []) if spec is not None else []
    whole = ModuleSpec(name, None, is_package=True)
    whole.submodule_search_locations = portions
    return whole if portions else None


def _imports(tree: ast.Module, package: str) -> Iterator[str]:
    """Every module that may be imported, also inside functions, and by import_module("name")."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".") if node.level and package else []
            parents = parents[: max(len(parents) - node.level + 1, 0)]
            whole = ".".join([*parents, *([node.module] if node.module else [])])
            yield from ([whole] if node.module else [])
            yield from (f"{whole}.{alias.name}".lstrip(".") for alias in node.names if alias.name != "*")
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            name = node.args[0].value
            if called in ("import_module", "__import__") and isinstance(name, str):
                yield package + name if name.startswith(".") else name


def _named_files(tree: ast.Module, folder: Path) -> list[tuple[str, Path]]:
    """Files whose names stand in the code, with these names: beside the module or in the working folder, or in a folder
    there whose name stands in the code.
    """
    texts = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    plain = {text for text in texts if text.isprintable() and 0 < len(text.encode()) <= LONGEST_NAME}
    names = sorted({Path(text) for text in plain if not Path(text).is_absolute() and ".." not in Path(text).parts})
    found = []
    for sign, place in (("", folder), ("./", Path.cwd())):
        folders = [Path(), *(name for name in names if name.parts and (place / name).is_dir())]
        inside = [inner / name for inner in folders for name in names]
        found += [(f"{sign}{name}", place / name) for name in inside if (place / name).is_file()]
    return found


def _code_below(folder: Path) -> Iterator[Path]:
    """The code of a package, by its path in the package."""
    for parent, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name != "site-packages")
        yield from (Path(parent, name).relative_to(folder) for name in sorted(files) if name.endswith(CODE_ENDINGS))


def _existing(path: Path) -> Path:
    """The file; for a module inside an archive, the archive."""
    while not path.exists() and path != path.parent:
        path = path.parent
    return path


def _is_installed(spec: ModuleSpec) -> bool:
    """Whether a module belongs to Python or to an installed distribution, which has a version."""
    places = [spec.origin] if spec.has_location and spec.origin else list(spec.submodule_search_locations or ())
    return not places or _lies_with_installed(Path(places[0]))


def _lies_with_installed(path: Path) -> bool:
    standard = Path(sysconfig.get_path("stdlib")).resolve()
    path = path.resolve()
    return bool({"site-packages", "dist-packages"} & set(path.parts)) or path.is_relative_to(standard)


@lru_cache
def _distributions() -> dict[str, list[str]]:
    return dict(packages_distributions())


class _FromSource(machinery.SourceFileLoader):
    def path_stats(self, path: Any) -> Any:
        raise OSError("no bytecode")


def distrust_bytecode() -> None:
    """From now on, modules of a user are compiled from their source.

    Python takes the compiled file of an earlier run if size and time of the source agree, to the second; the source of
    a target is part of a run's identity by its content, so what runs must be that source.
    """
    extensions = (machinery.ExtensionFileLoader, machinery.EXTENSION_SUFFIXES)
    finder_of = machinery.FileFinder.path_hook(
        extensions,
        (_FromSource, machinery.SOURCE_SUFFIXES),
        (machinery.SourcelessFileLoader, machinery.BYTECODE_SUFFIXES),
    )

    def of_a_user(path: str) -> Any:
        place = Path(path).resolve()
        if _lies_with_installed(place) or any(place.is_relative_to(ROOT / name) for name in OURS):
            raise ImportError("not a user's")
        return finder_of(path)

    sys.path_hooks.insert(0, of_a_user)
    sys.path_importer_cache.clear()
