"""The source behind a target is part of a run's identity: its module, what that imports, the files that they name."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pytest

from lopa_bench.plan.users_code import distrust_bytecode, target_facts, targets
from tests.warm import ROOT

FILES = {
    "mine.py": "import helper, json, numpy\nfrom pack import inner\nfrom decoders import Base\n"
    "import helper as again\nTABLE = 'table.json'\nTHING = 1\n"
    "def late():\n    import lazy\n    from importlib import import_module\n    return import_module('by_name')\n",
    "helper.py": "from deeper import value\n",
    "deeper.py": "import mine\nvalue = 1\nFOLDER, NAME = 'tables', 'inner.csv'\n",
    "lazy.py": "",
    "by_name.py": "",
    "table.json": "{}",
    "tables/inner.csv": "1,2",
    "unread.json": "{}",
    "unread.py": "",
    "pack/__init__.py": "",
    "pack/inner.py": "from . import beside\nfrom .sub.leaf import x\nfrom ..nowhere import y\n",
    "pack/beside.py": "",
    "pack/sub/__init__.py": "",
    "pack/sub/leaf.py": "from .. import beside\nx = 1\n",
    "pack/found_by_search.py": "",
    "pack/.venv/lib.py": "",
    "pack/notes.txt": "",
    "queue.py": "",  # as one of Python's own modules
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


COUNTED = [
    "mine.py", "helper.py", "deeper.py", "lazy.py", "by_name.py", "table.json", "tables/inner.csv",
    "pack/__init__.py", "pack/inner.py", "pack/beside.py", "pack/sub/__init__.py", "pack/sub/leaf.py",
    "pack/found_by_search.py",
]  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_a_changed_file_is_another_target_exactly_if_it_is_reached(name: str, folder: Path) -> None:
    before = target_facts("mine:THING")
    time = (folder / name).stat().st_mtime_ns
    (folder / name).write_text(FILES[name].replace("1", "2") + ("" if "1" in FILES[name] else "\n"))
    os.utime(folder / name, ns=(time, time))
    assert (target_facts("mine:THING") != before) == (name in COUNTED)


def test_what_has_a_version_counts_by_its_version(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    facts = target_facts("mine:THING")
    assert [name for name in facts if name.startswith("library")] == ["library numpy"]
    assert not any("decoders" in name or "json" in name.split(":")[0] for name in facts)
    monkeypatch.setattr("lopa_bench.plan.users_code.version", lambda _: "9.9.9")
    assert target_facts("mine:THING")["library numpy"] == "9.9.9"


def test_nothing_is_imported_by_asking(folder: Path) -> None:
    (folder / "loud.py").write_text("raise SystemExit('imported')")
    (folder / "mine.py").write_text("def late():\n    import loud.inner\n    import pack.inner\n")
    target_facts("mine:THING")
    assert not {"mine", "loud", "pack"} & set(sys.modules)


def test_where_a_target_lies_does_not_count(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    here = target_facts("mine:THING")
    other = tmp_path_factory.mktemp("other")
    shutil.copytree(folder, other, dirs_exist_ok=True)
    code = "from lopa_bench.plan.users_code import target_facts; print(target_facts('mine:THING'))"
    environment = {**os.environ, "PYTHONPATH": f"{other}{os.pathsep}{ROOT}"}
    done = subprocess.run([sys.executable, "-c", code], cwd=other, env=environment, capture_output=True, text=True)
    assert done.stdout.strip() == str(here), done.stderr


HOSTILE: dict[str, Callable[[Path], object]] = {
    "a syntax error in a module that is imported late": lambda f: (f / "lazy.py").write_text("def ("),
    "a file that is no text": lambda f: (f / "lazy.py").write_bytes(b"\xff\0\xfe"),
    "brackets": lambda f: (f / "lazy.py").write_text("(" * 100_000),
    "a module that imports itself": lambda f: (f / "lazy.py").write_text("import lazy, mine"),
    "names that are no files": lambda f: (f / "lazy.py").write_text("a = ['', '.', '..', '/', 'x' * 9, '/etc/passwd']"),
    "a name that is too long": lambda f: (f / "lazy.py").write_text(f"a = {'x' * 5000!r}"),
    "a link to itself": lambda f: (f / "pack/loop").symlink_to(f / "pack"),
    "relative imports beyond the top": lambda f: (f / "pack/beside.py").write_text("from .... import x"),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_whatever_a_source_holds_it_has_a_checksum(what: str, folder: Path) -> None:
    HOSTILE[what](folder)
    assert {"mine", "helper", "pack.inner"} <= set(target_facts("mine:THING"))


def test_a_package_without_init_an_archive_and_a_target_that_is_not_there(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "loose").mkdir()
    (folder / "loose/part.py").write_text("import lazy")
    assert list(target_facts("loose.part:X")) == ["lazy", "loose.part"]
    assert target_facts("nowhere:X") == target_facts("nowhere.at.all:X") == target_facts("") == {}
    with zipfile.ZipFile(folder / "archive.zip", "w") as archive:
        archive.writestr("zipped.py", "X = 1")
    monkeypatch.syspath_prepend(str(folder / "archive.zip"))
    assert list(target_facts("zipped:X")) == ["zipped"]


def test_relative_imports_start_at_the_folder_of_the_module(folder: Path) -> None:
    """In folders without __init__.py nothing else leads to the modules beside."""
    (folder / "loose/deep").mkdir(parents=True)
    (folder / "loose/part.py").write_text("from .beside import x\nfrom .deep import leaf")
    (folder / "loose/deep/leaf.py").write_text("from ..above import x")
    for name in ("beside", "above"):
        (folder / f"loose/{name}.py").write_text("x = 1")
    assert list(target_facts("loose.part:X")) == ["loose.above", "loose.beside", "loose.deep.leaf", "loose.part"]


def test_a_module_of_a_user_is_compiled_from_its_source_and_not_taken_as_it_was_compiled_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path_hooks", [*sys.path_hooks])
    monkeypatch.setattr(sys, "path_importer_cache", {})
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.syspath_prepend(str(tmp_path))
    source = tmp_path / "edited_in_place.py"

    def imported(value: int) -> int:
        """What the module says that it holds, after an edit that changes neither its size nor its time."""
        source.write_text(f"VALUE = {value}\n")
        os.utime(source, ns=(10**18, 10**18))
        sys.modules.pop(source.stem, None)
        found: int = import_module(source.stem).VALUE
        return found

    assert [imported(1), imported(2)] == [1, 1]  # as Python does it
    distrust_bytecode()
    assert [imported(2), imported(3)] == [2, 3]
    sys.modules.pop(source.stem)


def test_a_module_of_a_user_that_hides_one_of_python_counts(folder: Path) -> None:
    (folder / "mine.py").write_text("import shelve")
    (folder / "shelve.py").write_text("")
    sys.modules.pop("shelve", None)
    assert "shelve" in target_facts("mine:THING")


def test_every_target_of_a_configuration_is_found() -> None:
    settings = {"decoder": {"target": "a:A", "score": {"target": "b:B", "kind": "x"}}, "task": {"target": None}}
    assert list(targets(settings)) == ["a:A", "b:B"]


DECODER = """
import numpy as np

