"""Rows of autoregressive models and of servers: no lookahead, often no calls, no steps. Tables and figures cope."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from analysis.comparisons import against_baselines
from analysis.figures.registry import FIGURES
from analysis.figures.throughput import figure1
from analysis.replay.trace import trace
from analysis.report import write_report
from analysis.stepwise import digest
from analysis.study import Study, measure
from analysis.tables.article import TABLES
from analysis.tables.render import to_markdown
from lopa_bench.errors import RunError
from lopa_bench.records.finding import find_run
from tests.analysis_runs import sweep, write_run
from tests.test_analysis_golden import NULL, markdown_lines, record
from tests.test_records import step

NO_TIMES = {"total_s": None}
SERVED = {"token_source": "usage", "concurrency": 2, **NULL}
AR = {"model": "mini_ar", "decoder": "ar", "base": None, "k": None, "config": {"decoder": {"name": "ar", "k": 0}}}
ONE_A_CALL = [step(i, branches=1, winner=0, winner_score=None, anchor_score=None, scores=[], lookahead_positions=[],
                   lookahead_tokens=[], positions=[5 + i], tokens=[i], probs=[0.9]) for i in range(3)]  # fmt: skip


def _autoregressive(root: Path, name: str, rows: list[Any], **row: Any) -> None:
    write_run(root, name, None, rows, **(AR | row))


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Study:
    """A sweep of the embedded model, and one baseline of each kind.

    local: one token a call, 192 calls for 192 positions. openai: the server's own counts, TPF null. sglang: nothing
    but texts. served: a diffusion model behind a server that named its algorithm.
    """
    root = tmp_path_factory.mktemp("baselines")
    sweep(root, n=4, ks=(0, 3, 7))
    local = [
        (row | dict.fromkeys(("rounds", "forwards", "rows"), row["window_tokens"]), ONE_A_CALL) for row, _ in record()
    ]
    _autoregressive(root, "local", local)
    _autoregressive(root, "openai", _without_steps(token_source="usage", **NULL), backend="openai", device="remote")
    _autoregressive(root, "sglang", _without_steps(token_source="mini_ar", **NULL, **NO_TIMES), backend="sglang")
    served = {"decoder": "served", "config": {"decoder": {"name": "served"}, "backend": {"algorithm": "LowConfidence"}}}
    _autoregressive(root, "served", _without_steps(token_source="usage", **NULL), backend="sglang", **served)
    return Study.of(root)


def _without_steps(**changes: Any) -> list[Any]:
    return [(row, []) for row, _ in record(**changes)]


def test_table_7_has_one_row_for_each_baseline_and_a_dash_for_what_nobody_counted(study: Study) -> None:
    """local by lopa_dist: 192 tokens in 192 calls, the mean of 128 / 1.9 and 64 / 0.9; servers: 192 tokens in 3 s."""
    lines = [line for line in markdown_lines(TABLES["table7"](study)) if line.startswith("mini_ar")]
    seconds, score = "1.50 [1.00, 2.00] | – | –", "50.0 [9.5, 90.5] | – | – | 2"
    assert lines == [
        f"mini_ar (toy) | autoregressive, local | GSM8K format, embedded "
        f"| 69.2 [67.4, 71.1] | – | – | 1.00 [1.00, 1.00] | – | – | {seconds} | {score}",
        f"mini_ar (toy) | autoregressive, openai | GSM8K format, embedded "
        f"| 64.0 [64.0, 64.0] | – | – | 1.00 [1.00, 1.00] | – | – | {seconds} | {score}",
        f"mini_ar (toy) | LowConfidence, the server's, sglang | GSM8K format, embedded "
        f"| 64.0 [64.0, 64.0] | – | – | 1.00 [1.00, 1.00] | – | – | {seconds} | {score}",
        f"mini_ar (toy) | autoregressive, sglang | GSM8K format, embedded "
        f"| – | – | – | – | – | – | – | – | – | {score}",
    ]  # fmt: skip


def test_a_server_is_counted_by_its_own_rule_and_the_table_says_so(study: Study) -> None:
    text = to_markdown(TABLES["table7"](study))
    assert "Runs against a server: counting preset ar_server" in text
    said = {line.split(";")[0].split("] ")[1]: line for line in text.splitlines() if line.startswith("- [")}
    assert said["openai"].endswith("counting ar_server")
    assert said["local"].endswith("counting lopa_dist")
    assert "†" not in said["local"]


def test_numbers_that_need_calls_are_null_where_a_server_told_none(study: Study) -> None:
    run = next(run for run in study.runs if run.id == "openai")
    for quantity, preset in (("tpf", "effective"), ("tpf", "lopa_dist"), ("tpf_row", None), ("step_s", None)):
        assert study.value(run, quantity, preset).value is None
    assert study.value(run, "tps", "effective").value == pytest.approx(110 / 3)


def test_requests_sent_together_have_the_wall_clock_of_the_run_and_a_latency_each(tmp_path: Path) -> None:
    """192 tokens, of which 110 are content, in 0.9 s and 1.1 s between the samples; latencies 2 s and 1 s."""
    rows = [(row | {"wall_s": wall}, []) for (row, _), wall in zip(_without_steps(**SERVED), (0.9, 1.1))]
    _autoregressive(tmp_path, "two", rows, backend="openai")
    numbers = measure(find_run("two", tmp_path))
    assert numbers.get("tps", "ar_server").value == pytest.approx(192 / 2)
    assert numbers.get("tps", "effective").value == pytest.approx(110 / 2)
    assert numbers.get("latency_s").value == pytest.approx(1.5)


def test_baselines_stand_in_figure_1_each_model_and_device_in_a_panel_of_its_own(study: Study) -> None:
    figure = figure1(study)
    assert figure is not None
    own = {ax.get_title(): [label.get_text() for label in ax.get_yticklabels()] for ax in figure.axes[2:]}
    assert {title.split(" ·")[0] for title in own} == {"mini (toy)", "mini_ar (toy)"}
    bars = [label for title, found in own.items() if title.startswith("mini_ar") for label in found]
    assert bars == ["autoregressive", "autoregressive, openai", "LowConfidence, the server's, sglang",
                    "autoregressive, sglang"]  # fmt: skip


def test_the_whole_report_is_written_and_nothing_else_changes(study: Study, tmp_path: Path) -> None:
    page = write_report(study, tmp_path).read_text(encoding="utf-8")
    assert "autoregressive" in page
    assert (tmp_path / "figures" / "figure1.png").exists()
    assert {one.b.model for one in against_baselines(study)} == {"mini"}
    alone = Study([run for run in study.runs if run.model == "mini_ar"])
    assert [name for name, plot in FIGURES.items() if plot.draw(alone) is not None] == ["figure1", "figure4"]


def test_one_token_a_call_is_a_flat_line_and_no_steps_are_none(study: Study) -> None:
    runs = {run.id: run for run in study.runs}
    assert digest(runs["local"]).filling.mean.tolist() == [1.0, 1.0, 1.0]
    assert digest(runs["openai"]).filling.mean.tolist() == []
    with pytest.raises(RunError, match="a server does not tell them"):
        trace(find_run("openai", runs["openai"].folders[0].parents[1]), "p0")
