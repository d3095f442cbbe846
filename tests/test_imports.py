"""Imports point one way: run -> tasks, decoders, backends -> models; analysis -> records, metrics (docs/design.md)."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
OURS = ("lopa_bench", "decoders", "tasks", "analysis", "conf")

# package or module -> what of this project it may import
ALLOWED: dict[str, tuple[str, ...]] = {
    "decoders": ("decoders",),
    "tasks": ("tasks",),
    "lopa_bench.models": (
        "lopa_bench.models",
        "lopa_bench.config",
        "lopa_bench.checksums",
        "lopa_bench.backends.config",
        "decoders.types",
        "tasks.base",
    ),
    "lopa_bench.models.mini": ("lopa_bench", "decoders", "tasks"),
    "lopa_bench.backends": (
        "lopa_bench.backends",
        "lopa_bench.models",
        "lopa_bench.config",
        "lopa_bench.signals",
        "decoders",
    ),
    "lopa_bench.engines": (
        "lopa_bench.engines",
        "lopa_bench.backends",
        "lopa_bench.models",
        "lopa_bench.plan",
        "lopa_bench.units",
        "decoders",
        "tasks.base",
    ),
    "analysis": ("analysis", "lopa_bench"),
    "conf": (),
}
HEAVY = ("torch", "transformers", "datasets", "pandas", "matplotlib", "wandb", "pyarrow", "scipy")


def imports_of(path: Path) -> set[str]:
    """Our modules that a file imports, also inside functions."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module)
    return {name for name in found if name.split(".")[0] in OURS}


def is_inside(name: str, package: str) -> bool:
    return name == package or name.startswith(package + ".")


@pytest.mark.parametrize("package", ALLOWED)
def test_imports_point_one_way(package: str) -> None:
    narrower = [other for other in ALLOWED if is_inside(other, package) and other != package]
    for path in sorted((ROOT / package.replace(".", "/")).rglob("*.py")):
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        if any(is_inside(module, other) for other in narrower):
            continue
        wrong = [name for name in imports_of(path) if not any(is_inside(name, a) for a in ALLOWED[package])]
        assert not wrong, f"{module} imports {', '.join(wrong)}; allowed: {', '.join(ALLOWED[package])}"


def test_nothing_imports_the_application() -> None:
    """lopa_bench.run is the top: only the entry point and what lies beside it may import it."""
    for package in ("decoders", "tasks", "analysis", "lopa_bench/models", "lopa_bench/backends", "lopa_bench/engines"):
        for path in (ROOT / package).rglob("*.py"):
            assert "lopa_bench.run" not in imports_of(path), path


@pytest.mark.parametrize(
    ("module", "forbidden"),
    [
        ("decoders", HEAVY),
        ("tasks.registry", HEAVY),
        ("analysis", ("torch", "transformers", "datasets", "wandb")),
        ("lopa_bench.__main__", HEAVY),
    ],
)
def test_heavy_packages_are_imported_late(module: str, forbidden: tuple[str, ...]) -> None:
    """Importing a package must not load what only a running job needs."""
    code = f"import sys, {module}; print(*sorted(set(sys.modules) & set({forbidden!r})))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.split() == []