from decoders import Base
from decoders.parts.fills import Fill
from decoders.parts.windows import Blocks
from threshold import THRESHOLD


class Leftmost(Fill):
    def select(self, view, branch):
        passed = view.prob > THRESHOLD
        passed[0] = True
        return np.flatnonzero(passed)


LEFTMOST = Base(
    name="leftmost", window=Blocks, fills={"leftmost": Leftmost}, caches=("none",),
    defaults={"fill": "leftmost", "confidence": "prob", "block_size": None, "cache": None, "attention": "full"},
)
"""


@pytest.mark.slow
def test_an_edited_helper_of_a_decoder_runs_anew_even_with_the_size_and_time_of_before(
    settings: list[str], tmp_path: Path
) -> None:
    """Python itself would take the compiled file of the first run."""
    (tmp_path / "leftmost.py").write_text(DECODER)
    helper = tmp_path / "threshold.py"
    own = [*settings, "decoder.base=leftmost", "decoder.target=leftmost:LEFTMOST", "decoder.k=0", "task.limit=1"]
    results = []
    for threshold in ("0.00", "2.00", "2.00"):
        helper.write_text(f"THRESHOLD = {threshold}\n")
        os.utime(helper, ns=(10**18, 10**18))
        command = [sys.executable, "-m", "lopa_bench", *own, "run.out=out"]
        environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{tmp_path}"}
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        results.append(json.loads(done.stdout.splitlines()[-1]))
    first, second, again = results
    assert (first["forwards"], second["forwards"]) == (2, 16)
    assert again["run_id"] == second["run_id"] != first["run_id"]
