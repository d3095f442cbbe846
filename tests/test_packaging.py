"""What is installed: every file of data beside the code is named in pyproject.toml."""

from __future__ import annotations

from pathlib import Path

import pytest
from setuptools.config.pyprojecttoml import read_configuration

ROOT = Path(__file__).parents[1]
PATTERNS = read_configuration(ROOT / "pyproject.toml", expand=False)["tool"]["setuptools"]["package-data"]


@pytest.mark.parametrize("package", ["lopa_bench", "decoders", "tasks", "analysis", "conf"])
def test_every_data_file_of_a_package_is_installed_with_it(package: str) -> None:
    folder = ROOT / package
    data = {path for path in folder.rglob("*") if path.is_file() and path.suffix not in (".py", ".pyc")}
    installed = {path for pattern in PATTERNS.get(package, ()) for path in folder.glob(pattern)}
    assert sorted(data - installed) == []
