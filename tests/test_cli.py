"""The command line: `ls` and `show`, and what --help promises."""

from __future__ import annotations

import io
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from lopa_bench.console.listing import _fitting, command, slowest, worst
from lopa_bench.console.overview import asked_group, choices_overview, group_overview
from lopa_bench.errors import ConfigError, RunError
from lopa_bench.records.finding import find_run
from lopa_bench.records.locks import Lock
from lopa_bench.records.schema import to_table
from lopa_bench.records.writing import RunStore
from tests.test_records import run_row, sample, step
from tests.warm import ROOT, Warm

DECODER = {"decoder": {"name": "lopa", "k": 8}, "run": {"preset": "effective"}}


def write(out: Path, name: str, rows: list[dict[str, Any]], **changes: Any) -> Path:
    folder = out / "runs" / name
    with RunStore(folder) as store:
        for row in rows:
            store.add(row, [step(number) for number in range(row["forwards"] or 0)])
        store.write_run(run_row(run_id=name, config=DECODER, **changes))
    return folder


def lines(capsys: pytest.CaptureFixture[str]) -> list[list[str]]:
    return [line.split() for line in capsys.readouterr().out.splitlines()]


def test_ls_shows_one_line_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, "a", [sample(0)], status="finished", n=1, accuracy=0.6, tpf=7.25, tps=830.0)
    write(tmp_path, "b", [sample(i) for i in range(3)], status="running", decoder="d2f", base=None, k=None)
    assert command(["ls", str(tmp_path)]) == 0
    assert lines(capsys) == [
        ["status", "task", "model", "decoder", "k", "n", "accuracy", "TPF", "TPS", "run"],
        ["finished", "gsm8k", "mini", "lopa", "on", "d2f", "8", "1", "60.0", "%", "7.25", "830", "a"],
        ["killed", "gsm8k", "mini", "d2f", "-", "(3)", "-", "-", "-", "b"],  # says running, and nobody holds it
    ]


def test_ls_fits_a_terminal_of_80_columns_and_its_short_names_are_enough_for_show(tmp_path: Path) -> None:
    tail = ("a1b2c3d4e5", "a1b2c3d4f6", "same")
    for number, end in enumerate((*tail, "same")):
        name = f"2026113{number}-222334-gsm8k-mini-lopa-k8-{end}"
        write(tmp_path, name, [], argv=[f"decoder.tau_conf=0.{number + 1}"], status="finished")
    screen = io.StringIO()
    console = Console(file=screen, width=80, force_terminal=True, no_color=True)
    console.print(_fitting(tmp_path, console))
    shown = [re.sub(r"\x1b\[[0-9;]*m", "", line).rstrip() for line in screen.getvalue().splitlines()]
    assert max(map(len, shown)) <= 80
    assert shown[0] == "all: finished, gsm8k, mini"
    assert shown[2].split()[-1] == tail[0]
    assert find_run(tail[0], tmp_path).folder.name.endswith(tail[0])
    assert "20261132-222334" in screen.getvalue()  # the end alone would name two runs


