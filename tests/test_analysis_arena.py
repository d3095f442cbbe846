"""The arena chooses on the tuning split and reports on the held-out one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from analysis.__main__ import main
from analysis.arena.brief import brief_table
from analysis.arena.choice import arenas, choose, picks, reference
from analysis.arena.tables import arena_aup_table, arena_table
from analysis.figures.registry import FIGURES
from analysis.report import write_report
from analysis.study import Study
from lopa_bench.metrics.statistics import holm
from tests.analysis_runs import config_of, write_run
from tests.test_records import sample

TUNING, HELD_OUT = "1-20", "21-60"
SIZE = {TUNING: 20, HELD_OUT: 40}
GREEDY = {"name": "greedy"}
LOPA = {"name": "lopa", "k": 4}
Scores = Mapping[float | None, tuple[int, int, int]]  # tau_conf -> right on tuning, right on held-out, forwards


def entrant(root: Path, settings: dict[str, Any], scores: Scores, splits: tuple[str, ...] = (TUNING, HELD_OUT)) -> None:
    """Runs of a decoder over its thresholds; every sample has 60 tokens."""
    for tau, (tuning, held_out, forwards) in scores.items():
        own = settings | ({"tau_conf": tau} if tau is not None else {})
        for rows, right in ((TUNING, tuning), (HELD_OUT, held_out)):
            first = 0 if rows == TUNING else SIZE[TUNING]
            samples = [
                (sample(first + i, content_tokens=60, forwards=forwards, rows=forwards, tokens_processed=60 * forwards,
                        total_s=forwards / 100, correct=i < right), [])
                for i in range(SIZE[rows])
            ]  # fmt: skip
            if rows in splits:
                name = "-".join(map(str, [*own.values(), rows]))
                config = config_of(own) | {"task": {"name": "gsm8k", "rows": rows}}
                write_run(root, name, own, samples, config=config)


def whole_arena(root: Path) -> Path:
    entrant(root, GREEDY, {None: (18, 36, 60)})
    entrant(root, {"name": "d2f"}, {0.9: (18, 36, 20), 0.7: (17, 20, 15), 0.5: (10, 40, 10)})
    entrant(root, LOPA, {0.9: (18, 33, 12), 0.7: (16, 33, 10)})
    return root


def test_a_setting_that_is_best_only_on_the_held_out_problems_is_not_chosen(tmp_path: Path) -> None:
    """tau_conf 0.5 is the fastest and all right on the held-out problems, and loses 40 points on the tuning split."""
    study = Study.of(whole_arena(tmp_path))
    (arena,) = arenas(study)
    assert reference(study, arena) == (0.9, "greedy, one token a call")
    d2f = next(one for one in arena.contenders if one.name == "D2F")
    chosen = {budget: choose(study, arena, d2f, budget).settings["tau_conf"] for budget in (1, 2, 5, 40)}
    assert chosen == {1: 0.9, 2: 0.9, 5: 0.7, 40: 0.5}


def test_no_verdict_of_the_held_out_split_moves_a_choice(tmp_path: Path) -> None:
    found = []
    for index, right in enumerate((0, 40)):
        root = tmp_path / str(index)
        entrant(root, GREEDY, {None: (18, right, 60)})
        entrant(root, {"name": "d2f"}, {0.9: (18, right, 20), 0.7: (18, 40 - right, 15)})
        study = Study.of(root)
        found.append([pick.chosen and pick.chosen.settings["tau_conf"] for pick in picks(study, arenas(study)[0])])
    assert found[0] == found[1]


def test_lines_are_of_the_held_out_split_and_paired_there(tmp_path: Path) -> None:
    lines = arena_table(Study.of(whole_arena(tmp_path))).values
    lopa = next(line for line in lines if line["decoder"].startswith("LoPA") and line["may_lose_points"] == 5)
    assert (lopa["setting"], lopa["tuning_n"], lopa["held_out_n"]) == ("tau_conf 0.9", 20, 40)
    assert (lopa["held_out_accuracy"], lopa["held_out_tpf"]) == (33 / 40, 5.0)
    assert (lopa["base_decoder"], lopa["base_pairs"]) == ("D2F", 40)  # at the setting chosen for 5 points
    assert (lopa["base_only_a_correct"], lopa["base_only_b_correct"], lopa["base_tpf_ratio"]) == (0, 13, 15 / 12)
    assert lopa["base_tokens_per_processed_ratio"] == pytest.approx(15 / 12)
    assert lopa["lopa_decoder"] is None  # it is LoPA itself
    greedy = next(line for line in lines if line["decoder"] == "greedy")
    assert (greedy["base_decoder"], greedy["lopa_decoder"]) == ("D2F", "LoPA on D2F, k = 4")


def test_the_short_table_has_the_numbers_of_the_whole_one_the_fastest_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study = Study.of(whole_arena(tmp_path))
    brief = brief_table(study, budget=5.0).values
    assert [line["decoder"] for line in brief] == ["LoPA on D2F, k = 4", "D2F", "greedy"]
    lines = {line["decoder"]: line for line in arena_table(study).values if line["may_lose_points"] == 5}
    for line in brief:
        whole = lines[line["decoder"]]
        assert (line["n"], line["accuracy"], line["tpf"], line["holm_p"]) == (
            whole["held_out_n"], whole["held_out_accuracy"], whole["held_out_tpf"], whole["base_holm_p"]
        )  # fmt: skip
    assert main(["arena", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert "| LoPA on D2F, k = 4 |" in printed
    assert "arena.pdf" in printed


def test_a_pair_that_stands_in_several_lines_is_one_test(tmp_path: Path) -> None:
    """Distinct pairs: greedy with two settings of D2F and with LoPA, LoPA with two settings of D2F."""
    study = Study.of(whole_arena(tmp_path))
    against = [
        (frozenset((paired.baseline.name, pick.contender.name)), paired.numbers.mcnemar_p, paired.adjusted_p)
        for pick in picks(study, arenas(study)[0]) for paired in pick.against.values()
    ]  # fmt: skip
    smallest = min(p for _, p, _ in against)
    assert len(against) == 12
    assert next(adjusted for _, p, adjusted in against if p == smallest) == pytest.approx(5 * smallest)


def test_settings_that_were_run_twice_are_one_setting_the_newest_counts(tmp_path: Path) -> None:
    """An older version that lacked a setting decodes as one in which it is not set."""
    whole_arena(tmp_path)
    old = config_of(GREEDY)["decoder"]
    del old["floor"]
    samples = [(sample(i, content_tokens=60, forwards=60, correct=False), []) for i in range(SIZE[TUNING])]
    config = {"decoder": old, "task": {"rows": TUNING}}
    write_run(tmp_path, "older", GREEDY, samples, config=config, created="2001-01-01T00:00:00+00:00")
    (arena,) = arenas(Study.of(tmp_path))
    assert reference(Study.of(tmp_path), arena)[0] == 0.9
    assert [len(one.tuning) for one in arena.contenders if one.name == "greedy"] == [1]


def test_holm_is_that_of_his_example() -> None:
    """Sorted 0.005, 0.01, 0.03, 0.04: times 4, 3, 2, 1, never below the one before."""
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([]) == []


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    entrant(tmp_path, GREEDY, {None: (18, 36, 60)})
    entrant(tmp_path, {"name": "d2f"}, {0.9: (18, 36, 20)}, splits=(TUNING,))
    entrant(tmp_path, {"name": "fast_dllm"}, {0.9: (18, 36, 30)}, splits=(HELD_OUT,))
    entrant(tmp_path, {"name": "llada"}, {None: (2, 36, 30)})
    entrant(tmp_path, {"name": "sdar"}, {0.9: (18, 36, 30)})
    entrant(tmp_path, {"name": "sdar"}, {0.7: (18, 36, 20)}, splits=(HELD_OUT,))
    table = arena_table(Study.of(tmp_path))
    missing = {line["decoder"]: line["missing"] for line in table.values}
    assert missing == {
        "greedy": None,
        "D2F": "this setting has no run on the held-out split",
        "Fast-dLLM": "no run on the tuning split: nothing is chosen",
        "LLaDA": "no setting of its grid loses so little",
        "SDAR": "1 more of its settings without a run on the tuning split",
    }
    assert any("no run of LoPA as in the article" in note for note in table.notes)


@pytest.mark.parametrize(
    ("split", "said"),
    [(TUNING, "no held-out split"), (HELD_OUT, "no tuning split (task.rows=1-...): nothing is chosen")],
)
def test_half_an_arena_says_which_half_is_missing(split: str, said: str, tmp_path: Path) -> None:
    entrant(tmp_path, GREEDY, {None: (18, 36, 60)}, splits=(split,))
    table = arena_table(Study.of(tmp_path))
    assert {line["missing"] for line in table.values} == {said}


def test_areas_are_over_the_whole_grid_on_the_held_out_split(tmp_path: Path) -> None:
    lines = [line for line in arena_aup_table(Study.of(whole_arena(tmp_path))).values if line["decoder"] == "D2F"]
    mbd = next(line for line in lines if line["version"] == "mbd")
    assert (mbd["n"], mbd["settings"]) == (40, 3)
    assert mbd["aup"] == pytest.approx((90 + 50) / 2 * 1 + (50 + 100) / 2 * 2)  # TPF 3, 4, 6


def test_it_leads_the_report_and_is_no_part_of_one_without_splits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("analysis.report.TABLES", {})
    monkeypatch.setattr("analysis.report.FIGURES", {"arena": FIGURES["arena"]})
    page = write_report(Study.of(whole_arena(tmp_path)), tmp_path / "report").read_text(encoding="utf-8")
    places = [page.index(f'<section id="{name}">') for name in ("arena-lead", "arena", "tables")]
    assert places == sorted(places)
    assert FIGURES["arena"].draw(Study([])) is None
