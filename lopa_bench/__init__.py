"""The application. The packages of this distribution that lie beside it are found there and nowhere else."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[1]
SIBLINGS = ("decoders", "tasks", "analysis", "conf")


class _Siblings:
    """`python -m` puts the working folder in front of everything, and a folder or file there may well be called
    `conf`, `tasks` or `decoders`: such a name means the package of this distribution all the same.
    """

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        return PathFinder.find_spec(name, [str(ROOT)]) if name in SIBLINGS else None


sys.meta_path.insert(0, _Siblings)  # a finder needs this one function