def test_ls_names_what_was_varied(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    common = ["task.limit=2", "decoder.k=8"]
    write(tmp_path, "a", [], argv=[*common, "decoder.tau_conf=0.9"], task="mbpp")
    write(tmp_path, "b", [], argv=[*common, "decoder.tau_conf=0.8", "run.out=x", "task.shots=2"])
    assert command(["ls", str(tmp_path)]) == 0
    (_, first, second) = lines(capsys)
    assert first[1:8] == ["mbpp", "mini", "lopa", "on", "d2f", "decoder.tau_conf=0.9", "8"]
    assert second[1:9] == ["gsm8k", "mini", "lopa", "on", "d2f", "decoder.tau_conf=0.8", "task.shots=2", "8"]


HOSTILE = {
    "mini[/v2]": "mini[/v2]",
    ":smile:[red]": ":smile:[red]",
    "a\x1b[2J\nb": "a\\x1b[2J\\nb",
    "x" * 700: "x" * 700,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_ls_and_show_show_a_users_text_as_text(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = {"model": name, "task": name, "source_name": name, "argv": [f"model.name={name}", "task.limit=1"]}
    answer = {"correct": False, "answer_text": name, "extracted": name, "error": None, "score_status": "ok"}
    write(tmp_path, "a[b]", [sample(0, problem_id=name, **answer)], status="finished", n=1, **names)
    assert command(["ls", str(tmp_path)]) == 0
    (_, line) = lines(capsys)
    assert line[1:3] == [HOSTILE[name]] * 2
    assert line[-1] == "a[b]"
    assert command(["show", "a[b", "--out", str(tmp_path)]) == 0
    text = capsys.readouterr().out
    assert "\x1b" not in text
    assert HOSTILE[name].replace("\\n", "\n")[:60] in text or HOSTILE[name][:60] in text
    assert command(["show", name[:40], "--out", str(tmp_path)]) == 2
    assert "\x1b" not in capsys.readouterr().err


def test_ls_knows_a_run_that_is_under_way(tmp_path: Path) -> None:
    folder = write(tmp_path, "a", [], status="running")
    lock = Lock(folder)
    done = subprocess.run(
        [sys.executable, "-m", "lopa_bench", "ls", str(tmp_path)], cwd=ROOT, capture_output=True, text=True
    )
    lock.release()
    assert "running" in done.stdout


def test_show_has_the_numbers_and_the_samples_to_look_at(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [sample(0), sample(1, correct=False, completion="no", answer_text="no", total_s=9.0, forwards=40)]
    write(tmp_path, "20260131-a-3f9a", [*rows, sample(2, finish_reason="error", error="HTTP 500", correct=None)])
    assert command(["show", "3f9a", "--out", str(tmp_path), "-n", "2"]) == 0
    text = capsys.readouterr().out
    assert "command: python -m lopa_bench decoder=lopa decoder.k=8" in text
    assert "decoder: name=lopa, k=8" in text
    worst_part, slowest_part = text.split("worst samples")[1].split("slowest samples")
    assert worst_part.index("p2 #0: not judged") < worst_part.index("HTTP 500") < worst_part.index("p1 #0: wrong")
    assert "p1 #0: wrong (ok), eos, 11 tokens in 40 calls, 9.00 s" in slowest_part


def test_of_a_program_show_says_why_it_failed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = {"gold": "def f():\n    return 1\n", "extracted": "def f():\n    return x", "correct": False}
    details = {"score_status": "error", "score_details": {"reason": "NameError: x"}}
    write(tmp_path, "20260131-a-3f9a", [sample(1, **program, **details, answer_text="```py\n```")])
    assert command(["show", "3f9a", "--out", str(tmp_path)]) == 0
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    at = lines.index("  NameError: x")
    assert lines[at + 1 : at + 3] == ["  def f():", "      return x"]


def test_a_name_that_no_run_or_several_have_lists_what_there_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("x-1", "x-2"):
        write(tmp_path, name, [])
    assert find_run("x-1", tmp_path).folder == tmp_path / "runs" / "x-1"
    with pytest.raises(RunError, match=r"found:\n  x-1\n  x-2"):
        find_run("x", tmp_path)
    assert command(["show", "y", "--out", str(tmp_path)]) == 2
    assert command(["ls", str(tmp_path / "nothing")]) == 2
    assert "no runs in" in capsys.readouterr().err


def test_worst_are_failures_then_the_unjudged_then_wrong_ones_by_their_calls() -> None:
    rows = [
        sample(0), sample(1, correct=False, forwards=3), sample(2, correct=False, forwards=30),
        sample(3, correct=None, score_status="timeout"), sample(4, correct=None, finish_reason="error", error="x"),
    ]  # fmt: skip
    table = to_table("samples", rows)
    assert [row["problem_id"] for row in worst(table, 9)] == ["p4", "p3", "p2", "p1"]
    assert [row["problem_id"] for row in slowest(table, 1)] == ["p2"]  # of equally slow ones the one with more calls


def test_without_a_word_the_program_shows_its_help_and_version_is_its_own(warm: Warm) -> None:
    assert warm.run().out == warm.run("--help").out
    assert re.match(r"lopa_bench \S+ \(.+\); python 3\.\d+", warm.run("--version").out)


@pytest.mark.parametrize("more", [(), ("-m",)])
def test_who_wants_no_json_is_told_where_the_run_is_instead(
    warm: Warm, settings: list[str], tmp_path: Path, more: tuple[str, ...]
) -> None:
    done = warm.run(*more, *settings, "task.limit=1", "run.json=never", f"run.out={tmp_path}")
    assert done.code == 0, done.err
    assert done.out.splitlines()[-1].startswith(f"kept in {tmp_path}/runs/")
    assert done.out.splitlines()[-1].endswith(f"next: python -m analysis report {tmp_path}")


def test_help_names_the_commands_and_the_exit_statuses(warm: Warm) -> None:
    done = warm.run("--help")
    assert done.code == 0
    for text in ("lopa-bench ls", "lopa-bench show", "130 interrupted", "resume", "run.shard=0/8"):
        assert text in done.out


def test_help_fits_a_screen_or_two_and_names_families_instead_of_a_hundred_files(warm: Warm) -> None:
    out = warm.run("--help").out
    assert len(out.splitlines()) <= 66
    assert "table4/* (72)" in out
    assert out.count("protocol/") == 1  # a family is what one folder holds, however deep
    assert "d2f_dream_base_s10" not in out
    for name in ("qwen3_8b", "transformers_serve", "tau_conf", "slo_ttft_s", "hydra/launcher=", "--help GROUP"):
        assert name in out


def test_help_folds_names_of_a_large_group_into_families(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    for number in range(9):
        (tmp_path / "model" / f"mine_{number}.yaml").write_text("name: mine\n")
    text = choices_overview(["--config-dir", str(tmp_path)])
    assert "mine* (9)" in text
    assert "mine_3" not in text
    assert "qwen3_8b" in text  # alone with its first word
    assert "mine*" not in choices_overview([])


def test_help_of_a_group_says_what_each_choice_is_and_what_each_setting_takes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert asked_group(["--help", "decoder"]) == asked_group(["decoder", "-h"]) == "decoder"
    assert asked_group(["--help"]) is asked_group(["--help", "decoder=d2f"]) is asked_group(["decoder"]) is None
    assert asked_group(["--config-dir", "mine", "--help", "task"]) == asked_group(["--help=task"]) == "task"
    text = group_overview("decoder", [])
    assert re.search(r"\nd2f +D2F \(arXiv 2508.09192\): a pipeline of blocks with an exact block cache\.\n", text)
    assert re.search(r"\ndecoder\.k +an integer from 0 to 1024, or auto\n", text)
    assert "+experiment=paper/CHOICE" in group_overview("experiment/paper", [])
    (tmp_path / "task").mkdir()
    (tmp_path / "task" / "sums.yaml").write_text("# Sums of two numbers.\nname: sums\n")
    assert re.search("\nsums +Sums of two numbers.\n", group_overview("task", ["--config-dir", str(tmp_path)]))
    with pytest.raises(ConfigError, match=r"--help taks: there is no such group; allowed: .*; did you mean task\?"):
        group_overview("taks", [])
    assert group_overview("decoder.k", []) == "decoder.k  an integer from 0 to 1024, or auto"


def test_a_wrong_setting_is_one_message_before_anything_is_loaded(warm: Warm, settings: list[str]) -> None:
    for wrong in ("run.shard=8/8", "task.samples=0", "objective.maximise=speed", "run.batchh=2", "resume=perhaps"):
        done = warm.run(*settings, wrong)
        assert (done.code, done.out) == (2, "")
        (message,) = done.err.splitlines()
        assert message.startswith("error: ")
        assert "allowed" in message


@pytest.mark.parametrize("word", ["fail_fast=true", "against=k:0", "objective.maximise=tpf"])
def test_what_only_a_sweep_reads_is_refused_where_a_single_run_is_started(
    word: str, warm: Warm, settings: list[str]
) -> None:
    done = warm.run(*settings, word)
    message = f"error: {word} has no meaning for a single run: it is read by a sweep (-m)"
    assert (done.code, done.out, done.err.strip()) == (2, "", message)
