"""AUP, comparisons, and what the steps of a run say: small records with values computed by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import spearmanr

from analysis.__main__ import main
from analysis.comparisons import against_baselines, compare
from analysis.figures.choice import k_panels
from analysis.figures.tradeoffs import pareto
from analysis.labels import varied
from analysis.stepwise import digest
from analysis.study import Study
from analysis.tables.aup import aup_d3llm, aup_mbd
from analysis.tables.lists import comparison_table
from analysis.text import setting
from lopa_bench.metrics.paired import compare as compare_samples
from lopa_bench.metrics.paired import with_adjusted_p
from lopa_bench.records.finding import find_run
from lopa_bench.records.schema import to_table
from tests.analysis_runs import simulate, sweep, write_run
from tests.test_records import sample, step

POINTS = [(6.0, 70.0), (2.0, 80.0), (4.0, 78.0)]


def test_aup_d3llm_drops_points_over_five_below_the_first_and_weights_the_rest() -> None:
    """2 x 80 + (80 + 78 w)/2 x 2 with w = exp(-3 (1 - 78/80)); 70 is more than 5 below 80."""
    result = aup_d3llm(POINTS, best=80.0)
    assert result.value == pytest.approx(160 + 80 + 78 * math.exp(-0.075))
    assert (result.version, result.best, result.points) == ("d3llm", 80.0, ((2.0, 80.0), (4.0, 78.0)))


def test_points_are_dropped_below_the_first_not_below_the_best() -> None:
    points = ((2.0, 80.0), (4.0, 90.0), (5.0, 76.0))
    assert aup_d3llm(points, best=90.0).points == points


def test_aup_mbd_is_the_plain_area() -> None:
    """(80 + 78)/2 x 2 + (78 + 70)/2 x 2."""
    result = aup_mbd(POINTS)
    assert (result.version, result.value, len(result.points)) == ("mbd", pytest.approx(306.0), 3)


def test_the_pareto_front_is_what_nothing_beats_in_both() -> None:
    assert pareto([(1, 90), (2, 92), (3, 80), (4, 85), (4, 70)]) == [(4, 85), (2, 92)]


def _run(root: Path, name: str, verdicts: str, tokens: int = 10, **row: Any) -> None:
    samples = [
        (sample(i, correct=mark == "+", content_tokens=tokens, forwards=5, total_s=1.0), [step(0)])
        for i, mark in enumerate(verdicts)
    ]
    write_run(root, name, {"name": "lopa", "k": 1}, samples, **row)


def test_two_runs_are_compared_pair_by_pair(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Six problems that only a solved and none that only b solved: p = 2 / 2^6; b has twice the tokens a call."""
    _run(tmp_path, "a", "++++++++--")
    _run(tmp_path, "b", "------++--", tokens=20)
    numbers = compare(*(find_run(name, tmp_path) for name in "ab")).numbers
    assert (numbers.only_a_correct, numbers.only_b_correct) == (6, 0)
    assert numbers.mcnemar_p == pytest.approx(2 / 2**6)
    assert (numbers.quantities["tpf"].ratio.value, numbers.quantities["tpf"].ratio.interval) == (2.0, (2.0, 2.0))

    assert main(["compare", "a", "b", "--outputs", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "score: a 80.0 %, b 20.0 %, difference -60.0 points over 10 judged pairs" in said
    assert "only a right: 6, only b right: 0, McNemar's exact p = 0.031" in said
    assert "TPF:   a 2.00, b 4.00, difference +2.00 [2.00, 2.00], ratio 2.000 [2.000, 2.000]" in said


def test_the_table_shows_run_minus_baseline_and_who_alone_was_right(tmp_path: Path) -> None:
    _run(tmp_path, "a", "++++++++--")
    _run(tmp_path, "b", "------++--", tokens=20)
    grid = comparison_table([compare(*(find_run(name, tmp_path) for name in "ab"))])
    row = dict(zip([head.text for head in grid.heads], grid.rows[0]))
    assert row["score difference (points)"] == "−60.0"
    assert row["only one right (a / b)"] == "6 / 0"
    assert row["TPF ratio"] == "2.00 [2.00, 2.00]"
    assert grid.values[0]["score_difference_points"] == pytest.approx(-60)


def test_runs_on_different_problems_are_not_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _run(tmp_path, "a", "++")
    _run(tmp_path, "b", "++", source_sha256="1" * 64)
    assert main(["compare", "a", "b", "--outputs", str(tmp_path)]) == 2
    assert "not the same problems" in capsys.readouterr().err
    assert main(["compare", "a", "c", "--outputs", str(tmp_path)]) == 2
    assert "found: none" in capsys.readouterr().err


def test_p_values_are_adjusted_for_the_number_of_comparisons() -> None:
    """Benjamini-Hochberg: 0.01 x 3/1, 0.02 x 3/2 and 0.9 x 3/3; a comparison without a test stays without."""
    one = compare_samples(*(to_table("samples", [sample(0)]) for _ in "ab"))
    found = with_adjusted_p([replace(one, mcnemar_p=p) for p in (0.01, None, 0.9, 0.02)])
    assert [one.adjusted_p for one in found] == [pytest.approx(0.03), None, pytest.approx(0.9), pytest.approx(0.03)]


def test_lookahead_is_compared_with_its_base_decoder(tmp_path: Path) -> None:
    sweep(tmp_path, n=4, ks=(0, 3))
    found = {(one.b.id, one.a.id) for one in against_baselines(Study.of(tmp_path))}
    assert ("gsm8k-lopa-k03", "gsm8k-d2f") in found
    assert ("gsm8k-d2f", "gsm8k-greedy") in found
    assert not [pair for pair in found if pair[0] == "gsm8k-greedy"]


def _steps(fills: list[int], winners: list[int]) -> list[dict[str, Any]]:
    return [
        step(i, positions=list(range(n)), tokens=[0] * n, probs=[1.0] * n, winner=w, branches=1 if i == 0 else 3)
        for i, (n, w) in enumerate(zip(fills, winners))
    ]


def test_tokens_gained_are_the_filled_positions_and_the_winners_extra_token(tmp_path: Path) -> None:
    """Step 0: 1, 3, 5 and 7 tokens; step 1: only two samples are left, 2 + 1 and 4 + 0 tokens."""
    rows = [([1, 2], [0, 1]), ([3, 4], [0, 0]), ([5], [0]), ([7], [0])]
    write_run(tmp_path, "r", {"name": "lopa", "k": 2}, [(sample(i), _steps(*row)) for i, row in enumerate(rows)])
    found = digest(find_run("r", tmp_path))
    assert found.filling.mean.tolist() == [4.0, 3.5]
    assert (found.filling.low.tolist(), found.filling.high.tolist()) == ([2.5, 3.25], [5.5, 3.75])
    assert found.filling.samples.tolist() == [4, 2]
    assert found.winners.tolist() == [1, 1]  # of the two calls that had a choice
    assert found.blind == pytest.approx(1 / 3)
    assert found.score_fill is None  # too few steps for a correlation


def test_score_against_fill_is_spearmans_correlation(tmp_path: Path) -> None:
    write_run(tmp_path, "r", {"name": "lopa", "k": 3}, simulate(10, 3, 0.9, seed=2))
    run = find_run("r", tmp_path)
    steps = run.steps(["winner_score", "positions"]).to_pylist()
    expected = spearmanr([s["winner_score"] for s in steps], [len(s["positions"]) for s in steps]).statistic
    found = digest(run).score_fill
    assert found is not None
    assert found.pooled.value == pytest.approx(expected)
    assert found.pooled.interval is not None
    assert found.pooled.interval[0] < expected < found.pooled.interval[1]
    assert found.steps == len(steps)
    assert np.all(np.diff(found.score) > 0)


def test_a_comparison_names_what_an_ablation_changed(tmp_path: Path) -> None:
    for name, changes in (("a", {}), ("b", {}), ("c", {"forced": "global", "tau_act": 0.5})):
        write_run(tmp_path, name, {"name": "lopa", "k": 3} | changes, simulate(2, 3, 0.9, seed=0))
    runs = Study.of(tmp_path).runs
    usual = "tau_act 0.95, forced per_block"
    assert [varied(run, runs) for run in runs] == [usual, usual, "tau_act 0.5, forced global"]


def test_what_a_run_has_not_set_is_no_part_of_its_name_and_is_told_as_that(tmp_path: Path) -> None:
    for name, floor in (("a", None), ("b", 0.2)):
        write_run(tmp_path, name, {"name": "lopa", "k": 3, "floor": floor}, simulate(2, 3, 0.9, seed=0))
    runs = Study.of(tmp_path).runs
    assert [varied(run, runs) for run in runs] == ["", "floor 0.2"]
    assert [setting(run.settings["floor"]) for run in runs] == ["not set", "0.2"]


def test_tasks_that_judge_the_same_texts_are_one_curve_unless_the_score_is_shown(tmp_path: Path) -> None:
    for task, n in (("mbpp_plus", 4), ("mbpp", 4), ("gsm8k", 5)):
        sweep(tmp_path, task=task, n=n, ks=(0, 3))
    study = Study.of(tmp_path)
    assert [runs[0].task for runs in k_panels(study)] == ["gsm8k", "mbpp"]
    assert [runs[0].task for runs in k_panels(study, shows_score=True)] == ["gsm8k", "mbpp", "mbpp_plus"]
