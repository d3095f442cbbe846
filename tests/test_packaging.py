"""What is installed: the files of data beside the code, and versions that every claimed Python can have."""

from __future__ import annotations

import re
import sys
from importlib.metadata import metadata
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from setuptools.config.pyprojecttoml import read_configuration

ROOT = Path(__file__).parents[1]
SETTINGS: dict[str, Any] = read_configuration(ROOT / "pyproject.toml", expand=False)
PATTERNS = SETTINGS["tool"]["setuptools"]["package-data"]
PROJECT = SETTINGS["project"]
CLAIMED = [text.rsplit(" ", 1)[1] for text in PROJECT["classifiers"] if re.search(r":: Python :: 3\.\d+$", text)]
PINS = dict(line.split("==") for line in (ROOT / "requirements.lock").read_text().splitlines())


@pytest.mark.parametrize("package", ["lopa_bench", "decoders", "tasks", "analysis", "conf"])
def test_every_data_file_of_a_package_is_installed_with_it(package: str) -> None:
    folder = ROOT / package
    data = {path for path in folder.rglob("*") if path.is_file() and path.suffix not in (".py", ".pyc")}
    installed = {path for pattern in PATTERNS.get(package, ()) for path in folder.glob(pattern)}
    assert sorted(data - installed) == []


@pytest.mark.parametrize("python", CLAIMED)
def test_every_locked_version_installs_on_every_claimed_python(python: str) -> None:
    assert SpecifierSet(PROJECT["requires-python"]).contains(python)
    refused = {
        name: found.get("Requires-Python")
        for name in PINS
        if (found := metadata(name)).get("Requires-Python")
        and not SpecifierSet(found["Requires-Python"]).contains(f"{python}.0")
    }
    assert refused == {}


def test_the_readme_names_the_pythons_that_are_claimed() -> None:
    *others, last = CLAIMED
    assert f"Python {', '.join(others)} or {last}, Linux or macOS" in (ROOT / "README.md").read_text()
    assert f"{sys.version_info[0]}.{sys.version_info[1]}" in CLAIMED


def test_every_dependency_is_imported_somewhere_and_locked_in_its_range() -> None:
    packages = ("lopa_bench", "decoders", "tasks", "analysis")
    code = "".join(path.read_text() for package in packages for path in (ROOT / package).rglob("*.py"))
    for wanted in map(Requirement, PROJECT["dependencies"]):
        module = {"hydra-core": "hydra", "pillow": "PIL"}.get(wanted.name, wanted.name.replace("-", "_"))
        assert re.search(rf"\b(import|from) {module}\b", code), wanted
        assert wanted.specifier.contains(PINS[wanted.name]), wanted
