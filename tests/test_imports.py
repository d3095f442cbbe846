"""Imports run down: a room takes from the rooms below it, and never from one above or beside that takes from it.

docs/design.md draws the floors. The rules are held on the project, and shown to bite on projects with one wrong line.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from tests.import_graph import OURS, ROOT, Graph, name_of

SETTINGS_OF_A_MODEL = ("lopa_bench.settings.model", "lopa_bench.settings.backend")  # never those of a run
UP_TO_SETTINGS = (
    *("decoders", "tasks", "lopa_bench.errors", "lopa_bench.system", "lopa_bench.records", "lopa_bench.metrics"),
    "lopa_bench.settings",
)
UP_TO_PLAN = (*UP_TO_SETTINGS, "lopa_bench.models", "lopa_bench.backends", "lopa_bench.plan")
UP_TO_RUN = (*UP_TO_PLAN, "lopa_bench.engines", "lopa_bench.console", "lopa_bench.tracking", "lopa_bench.run")

# room -> what of this project it may import beside itself; the narrowest entry counts
ALLOWED: Mapping[str, tuple[str, ...]] = {
    "decoders": (),
    "decoders.types": (),
    "decoders.parts": ("decoders.config", "decoders.state", "decoders.types"),
    "decoders.allowed": (),
    "decoders.lookahead": ("decoders.config", "decoders.parts", "decoders.state", "decoders.types"),
    "decoders.families": ("decoders.allowed", "decoders.config", "decoders.parts", "decoders.spec"),
    "tasks.types": (),
    "tasks.sources": ("tasks.types",),
    "tasks.base": ("tasks.sources", "tasks.types"),
    "tasks.prompts": ("tasks.types",),
    "tasks.segments": (),
    "tasks.remembered": (),
    "tasks.sandbox": (),
    "tasks.sandbox.inside": (),
    "tasks.sandbox.walls": ("tasks.sandbox.ended", "tasks.sandbox.processes"),
    **dict.fromkeys(
        ("tasks.gsm8k", "tasks.math"),
        ("tasks.base", "tasks.prompts", "tasks.remembered", "tasks.segments", "tasks.sources", "tasks.types"),
    ),
    "tasks.code": (
        *("tasks.base", "tasks.prompts", "tasks.remembered", "tasks.sandbox", "tasks.segments", "tasks.sources"),
        "tasks.types",
    ),
    "tasks.requests": ("tasks.base", "tasks.sources", "tasks.types"),
    "tasks.own": ("tasks.base", "tasks.sources", "tasks.types"),
    "tasks.verdicts": ("tasks.base", "tasks.types"),
    "tasks.registry": ("tasks.base", "tasks.own", "tasks.sources", "tasks.types"),
    "lopa_bench": (),
    "lopa_bench.errors": (),
    "lopa_bench.system": ("lopa_bench", "lopa_bench.errors"),
    "lopa_bench.records": ("lopa_bench.errors", "lopa_bench.system"),
    "lopa_bench.metrics": ("lopa_bench.records",),
    "lopa_bench.settings": (
        *("decoders", "lopa_bench", "lopa_bench.errors", "lopa_bench.metrics", "tasks.registry", "tasks.types"),
    ),
    "lopa_bench.models": (
        *("decoders.types", "lopa_bench.errors", "lopa_bench.system.memory", "tasks.types"),
        *SETTINGS_OF_A_MODEL,
    ),
    "lopa_bench.models.mini": ("lopa_bench.models", "tasks"),
    "lopa_bench.backends": (
        *("decoders", "lopa_bench.errors", "lopa_bench.models", "lopa_bench.system.signals"),
        *SETTINGS_OF_A_MODEL,
    ),
    "lopa_bench.plan": ("lopa_bench", *UP_TO_PLAN),
    "lopa_bench.engines": (
        *("decoders", "lopa_bench.backends", "lopa_bench.errors", "lopa_bench.models", "lopa_bench.plan"),
        *("lopa_bench.settings.backend", "lopa_bench.settings.config", "lopa_bench.system", "tasks.types"),
    ),
    "lopa_bench.console": ("lopa_bench", *UP_TO_SETTINGS),
    "lopa_bench.tracking": (*UP_TO_SETTINGS, "lopa_bench.console"),
    "lopa_bench.run": UP_TO_RUN,
    "lopa_bench.cost": (
        *("decoders.allowed", "lopa_bench", "lopa_bench.console.numbers", "lopa_bench.errors", "lopa_bench.metrics"),
        *("lopa_bench.models", "lopa_bench.records", "lopa_bench.settings.spelling", "lopa_bench.system.streams"),
    ),
    "lopa_bench.lm_eval": ("lopa_bench", *UP_TO_RUN, "lopa_bench.entry"),
    "lopa_bench.sweep": ("lopa_bench", *UP_TO_RUN),
    "lopa_bench.entry": ("lopa_bench", *UP_TO_RUN, "lopa_bench.sweep"),
    "lopa_bench.__main__": (*UP_TO_RUN, "lopa_bench.sweep", "lopa_bench.entry"),
    "analysis": (
        *("lopa_bench.console.numbers", "lopa_bench.cost", "lopa_bench.errors", "lopa_bench.metrics"),
        *("lopa_bench.records", "lopa_bench.system.clock", "lopa_bench.system.environment"),
        *("lopa_bench.system.streams", "lopa_bench.models.checkpoint.folders", "lopa_bench.models.text.tokenizers"),
    ),
    "analysis.imported": (
        *(
            "analysis",
            "lopa_bench.metrics",
            "lopa_bench.records",
            "lopa_bench.run.completion",
            "lopa_bench.run.judging",
        ),
        *("lopa_bench.system.clock", "lopa_bench.system.environment", "tasks"),
    ),
    "analysis.protocols": ("analysis", "conf", "decoders", "lopa_bench.console.numbers", "lopa_bench.records"),
    "conf": (),
}

# package -> the modules whose import may load it; everything else imports it late, or through a function of these
LOADERS: Mapping[str, tuple[str, ...]] = {
    "torch": (
        "lopa_bench.backends.autoregressive",
        "lopa_bench.backends.diffusion_gemma",
        "lopa_bench.backends.local",
        "lopa_bench.backends.ranks",
        "lopa_bench.backends.readout",
        "lopa_bench.backends.session",
        "lopa_bench.backends.beside",
        "lopa_bench.engines.autoregressive",
        "lopa_bench.engines.masked",
        "lopa_bench.engines.ranked",
        "lopa_bench.models.checkpoint.loader",
        "lopa_bench.models.checkpoint.lora",
        "lopa_bench.models.checkpoint.saved",
        "lopa_bench.models.checkpoint.tensors",
        "lopa_bench.models.loaded",
        "lopa_bench.models.network",
        "lopa_bench.models.quantized",
        "lopa_bench.models.mini",
        "lopa_bench.run.benchmark",
    ),
    "pandas": ("analysis",),
    "pyarrow": ("analysis",),
    "matplotlib": ("analysis.figures", "analysis.notebook", "analysis.page", "analysis.report"),
    "httpx": ("lopa_bench.backends.server", "lopa_bench.engines.server"),
    "hydra": (
        *("lopa_bench.console.explain", "lopa_bench.entry", "lopa_bench.sweep.entrants", "lopa_bench.sweep.jobs"),
        *("lopa_bench.sweep.multirun", "lopa_bench.sweep.report"),  # and no process of a job
    ),
    "lm_eval": ("lopa_bench.lm_eval.model",),
    **dict.fromkeys(("transformers", "datasets", "wandb", "scipy", "sympy", "math_verify", "rich"), ()),
}
OPTIONAL = ("lm_eval",)  # may not be installed at all
WITHOUT_ANALYSIS = ("pandas", "pyarrow", "matplotlib")  # of which no module outside analysis loads any

MOST_ROOMS, MOST_MODULES, MOST_LINES = 16, 12, 300
NO_ROOMS = ("__init__.py", "__main__.py")  # of lopa_bench: its name and its door


def is_inside(name: str, packages: Iterable[str]) -> bool:
    """`lopa_bench` itself is what its __init__.py holds."""
    return any(name == package or (package != "lopa_bench" and name.startswith(package + ".")) for package in packages)


def wrong_arrows(graph: Graph) -> list[str]:
    """Every import that no arrow of ALLOWED covers, and every module that stands in no room."""
    found = []
    for module in graph.files:
        rooms = [room for room in ALLOWED if is_inside(module, (room,))]
        if not rooms:
            found += [f"{module} stands in no room"] if module not in OURS else []
            continue
        room = max(rooms, key=len)
        found += [
            f"{module} imports {name}" for name in graph.ours(module) if not is_inside(name, (room, *ALLOWED[room]))
        ]
    return sorted(found)


def circles(arrows: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """Groups that reach each other: what is left when whatever has no arrow out, or none in, is taken away."""
    left = {name: set(targets) - {name} for name, targets in arrows.items()}
    while ends := [name for name, targets in left.items() if not targets & left.keys()]:
        left = {name: targets for name, targets in left.items() if name not in ends}
    while starts := [name for name in left if not any(name in targets for targets in left.values())]:
        left = {name: targets for name, targets in left.items() if name not in starts}
    return [sorted(left)] if left else []


def room_arrows(graph: Graph, depth: int) -> dict[str, set[str]]:
    """The arrows between rooms: names cut to `depth` parts."""
    found: dict[str, set[str]] = {}
    for module in graph.files:
        room = ".".join(module.split(".")[:depth])
        others = {".".join(name.split(".")[:depth]) for name in graph.ours(module)}
        found.setdefault(room, set()).update(others - {room, "lopa_bench"})
    return found


def heavy_imports(graph: Graph, modules: Iterable[str] | None = None) -> list[str]:
    """Every module whose import loads a heavy package though it is none of that package's loaders."""
    return [
        " -> ".join(chain)
        for package, loaders in LOADERS.items()
        for module in modules or graph.files
        if (chain := graph.loads(module, package)) and not is_inside(module, loaders)
    ]


