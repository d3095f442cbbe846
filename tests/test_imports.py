"""Imports point one way: run -> engines -> tasks, decoders, backends -> models; analysis -> records, metrics.

docs/design.md draws these arrows. The rules are held on the project, and shown to bite on projects with one wrong line.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.import_graph import OURS, ROOT, Graph

# package or module -> what of this project it may import; the narrowest entry counts
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
    "analysis": (
        "analysis",
        "lopa_bench.comparable",
        "lopa_bench.integrity",
        "lopa_bench.metrics",
        "lopa_bench.models.folders",
        "lopa_bench.models.tokenizers",
        "lopa_bench.paired",
        "lopa_bench.presets",
        "lopa_bench.reading",
        "lopa_bench.records",
        "lopa_bench.schema",
        "lopa_bench.statistics",
        "lopa_bench.streams",
    ),
    "conf": (),
}
ABOVE_ALL = {"lopa_bench.run": ("lopa_bench.entry",), "lopa_bench.entry": ("lopa_bench.__main__", "lopa_bench.child")}

# package -> the modules whose import may load it; everything else imports it late, or through a function of these
LOADERS: dict[str, tuple[str, ...]] = {
    "torch": (
        "lopa_bench.benchmark",
        "lopa_bench.backends.autoregressive",
        "lopa_bench.backends.local",
        "lopa_bench.backends.readout",
        "lopa_bench.engines.autoregressive",
        "lopa_bench.engines.masked",
        "lopa_bench.models.loader",
        "lopa_bench.models.lora",
        "lopa_bench.models.served",
        "lopa_bench.models.tensors",
        "lopa_bench.models.transformer",
        "lopa_bench.models.mini",
    ),
    "pandas": ("analysis",),
    "pyarrow": ("analysis",),
    "matplotlib": ("analysis.figures", "analysis.notebook", "analysis.report"),
    "httpx": ("lopa_bench.backends.server", "lopa_bench.engines.server"),
    "hydra": ("lopa_bench.child", "lopa_bench.entry", "lopa_bench.jobs", "lopa_bench.messages", "lopa_bench.sweep"),
    **dict.fromkeys(("transformers", "datasets", "wandb", "scipy", "sympy", "math_verify", "rich"), ()),
}


def is_inside(name: str, packages: tuple[str, ...]) -> bool:
    return any(name == package or name.startswith(package + ".") for package in packages)


def wrong_arrows(graph: Graph) -> list[str]:
    """Every import that no arrow of ALLOWED covers, and every import of what stands above all."""
    found = []
    for module in graph.files:
        rules = [package for package in ALLOWED if is_inside(module, (package,))]
        allowed = ALLOWED[max(rules, key=len)] if rules else OURS
        for name in sorted(graph.ours(module)):
            above = ABOVE_ALL.get(name)
            if not is_inside(name, allowed) or (above is not None and module not in above):
                found.append(f"{module} imports {name}")
    return found


def heavy_imports(graph: Graph) -> list[str]:
    """Every module whose import loads a heavy package though it is none of that package's loaders."""
    return [
        " -> ".join(chain)
        for package, loaders in LOADERS.items()
        for module in graph.files
        if (chain := graph.loads(module, package)) and not is_inside(module, loaders)
    ]


@pytest.fixture(scope="module")
def graph() -> Graph:
    return Graph()


def test_imports_point_one_way(graph: Graph) -> None:
    assert wrong_arrows(graph) == []


def test_heavy_packages_are_imported_late(graph: Graph) -> None:
    assert heavy_imports(graph) == []


def test_the_commands_a_user_waits_for_load_nothing_heavy() -> None:
    """The same seen from outside, where what a library itself imports counts too."""
    light = "lopa_bench.__main__, lopa_bench.config, tasks.registry, tasks.humaneval, tasks.mbpp, tasks.gsm8k, decoders"
    heavy = "torch transformers datasets pandas matplotlib wandb pyarrow scipy"
    code = f"import sys, {light}; print(*sorted(set(sys.modules) & set({heavy!r}.split())))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.split() == []


@pytest.mark.parametrize(
    ("file", "line", "found"),
    [
        ("tasks/humaneval.py", "import torch", "tasks.humaneval -> torch"),
        ("tasks/humaneval.py", "from lopa_bench import run", "tasks.humaneval imports lopa_bench.run"),
        ("lopa_bench/config.py", "from torch import nn", "lopa_bench.config -> torch"),
        ("lopa_bench/config.py", "try:\n    import torch\nexcept ImportError: ...", "lopa_bench.config -> torch"),
        ("lopa_bench/units.py", "from .models import loader", "lopa_bench.units -> lopa_bench.models.loader -> torch"),
        ("analysis/labels.py", "from lopa_bench.run import run", "analysis.labels imports lopa_bench.run"),
        ("analysis/labels.py", "from lopa_bench import run", "analysis.labels imports lopa_bench.run"),
        ("decoders/fills.py", "def f():\n    import lopa_bench.config", "decoders.fills imports lopa_bench.config"),
        ("lopa_bench/metrics.py", "from lopa_bench.entry import job", "lopa_bench.metrics imports lopa_bench.entry"),
        (
            "decoders/spec.py",
            "__import__('tasks.base')",
            "decoders.spec imports tasks.base",
        ),
    ],
)
def test_a_wrong_arrow_is_seen(graph: Graph, file: str, line: str, found: str) -> None:
    planted = graph.with_line(file, line)
    assert found in wrong_arrows(planted) + heavy_imports(planted)
