"""Whether math-verify finds each gold equal to itself: proved once for these golds, this grader, these libraries."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from tasks.math.grader import GraderPool
from tasks.remembered import keep, recall, said_if_slow

LIBRARIES = ("math-verify", "latex2sympy2-extended", "sympy", "antlr4-python3-runtime")


def unequal_golds(golds: Sequence[str], graders: GraderPool) -> list[str]:
    """The golds that the grader does not find equal to themselves. Raises TaskError without math-verify."""
    distinct = sorted(set(golds))
    facts = {"golds": distinct, "grader": _code_sha256(), "libraries": grader_versions()}
    known = recall("golds", facts)
    if isinstance(known, list):
        return known
    with said_if_slow(f"proving once that math-verify finds {len(distinct)} golds equal to themselves"):
        verdicts = graders.compare_all([(gold, gold) for gold in distinct])
    unequal = [gold for gold, verdict in zip(distinct, verdicts, strict=True) if not verdict.correct]
    if all(verdict.status == "ok" for verdict in verdicts):  # a timeout says something of this machine, now
        keep("golds", facts, unequal)
    return unequal


def grader_versions() -> dict[str, str | None]:
    """What a verdict depends on beside this project's code."""
    found: dict[str, str | None] = {"python": platform.python_version()}
    for name in LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = None
    return found


def _code_sha256() -> str:
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(f"{path.name}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()