@pytest.fixture(scope="module")
def graph() -> Graph:
    return Graph()


def test_imports_run_down(graph: Graph) -> None:
    assert wrong_arrows(graph) == []


@pytest.mark.parametrize("depth", [1, 2, 3, 4])
def test_no_room_reaches_itself_through_another(graph: Graph, depth: int) -> None:
    assert circles(room_arrows(graph, depth)) == []


def test_heavy_packages_are_imported_late(graph: Graph) -> None:
    assert heavy_imports(graph) == []


@pytest.mark.parametrize("heavy", [tuple(p for p in LOADERS if p not in WITHOUT_ANALYSIS), WITHOUT_ANALYSIS])
def test_every_module_is_imported_where_what_it_must_not_load_is_missing(graph: Graph, heavy: tuple[str, ...]) -> None:
    """The same seen from outside, where what a library itself imports counts too."""
    loaders = [loader for package in (*heavy, *OPTIONAL) for loader in LOADERS[package]]
    light = [name for name in graph.files if not is_inside(name, loaders) and not name.endswith("__main__")]
    code = f"import sys; sys.modules.update(dict.fromkeys({heavy!r})); import {', '.join(light)}"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


def test_the_house_has_few_rooms_and_no_large_ones(graph: Graph) -> None:
    inside = (path for path in (ROOT / "lopa_bench").iterdir() if path.name not in NO_ROOMS)
    rooms = [path for path in inside if path.suffix == ".py" or any(path.glob("*.py"))]
    modules: dict[Path, int] = {}
    for path in graph.files.values():
        modules[path.parent] = modules.get(path.parent, 0) + 1
    lines = {name: len(path.read_text("utf-8").splitlines()) for name, path in graph.files.items()}
    assert len(rooms) <= MOST_ROOMS
    assert {str(folder.relative_to(ROOT)): n for folder, n in modules.items() if n > MOST_MODULES} == {}
    assert {name: n for name, n in lines.items() if n > MOST_LINES} == {}


