"""docs/decoders.md says what the code does."""

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

from decoders import DecoderConfig, ScoreConfig, make_decoder
from tests.toy import fixed, run
from tests.worked_examples import EXAMPLES, render

PAGE = (Path(__file__).parents[1] / "docs" / "decoders.md").read_text()


def block(header: str) -> str:
    found = re.search(rf"```{re.escape(header)}\n(.*?)\n```", PAGE, re.DOTALL)
    assert found, f"docs/decoders.md has no block {header!r}"
    return found[1]


@pytest.mark.parametrize("name", EXAMPLES)
def test_worked_example(name: str) -> None:
    """`python -m tests.worked_examples` prints the blocks anew."""
    assert block(f"text worked:{name}") == render(EXAMPLES[name])


def test_every_decoder_and_setting_is_described() -> None:
    from dataclasses import fields

    from decoders import BASES

    for name in [*BASES, "lopa"]:
        assert f"## {name}\n" in PAGE
    for field in fields(DecoderConfig):
        assert re.search(rf"\b{field.name}\b", PAGE), f"docs/decoders.md does not mention {field.name}"


@pytest.fixture
def page_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with the page's files in it and nothing else, that Python imports from."""
    for header, text in re.findall(r"```\w+ file:(\S+)\n(.*?)\n```", PAGE, re.DOTALL):
        (tmp_path / header).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / header).write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in ("leftmost", "weakest"):
        sys.modules.pop(name, None)


def test_the_example_of_a_new_decoder_fills_what_the_page_says(page_files: Path) -> None:
    """The page's file and YAML, as they stand: alone, with another setting of its own, and as the base of lopa."""
    import yaml

    settings = yaml.safe_load((page_files / "conf/decoder/leftmost.yaml").read_text())
    settings = {key: value for key, value in settings.items() if not str(value).startswith("${")}
    model = fixed([0.5, 0.5, 0.95, 0.5])
    alone = run(model, DecoderConfig(**settings, gen_length=4))
    assert [step.positions for step in alone.steps] == [(1, 3), (2,), (4,)]
    longer = run(model, DecoderConfig(**{**settings, "own": {"run_length": 2}}, gen_length=4))
    assert [step.positions for step in longer.steps] == [(1, 2, 3), (4,)]
    over = run(model, DecoderConfig(name="lopa", target=settings["target"], k=1, gen_length=4))
    assert over.forwards < alone.forwards
    assert make_decoder(DecoderConfig(**settings, gen_length=4)).config.cache == "none"


def test_the_example_of_a_new_score_chooses_what_the_page_says(page_files: Path) -> None:
    """Masks at .5 .4 .3 behind the first: half the extra token's confidence and half the least certain mask."""
    config = DecoderConfig(
        base="greedy", k=2, gen_length=4, confidence="prob", score=ScoreConfig(target="weakest:Weakest")
    )
    step = run(fixed([0.6, 0.5, 0.4, 0.3]), config).steps[1]
    assert step.scores == pytest.approx((0.15, 0.4, 0.35))
    assert step.winner == 1
    assert make_decoder(config).config.score.kind == "weakest"


@pytest.mark.slow
def test_every_command_for_parts_of_ones_own_runs_as_it_is_printed(page_files: Path) -> None:
    """From a folder that holds the page's files and nothing else."""
    commands = re.findall(r"^PYTHONPATH=\. (python .*)$", PAGE, re.MULTILINE)
    assert len(commands) == 5
    for command in commands:
        words = [*command.split(), "task.limit=1", "decoder.gen_length=8", "run.progress=false"]
        done = subprocess.run(
            [sys.executable, *words[1:]], cwd=page_files, capture_output=True, text=True,
            env=os.environ | {"PYTHONPATH": ".", "OMP_NUM_THREADS": "1"},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
    rows = [pq.read_table(path).to_pylist()[0] for path in (page_files / "outputs/runs").glob("*/run.parquet")]
    recorded = [(row["decoder"], row["base"], json.loads(row["config"])["decoder"]) for row in rows]
    found = {(name, base, decoder["score"]["kind"], *decoder["own"].values()) for name, base, decoder in recorded}
    assert found == {
        ("leftmost", None, "mean", 1),
        ("leftmost", None, "mean", 2),
        ("lopa", "leftmost", "mean", 1),
        ("lopa", "d2f", "weakest", 0.5),
        ("lopa", "d2f", "weakest", 0),
        ("lopa", "d2f", "weakest", 1),
    }
    assert len({row["key"] for row in rows}) == len(rows) == 6
