"""Which libraries count, and whether those that are installed are the ones that this distribution asks for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib.metadata import PackageNotFoundError, requires, version

from lopa_bench.errors import ConfigError

# What the tests ran with last; tests/test_libraries.py holds it to requirements.lock.
TESTED: Mapping[str, str] = {
    "torch": "2.13.0",
    "transformers": "5.24.0",
    "tokenizers": "0.23.3",
    "numpy": "2.4.6",
    "pyarrow": "26.0.1",
    "hydra-core": "1.3.8",
}
DECISIVE = ("torch", "transformers", "tokenizers", "numpy")  # their versions are part of a run's identity
RECORDED = (*DECISIVE, "datasets", "hydra-core", "pyarrow", "safetensors", "torchao")


def installed(names: Iterable[str]) -> dict[str, str | None]:
    """The versions of these libraries; None for one that is not there."""
    found: dict[str, str | None] = {}
    for name in names:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = None
    return found


class LibraryError(ConfigError):
    """A library is missing or outside the range that this distribution declares."""


def check_libraries(distribution: str = "lopa-bench") -> None:
    """Raises LibraryError that names every wrong library with its range and the version that was tested.

    A folder that was never installed declares nothing, and nothing is checked.
    """
    from packaging.requirements import Requirement

    try:
        declared = [Requirement(text) for text in requires(distribution) or ()]
    except PackageNotFoundError:
        return
    always = [wanted for wanted in declared if wanted.marker is None or wanted.marker.evaluate({"extra": ""})]
    if wrong := [problem for wanted in always if (problem := _problem(wanted.name, str(wanted.specifier)))]:
        raise LibraryError("; ".join(wrong))


def _problem(name: str, wanted: str) -> str | None:
    from packaging.specifiers import SpecifierSet

    tested = f" (tested with {TESTED[name]})" if name in TESTED else ""
    found = installed([name])[name]
    if found is None:
        return f"{name} is not installed; needed: {wanted or 'any version'}{tested}"
    if SpecifierSet(wanted).contains(found, prereleases=True):
        return None
    return f"{name} {found} is installed; needed: {wanted}{tested}"