@pytest.mark.parametrize(
    ("file", "line", "found"),
    [
        ("tasks/code/humaneval.py", "import torch", "tasks.code.humaneval -> torch"),
        ("tasks/code/humaneval.py", "from lopa_bench import run", "tasks.code.humaneval imports lopa_bench.run"),
        ("tasks/gsm8k/task.py", "from tasks.code import score", "tasks.gsm8k.task imports tasks.code.score"),
        ("lopa_bench/settings/config.py", "from torch import nn", "lopa_bench.settings.config -> torch"),
        (
            "lopa_bench/settings/config.py",
            "try:\n    import torch\nexcept ImportError: ...",
            "lopa_bench.settings.config -> torch",
        ),
        (
            "lopa_bench/plan/units.py",
            "from ..models.checkpoint import loader",
            "lopa_bench.plan.units -> lopa_bench.models.checkpoint.loader -> torch",
        ),
        (
            "lopa_bench/models/checkpoint/keys.py",
            "from lopa_bench.settings.config import Config",
            "lopa_bench.models.checkpoint.keys imports lopa_bench.settings.config",
        ),
        (
            "analysis/labels.py",
            "from lopa_bench.run.runner import run",
            "analysis.labels imports lopa_bench.run.runner",
        ),
        ("analysis/labels.py", "from lopa_bench import run", "analysis.labels imports lopa_bench.run"),
        (
            "decoders/parts/fills.py",
            "def f():\n    import lopa_bench.errors",
            "decoders.parts.fills imports lopa_bench.errors",
        ),
        (
            "lopa_bench/metrics/aggregate.py",
            "from lopa_bench.entry import job",
            "lopa_bench.metrics.aggregate imports lopa_bench.entry",
        ),
        ("decoders/spec.py", "__import__('tasks.base')", "decoders.spec imports tasks.base"),
    ],
)
def test_a_wrong_arrow_is_seen(graph: Graph, file: str, line: str, found: str) -> None:
    planted = graph.with_line(file, line)
    assert found in wrong_arrows(planted) + heavy_imports(planted, [name_of(ROOT / file)])


@pytest.mark.parametrize(
    ("file", "line", "circle"),
    [
        (
            "lopa_bench/records/schema.py",
            "def f():\n    from lopa_bench.metrics import presets",
            ["lopa_bench.metrics", "lopa_bench.records"],
        ),
        ("tasks/types.py", "from tasks.base import Task", ["tasks.base", "tasks.sources", "tasks.types"]),
    ],
)
def test_a_circle_is_seen(graph: Graph, file: str, line: str, circle: list[str]) -> None:
    (found,) = circles(room_arrows(graph.with_line(file, line), 2))
    assert set(circle) <= set(found)
