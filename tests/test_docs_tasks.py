"""docs/tasks.md: its task does what the page says, and its commands run as they are printed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tasks.registry import make_task
from tasks.types import TaskConfig
from tests.test_shadowing import occupied
from tests.warm import ROOT

PAGE = (ROOT / "docs/tasks.md").read_text()


@pytest.fixture
def page_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with the page's files in it and nothing else, that Python imports from."""
    for header, text in re.findall(r"```\w+ file:(\S+)\n(.*?)\n```", PAGE, re.DOTALL):
        (tmp_path / header).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / header).write_text(text + "\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    sys.modules.pop("capitals", None)


@pytest.mark.usefixtures("page_files")
def test_the_example_asks_and_judges_as_the_page_says() -> None:
    made = make_task(TaskConfig(target="capitals:Capitals", limit=2, shots=1, prompt_style="sentence"), True)
    assert [problem.gold for problem in made.problems] == ["Lima", "N'Djamena"]
    assert made.prompt(made.problems[1]).text == "The capital of Peru is Lima\nThe capital of Chad is"
    assert (made.name, made.scorer, made.source.name, made.source.rows) == ("capitals", "contains", "Capitals", 3)
    assert [made.score(made.problems[0], text).correct for text in ("It is Lima.", "Cusco")] == [True, False]
    strict = make_task(TaskConfig(target="capitals:Capitals", scorer="equals"), True)
    assert [strict.score(strict.problems[0], text).correct for text in ("It is Lima.", " Lima\n")] == [False, True]
    assert strict.prompt(strict.problems[0]).text == "What is the capital of Peru?"


@pytest.mark.slow
def test_every_command_runs_as_it_is_printed_also_beside_folders_with_our_names(page_files: Path) -> None:
    commands = re.findall(r"^PYTHONPATH=\. (python .*)$", PAGE, re.MULTILINE)
    assert len(commands) == 4
    (page_files / "conf").rename(page_files / "kept")
    occupied(page_files, "packages")
    (page_files / "kept/task").rename(page_files / "conf/task")
    for command in commands:
        words = [*command.split(), "decoder.gen_length=8", "run.progress=false"]
        done = subprocess.run(
            [sys.executable, *words[1:]], cwd=page_files, capture_output=True, text=True,
            env=os.environ | {"PYTHONPATH": f".{os.pathsep}{ROOT}", "OMP_NUM_THREADS": "1"},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
    rows = [pq.read_table(path).to_pylist()[0] for path in (page_files / "outputs/runs").glob("*/run.parquet")]
    settings = [json.loads(row["config"])["task"] for row in rows]
    assert {row["task"] for row in rows} == {task["name"] for task in settings} == {"capitals"}
    found = {(row["n"], row["source_kind"], row["scorer"], task["prompt_style"]) for row, task in zip(rows, settings)}
    assert found == {
        (3, "embedded", "contains", "question"),
        (2, "file", "contains", "question"),
        (3, "embedded", "equals", "sentence"),
        (3, "embedded", "contains", "sentence"),
    }
    assert len({row["key"] for row in rows}) == len(rows) == 4


def test_every_setting_of_a_task_is_described() -> None:
    for name in TaskConfig.__dataclass_fields__:
        assert f"`{name}`" in PAGE or f"task.{name}" in PAGE, f"docs/tasks.md does not mention {name}"
