"""What a person and what a program sees of a run."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from lopa_bench.console import progress
from lopa_bench.console.progress import Progress
from lopa_bench.console.report import json_values, report
from lopa_bench.console.side_by_side import side_by_side
from lopa_bench.metrics.aggregate import aggregate
from lopa_bench.metrics.varied import Measured
from lopa_bench.records.runs import as_run
from lopa_bench.records.schema import to_json, to_table
from lopa_bench.sweep.jobs import JobReport
from lopa_bench.sweep.report import report_sweep
from tests.test_records import measured, run_row, sample

REQUIRED = (
    "run_id", "task", "source", "model", "decoder", "k", "n", "errors", "accuracy", "accuracy_ci95", "tpf",
    "tpf_ci95", "tpf_row", "tps", "latency_s", "forwards", "rows", "path",
)  # fmt: skip


@pytest.fixture(autouse=True)
def no_terminal_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)


def finished(forwards: int = 8, **changes: Any) -> Measured:
    rows = [sample(i, forwards=forwards, rows=3 * forwards, content_tokens=1000 + i) for i in range(1319)]
    return measured(aggregate(to_table("samples", rows)), status="finished", **changes)


def shown(renderable: Any, width: int = 80) -> str:
    stream = io.StringIO()
    Console(file=stream, width=width).print(renderable)
    return stream.getvalue()


def rows_of(text: str) -> dict[str, list[str]]:
    """The lines of the table by their first word."""
    return {line.split()[0]: line.split()[1:] for line in text.splitlines() if line.strip()}


def test_the_last_line_of_stdout_is_one_json_object_and_the_table_stands_above_it() -> None:
    stream = io.StringIO()
    report(replace(finished(), run=as_run(run_row(), Path("outputs/runs/r"))), stream)
    *table, last = stream.getvalue().splitlines()
    values = json.loads(last)
    assert [name for name in REQUIRED if name not in values] == []
    assert (values["source"], values["k"], values["n"]) == ("embedded word problems", 8, 1319)
    assert values["path"] == "outputs/runs/r"
    assert any("accuracy" in line for line in table)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stream", "wanted", "is_json"),
    [
        (Terminal(), "auto", False), (io.StringIO(), "auto", True), (Terminal(), "always", True),
        (io.StringIO(), "never", False),
    ],
)  # fmt: skip
def test_a_person_at_a_terminal_reads_what_to_do_next_instead_of_json(
    stream: io.StringIO, wanted: str, is_json: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "dumb")
    report(replace(finished(), run=as_run(run_row(), Path("outputs/runs/r"))), stream, wanted, "my runs")
    last = stream.getvalue().splitlines()[-1]
    assert (
        last.startswith("{")
        if is_json
        else last == ("kept in outputs/runs/r; next: python -m analysis report 'my runs'")
    )


def test_the_json_line_is_one_line_without_nan_whatever_the_run_held() -> None:
    numbers = aggregate(to_table("samples", [])) | {"tps": float("nan")}
    line = to_json(json_values(measured(numbers, Path("x"), source_name="two\nlines \udce9", k="auto")))
    assert "\n" not in line
    values = json.loads(line, parse_constant=pytest.fail)
    assert (values["tps"], values["accuracy"], values["n"], values["k"]) == (None, None, 0, "auto")


@pytest.mark.parametrize("width", [80, 100])
def test_a_table_of_three_runs_fits_the_width_and_loses_no_number(width: int) -> None:
    first = finished(decoder="fast_dllm", base=None, k=None)
    text = shown(side_by_side([first, finished(forwards=4), finished(forwards=2, k="auto")]), width)
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text
    rows = rows_of(text)
    assert rows["fast_dllm"] == ["-", "1319", "100.0", "%", "207", "69.1", "830", "2.00", "s", "10.6k", "31.7k"]
    assert rows["lopa"][:2] == ["auto", "1319"]
    assert rows["to"] == ["first", "+0.0", "pt", "×4.00", "×4.00", "×1.00", "×1.00", "×0.25", "×0.25"]


def test_the_heading_says_what_was_measured_on_what_and_how_it_was_counted() -> None:
    text = shown(side_by_side([finished()]))
    assert "gsm8k: embedded word problems" in text
    assert "model mini (toy model), local on cpu float32" in text
    assert "counting effective (content / forwards, content / total time)" in text
    assert "toy" not in shown(side_by_side([finished(model_is_toy=False)]))


def test_what_a_reader_must_know_stands_below_the_table() -> None:
    rows = [
        sample(0, approximate=True, batch=2, total_s=None),
        sample(1, finish_reason="prompt_too_long", correct=None),
        sample(2, correct=None, score_status="timeout", batch=2, total_s=None),
    ]
    numbers = aggregate(to_table("samples", rows), "lopa_dream", wall_s=2.0)
    text = " ".join(shown(side_by_side([measured(numbers, status="interrupted")])).split())
    assert "the run is interrupted" in text
    assert "1 of 3 samples failed (prompt_too_long 1)" in text
    assert "1 of 3 completions could not be judged" in text
    assert "prefix reuse is approximate" in text
    assert "TPS by the wall clock" in text
    assert "decode_tail=true" in text


def test_pass_at_k_is_shown_where_problems_have_several_samples() -> None:
    rows = [sample(number, sample_index=i, correct=i < 2) for number in range(3) for i in range(4)]
    repeated = measured(aggregate(to_table("samples", rows)), Path("x"), status="finished")
    assert "pass@1 50.0 %, pass@2 83.3 %, pass@4 100.0 %" in shown(side_by_side([repeated]))
    assert json.loads(to_json(json_values(repeated)))["pass_at"] == pytest.approx({"1": 0.5, "2": 5 / 6, "4": 1.0})
    assert "pass@" not in shown(side_by_side([finished()]))


def test_runs_on_different_problems_are_not_passed_off_as_a_comparison() -> None:
    text = shown(side_by_side([finished(), finished(task="math", source_sha256="1" * 64)]))
    assert "their ratios compare nothing" in text


def test_without_a_terminal_progress_is_a_plain_line_every_tenth() -> None:
    stream = io.StringIO()
    with Progress(40, "gsm8k lopa k=8", stream=stream) as bar:
        for index in range(40):
            bar.add(sample(index, correct=index % 4 > 0))
    lines = stream.getvalue().splitlines()
    assert len(lines) == 10
    assert lines[0].startswith("gsm8k lopa k=8: 4/40 (10 %), accuracy 75.0 %, TPF 1.38, TPS 5.50, 0:0")
    assert lines[-1].startswith("gsm8k lopa k=8: 40/40 (100 %)")
    assert "\x1b" not in stream.getvalue()


def test_a_slow_run_still_says_something_every_30_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(0, 10_000, 11))
    monkeypatch.setattr(progress.time, "monotonic", lambda: float(next(clock)))
    stream = io.StringIO()
    with Progress(1000, stream=stream) as bar:
        for index in range(9):
            bar.add(sample(index))
    assert 2 <= len(stream.getvalue().splitlines()) <= 4


def test_on_a_terminal_there_is_a_bar_with_live_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("TERM", "xterm")
    stream = io.StringIO()
    with Progress(2, "gsm8k", stream=stream) as bar:
        bar.add(sample(0))
        bar.add(sample(1, finish_reason="error", correct=None))
    assert "accuracy 100.0 %, TPF 1.38, TPS 5.50, errors 1" in stream.getvalue()
    assert "━" in stream.getvalue()


def test_a_resumed_run_starts_where_it_stopped() -> None:
    stream = io.StringIO()
    with Progress(10, seen=[sample(i) for i in range(9)], stream=stream) as bar:
        bar.add(sample(9))
    assert stream.getvalue().startswith("10/10 (100 %)")


def test_batched_samples_are_timed_by_the_wall_clock() -> None:
    stream = io.StringIO()
    with Progress(1, stream=stream) as bar:
        bar.add(sample(0, batch=4, total_s=None))
    assert "TPS (wall)" in stream.getvalue()


def test_the_time_left_is_that_of_the_samples_of_this_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Six of ten are there; the next two took ten seconds each, so the last two will too."""
    clock = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: clock[0])
    stream = io.StringIO()
    with Progress(10, seen=[sample(i) for i in range(6)], stream=stream) as bar:
        for index in (6, 7):
            clock[0] += 10.0
            bar.add(sample(index))
    assert (
        stream.getvalue()
        .splitlines()[-1]
        .endswith("8/10 (80 %), accuracy 100.0 %, TPF 1.38, TPS 5.50, 0:20 elapsed, 0:20 left")
    )


def test_jobs_that_did_not_finish_are_counted_whatever_their_status(tmp_path: Path) -> None:
    stream = io.StringIO()
    statuses = ("finished", "failed", "killed", "vanished", "not_started")
    jobs = [JobReport(n, status, [], "f", run_id=f"r{n}") for n, status in enumerate(statuses)]
    report_sweep(tmp_path, jobs, [], stream=stream)
    values = json.loads(stream.getvalue().splitlines()[-1])
    assert (values["jobs"], values["failed"], values["runs"], values["path"]) == (5, 4, ["r0"], str(tmp_path))
    assert "4 of 5 jobs did not finish" in stream.getvalue()
