"""What the pages state as figures, and every command they show, against the project itself."""

from __future__ import annotations

import json
import re
import shlex
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from hydra import compose, initialize_config_module
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf

from lopa_bench.entry import prepare
from lopa_bench.metrics.statistics import wilson
from lopa_bench.settings.arguments import with_devices
from lopa_bench.settings.config import Config
from lopa_bench.settings.validate import validate
from tasks.registry import make_task
from tasks.types import TaskConfig
from tests import benchmark_files
from tests.extras import has_plugin
from tests.golden_cases import case_files
from tests.warm import Warm

ROOT = Path(__file__).parents[1]
PAGES = {path.relative_to(ROOT).as_posix(): path.read_text() for path in [ROOT / "README.md", *ROOT.glob("docs/*.md")]}
README = PAGES["README.md"]
PLACES = {"path/to/checkpoint": "embedded:mini"}  # what a user puts in the place of an example
PLUGINS = {"search_tpf": "hydra_optuna_sweeper", "hydra/launcher=slurm": "hydra_submitit_launcher"}


def shown_commands() -> Iterator[tuple[str, str]]:
    """Every run or sweep that a page shows, without its remark."""
    for page, text in PAGES.items():
        for match in re.finditer(r"^(?:\$ |> )?python -m lopa_bench ([^\n]*)$", text, re.MULTILINE):
            command = re.split(r"\s+#|\s{3,}\(", match[1])[0].strip()
            if "--" not in command and "leftmost" not in command:  # the page of decoders has a test of its own
                yield page, command


@pytest.mark.parametrize(("page", "command"), sorted(set(shown_commands())))
def test_every_command_of_the_pages_is_valid(page: str, command: str) -> None:
    needed = [plugin for word, plugin in PLUGINS.items() if word in command]
    if not all(map(has_plugin, needed)):
        pytest.skip(f"{', '.join(needed)} is not installed")
    words = [word for word in with_devices(shlex.split(command)) if word not in ("-m", "--multirun")]
    for example, real in PLACES.items():
        words = [word.replace(example, real) for word in words]
    prepare()
    overrides = OverridesParser.create().parse_overrides(words)
    with initialize_config_module("conf", version_base="1.3"):
        for job in [job for batch in BasicSweeper.split_arguments(overrides, None) for job in batch]:
            whole = compose("config", job, return_hydra_config=False)
            config = OmegaConf.to_object(whole)
            assert isinstance(config, Config)
            validate(config)


def test_the_number_of_traces_is_the_number_of_files() -> None:
    count = len(case_files())
    assert f"({count} step-by-step traces of the released programs are tests)" in README
    assert f"equal step by step to {count} traces of the released programs" in (ROOT / "CHANGELOG.md").read_text()
    assert f"\n{count} traces of the released programs (tests/golden) are replayed" in PAGES["docs/decoders.md"]


def test_the_table_of_traces_counts_the_files_of_each_decoder() -> None:
    section = PAGES["docs/decoders.md"].partition("## Against the released programs")[2].partition("\n## ")[0]
    stated = [int(number) for number in re.findall(r"\| (\d+) \|$", section, re.MULTILINE)]
    files = Counter(name.rsplit("_", 1)[0] for name in case_files())
    d2f_repository = files.pop("d2f_dream") + files.pop("d2f_llada")
    assert sorted(stated) == sorted([*files.values(), d2f_repository])


def test_embedded_sets_have_the_sizes_that_the_pages_state() -> None:
    words = len(make_task(TaskConfig(source="embedded"), embedded_default=True).problems)
    assert f"All {words} embedded word problems" in README
    stopped = re.search(r"stopped after (\d+) of (\d+) samples", PAGES["docs/sweeps.md"])
    missing = re.search(r"(\d+) of (\d+) samples are missing", PAGES["docs/sweeps.md"])
    assert stopped
    assert missing
    assert int(stopped[2]) == int(missing[2]) == words
    assert int(missing[1]) == words - int(stopped[1])


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("gsm8k", benchmark_files.GSM8K_TEST),
        ("math500", benchmark_files.MATH500),
        ("humaneval", benchmark_files.HUMANEVAL),
        ("humaneval_plus", benchmark_files.HUMANEVAL_PLUS_MINI),
        ("mbpp", benchmark_files.MBPP),
        ("mbpp_plus", benchmark_files.MBPP_PLUS_ORIGIN),
    ],
)
def test_benchmarks_have_the_sizes_that_the_pages_state(name: str, path: Path) -> None:
    row = re.search(rf"^\| [^|]*`{name}`[^|]*\| ([^|]*)\|", PAGES["docs/scoring.md"], re.MULTILINE)
    style = "question" if name == "mbpp_plus" else "auto"  # that shows no problem as an example
    task = make_task(TaskConfig(name=name, source=str(path), prompt_style=style), embedded_default=False)
    assert row
    assert f"{len(task.problems):,}" in re.findall(r"[\d,]*\d", row[1])


def numbers_table() -> list[tuple[str, float, float, float]]:
    """k, accuracy and its interval (%) of the table under "Numbers"."""
    rows = re.findall(r"^\| (\w+)[^|]*\| ([\d.]+) \[([\d.]+), ([\d.]+)\] \|", README, re.MULTILINE)
    return [(k, float(value), float(low), float(high)) for k, value, low, high in rows]


def test_the_intervals_of_the_readme_are_those_of_its_accuracies() -> None:
    rows = numbers_table()
    assert [k for k, *_ in rows] == ["0", "4", "8", "auto"]
    for k, value, low, high in rows:
        right = round(value * 5)  # of 500
        assert (low, high) == tuple(round(100 * bound, 1) for bound in wilson(right, 500)), k


@pytest.mark.slow
def test_the_readme_shows_the_table_that_the_command_prints(warm: Warm, tmp_path: Path) -> None:
    """The same lines but for the values: the command of `make bench` on three problems."""
    shown = README.partition("\ngsm8k: embedded word problems")[2].partition("```")[0]
    done = warm.run(
        "-m", "decoder=lopa", "decoder.k=0,8", "task=gsm8k", "task.limit=3", f"run.out={tmp_path}", cwd=tmp_path
    )
    printed = done.out.partition("\ngsm8k: embedded word problems")[2].partition("\njobs")[0]
    labels = [re.sub(r"[\d.,×+–-]+( %| s| pt)?", "", line).split() for line in shown.splitlines() if line.strip()]
    mine = [re.sub(r"[\d.,×+–-]+( %| s| pt)?", "", line).split() for line in printed.splitlines() if line.strip()]
    assert mine == labels


@pytest.mark.slow
def test_make_bench_prints_the_counts_of_the_readme(warm: Warm, tmp_path: Path) -> None:
    """Counts do not depend on the machine; times do."""
    shown = re.findall(r"^lopa +(\d) +(\d+) +([\d.]+) % +([\d.]+) +([\d.]+) .* (\d+) +(\d+)$", README, re.MULTILINE)
    done = warm.run(
        "-m", "decoder=lopa", "decoder.k=0,8", "task=gsm8k", "task.limit=150", f"run.out={tmp_path}", cwd=tmp_path
    )
    table = json.loads(done.out.splitlines()[-1])["table"]
    assert shown == [
        (
            str(row["k"]), str(row["n"]), f"{100 * row['accuracy']:.1f}", f"{row['tpf']:.2f}", f"{row['tpf_row']:.2f}",
            str(row["forwards"]), str(row["rows"]),
        )
        for row in table
    ]  # fmt: skip
