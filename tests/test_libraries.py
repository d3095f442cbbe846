"""A library out of range is one message before anything is loaded."""

from __future__ import annotations

from pathlib import Path

import pytest

from lopa_bench.console.explain import explain
from lopa_bench.system import libraries
from lopa_bench.system.libraries import TESTED, LibraryError, check_libraries

LOCK = Path(__file__).parents[1] / "requirements.lock"


def test_the_libraries_of_this_environment_are_right() -> None:
    check_libraries()


def test_the_tested_versions_are_those_of_the_lock_file() -> None:
    locked = dict(line.split("==") for line in LOCK.read_text().splitlines() if "==" in line)
    assert {name: locked[name] for name in TESTED} == TESTED


def test_every_wrong_library_is_named_with_its_range(monkeypatch: pytest.MonkeyPatch) -> None:
    declared = ["torch>=2.6", "numpy>=99", "no-such-library>=1", 'other-missing>=1; extra == "ray"']
    monkeypatch.setattr(libraries, "requires", lambda name: declared)
    monkeypatch.setattr(libraries, "version", lambda name: {"torch": "2.13.0+cpu", "numpy": "2.4.6"}[name])
    monkeypatch.setattr(libraries, "PackageNotFoundError", KeyError)
    with pytest.raises(LibraryError) as caught:
        check_libraries()
    assert explain(caught.value) == (
        "error: numpy 2.4.6 is installed; needed: >=99 (tested with 2.4.6); "
        "no-such-library is not installed; needed: >=1"
    )


def test_a_folder_that_was_never_installed_is_not_checked() -> None:
    check_libraries("no-such-distribution")


def test_a_pre_release_inside_the_range_is_inside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libraries, "requires", lambda name: ["torch>=2.6"])
    monkeypatch.setattr(libraries, "version", lambda name: "2.14.0.dev20261101+cpu")
    check_libraries()
