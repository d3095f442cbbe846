"""What the report opens with: one sentence and the runs, whatever the runs are called and whatever they lack."""

from __future__ import annotations

import csv
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from analysis.__main__ import main
from analysis.page import about
from analysis.page.lead import leading
from analysis.page.leaderboard import Leaderboard, leaderboard_table
from analysis.page.samples import write_samples
from analysis.page.sentence import sentence
from analysis.page.svg import PAPERS, READABLE, Palette, contrast, on_paper
from analysis.study import Study
from lopa_bench.metrics.statistics import mcnemar
from lopa_bench.system.environment import product_version
from tests.analysis_runs import simulate, write_run
from tests.test_records import sample

Right = list[bool | None]
N = 20


def decoded(right: Right, calls: int, seconds: float, **columns: Any) -> list[tuple[dict[str, Any], list[Any]]]:
    """Samples of a verdict each; all need as many calls and seconds, which differ a little so that draws do."""
    return [
        (
            sample(i, correct=verdict, forwards=calls + i % 2, rounds=calls + i % 2, rows=calls + i % 2,
                   content_tokens=40, total_s=seconds * (1 + i % 2 / 100)) | columns,
            [],
        )
        for i, verdict in enumerate(right)
    ]  # fmt: skip


def three_runs(root: Path, lost: int = 12) -> Study:
    """k = 4 beside its base and greedy: a fifth of the calls, twice the time, and `lost` problems fewer."""
    write_run(root, "greedy", {"name": "greedy"}, decoded([True] * N, 40, 4.0))
    write_run(root, "base", {"name": "d2f"}, decoded([True] * N, 20, 1.0))
    write_run(root, "ours", {"name": "lopa", "k": 4}, decoded([i >= lost for i in range(N)], 4, 2.0))
    return Study.of(root)


def said(study: Study) -> str:
    return sentence(Leaderboard(study)).replace("\u00a0", " ")


def test_the_sentence_tells_calls_time_and_score_with_its_test(tmp_path: Path) -> None:
    text = said(three_runs(tmp_path))
    assert text.startswith("LoPA on D2F, k = 4 needs 4.56× fewer calls than its base (D2F) and takes 2.00× longer on")
    assert "it solves 60.0 points fewer, McNemar p < 0.001 adjusted for 2 comparisons, n = 20" in text
    assert mcnemar(12, 0) < 0.001


def test_what_may_be_chance_is_called_so_and_equality_is_not_claimed(tmp_path: Path) -> None:
    text = said(three_runs(tmp_path, lost=2))
    assert "it solves 10.0 points fewer, which may be chance: McNemar p = 1.000 adjusted" in text  # of 0.5 and 1.0
    assert "95 % interval −25.0 to +0.0 points" in text


def test_equal_verdicts_and_equal_costs_make_no_winner(tmp_path: Path) -> None:
    for name, settings in (("base", {"name": "d2f"}), ("ours", {"name": "lopa", "k": 4})):
        write_run(tmp_path, name, settings, decoded([True] * N, 20, 1.0))
    assert "about as many calls as its base (D2F) and takes about as long on this machine (×1.00" in said(
        Study.of(tmp_path)
    )
    assert "both solve the same problems, McNemar p = 1.000, n = 20" in said(Study.of(tmp_path))


def test_without_verdicts_or_times_it_says_that_they_are_missing(tmp_path: Path) -> None:
    unknown: dict[str, Any] = {"total_s": None, "decode_s": None, "prefill_s": None, "forwards": None, "rows": None}
    write_run(tmp_path, "base", {"name": "d2f"}, decoded([None] * N, 20, 1.0, **unknown))
    write_run(tmp_path, "ours", {"name": "lopa", "k": 4}, decoded([None] * N, 4, 1.0, **unknown))
    text = said(Study.of(tmp_path))
    assert "needs an unknown number of calls beside its base (D2F) and no time of single problems was recorded" in text
    assert "no verdict tells which solves more" in text


def test_one_run_none_and_runs_that_cannot_be_compared(tmp_path: Path) -> None:
    assert said(Study([])) == "There is no finished run."
    write_run(tmp_path, "ours", {"name": "lopa", "k": 4}, decoded([True] * 15 + [False] * 5, 4, 1.0))
    alone = said(Study.of(tmp_path))
    assert alone.startswith("One run: LoPA on D2F, k = 4 solves 75.0 % of 20 problems at 8.89 tokens a call")
    assert "One run alone shows no difference" in alone
    write_run(tmp_path, "other", {"name": "d2f"}, decoded([True] * N, 20, 1.0), model="elsewhere")
    assert "2 runs of 2 models and tasks, of which no two can be compared. The largest two differ in model" in said(
        Study.of(tmp_path)
    )


def test_the_fastest_and_the_fastest_without_a_loss_are_marked(tmp_path: Path) -> None:
    study = three_runs(tmp_path)
    write_run(tmp_path, "swift", {"name": "lopa", "k": 2}, decoded([False] * N, 2, 0.5))
    marks = {entry.run.id: entry.marks for entry in Leaderboard(Study.of(tmp_path)).entries}
    assert marks == {
        "swift": ("fastest",), "base": ("fastest, no significant loss",), "ours": (), "greedy": (),
    }  # fmt: skip
    assert [entry.run.id for entry in Leaderboard(study).entries] == ["base", "ours", "greedy"]  # by tokens a second


def test_a_base_that_loses_passes_its_loss_on(tmp_path: Path) -> None:
    """As good as a base that is worse than greedy is no run without a loss."""
    write_run(tmp_path, "greedy", {"name": "greedy"}, decoded([True] * N, 40, 4.0))
    for name, settings, seconds in (("base", {"name": "d2f"}, 1.0), ("ours", {"name": "lopa", "k": 4}, 0.5)):
        write_run(tmp_path, name, settings, decoded([False] * N, 20, seconds))
    marks = {entry.run.id: entry.marks for entry in Leaderboard(Study.of(tmp_path)).entries}
    assert marks == {"ours": ("fastest",), "base": (), "greedy": ("fastest, no significant loss",)}


def test_a_significant_gain_is_no_loss(tmp_path: Path) -> None:
    write_run(tmp_path, "base", {"name": "d2f"}, decoded([False] * N, 20, 1.0))
    write_run(tmp_path, "ours", {"name": "lopa", "k": 4}, decoded([True] * N, 10, 0.5))
    marks = {entry.run.id: entry.marks for entry in Leaderboard(Study.of(tmp_path)).entries}
    assert marks == {"ours": ("fastest", "fastest, no significant loss"), "base": ()}


def test_a_row_says_of_how_many_settings_it_is_one_where_some_were_tuned(tmp_path: Path) -> None:
    assert {entry.tried for entry in Leaderboard(three_runs(tmp_path)).entries} == {None}
    lower = {"name": "lopa", "k": 4, "tau_conf": 0.7}
    write_run(tmp_path, "lower", lower, decoded([True] * N, 3, 1.0))
    board = Leaderboard(Study.of(tmp_path))
    assert {e.run.id: e.tried for e in board.entries} == {"lower": 2, "ours": 2, "base": 1, "greedy": 1}
    page = leading(board, Palette())
    assert page.count("one of 2 settings tried") == page.count("not tuned") - 1 == 2  # and once in the legend


def test_the_file_of_the_leaderboard_has_every_digit(tmp_path: Path) -> None:
    values = leaderboard_table(Leaderboard(three_runs(tmp_path))).values
    ours = next(one for one in values if one["run"] == "ours")
    assert (ours["n"], ours["score"], ours["baseline_run"], ours["pairs"]) == (20, 40.0, "base", 20)
    assert ours["calls_ratio"] == pytest.approx(4.5 / 20.5)
    assert ours["score_difference_points"] == pytest.approx(-60)


NAMES = ("<script>alert(1)</script>", "$x_1$", "\u05d0\u05d1\u05d2", "\u202eabc", "=1+1", "a" * 5000, '"><img src=x>')


@pytest.mark.parametrize("name", NAMES)
def test_any_name_is_a_row_and_nothing_parses_it(tmp_path: Path, name: str) -> None:
    write_run(tmp_path, "base", {"name": "d2f"}, decoded([True] * N, 20, 1.0), model=name)
    write_run(tmp_path, "ours", {"name": "lopa", "k": 4}, decoded([True] * N, 4, 1.0), model=name)
    study = Study.of(tmp_path)
    page = leading(Leaderboard(study), Palette())
    assert not re.search(r"<script|<img|\u202e", page)
    assert page.count("<tr>") == 3
    assert len(page) < 60_000


def test_a_page_of_samples_holds_rows_replays_and_why_there_is_none(tmp_path: Path) -> None:
    steps = simulate(3, 4, 0.9, seed=1)
    write_run(tmp_path, "base", {"name": "d2f"}, [(one | {"correct": not one["correct"]}, []) for one, _ in steps])
    write_run(tmp_path, "ours<script>", {"name": "lopa", "k": 4}, steps)
    board = Leaderboard(Study.of(tmp_path))
    write_samples(board.study, board.entries, tmp_path / "report", replays=2)
    ours = next(entry for entry in board.entries if entry.run.lookahead)
    page = (tmp_path / "report" / ours.page).read_text(encoding="utf-8")
    data = json.loads(page.partition('id="samples">')[2].partition("</script>")[0])
    assert [row[0] for row in data["rows"]] == ["p0", "p1", "p2"]
    assert [(row[2], row[9]) for row in data["rows"]] == [
        (one["correct"], not one["correct"]) for one, _ in steps
    ]  # its own verdict, its base's
    assert (data["opened"], data["base"]["title"]) == (2, "D2F")
    chunk = (tmp_path / "report" / ours.page).with_suffix("").as_posix() + "-0.js"
    opened = json.loads(Path(chunk).read_text(encoding="utf-8").partition(",")[2].removesuffix(");\n"))
    assert len(opened["0"]["steps"]) == steps[0][0]["forwards"]
    base = json.loads((tmp_path / "report/runs/base-0.js").read_text(encoding="utf-8")[len('replayData("base",') : -3])
    assert "no replay can be made" in base["0"]["no_replay"]
    with (tmp_path / "report/runs/base.csv").open(encoding="utf-8") as stream:
        assert [row["problem_id"] for row in csv.DictReader(stream)] == ["p0", "p1", "p2"]


def test_tpf_per_row_is_of_the_rows_and_tpf_of_the_calls(tmp_path: Path) -> None:
    write_run(tmp_path, "ours", {"name": "lopa", "k": 4}, decoded([True] * N, 10, 1.0, forwards=10, rows=50))
    (entry,) = Leaderboard(Study.of(tmp_path)).entries
    assert (entry.values["tpf"].value, entry.values["tpf_row"].value) == (4.0, 0.8)


def test_the_report_gets_the_address_and_the_number_of_replays_that_were_typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    got: list[Any] = []
    monkeypatch.setattr("analysis.report.write_report", lambda *given: got.extend(given))
    write_run(tmp_path, "a", {"name": "greedy"}, decoded([True], 40, 4.0))
    typed = ["report", str(tmp_path), "--to", str(tmp_path / "page"), "--url", "https://example.org/", "--replays", "3"]
    assert main(typed) == 0
    _, folder, made, replays = got
    assert (folder, made.url, replays) == (tmp_path / "page", "https://example.org/", 3)
    assert made.command.startswith("python -m analysis report ")


def test_how_to_cite_names_date_version_commits_command_and_address(tmp_path: Path) -> None:
    write_run(tmp_path, "more", {"name": "greedy"}, decoded([True], 40, 4.0), git_revision="0123456789abcdef")
    study = three_runs(tmp_path)
    command = "python -m analysis report my_runs"
    made = about.Made(command, "https://example.org/100%/", "2026-01-02", "fedcba9876543210+changes")
    text = about.section(study, made)
    for part in ("2026-01-02", command, "Test CPU", about.ARTICLE):
        assert part in text
    assert f"by lopa-bench {product_version()} (fedcba9876+changes)" in text  # who writes the report
    assert "made by lopa-bench 0.1.0, 0.1.0 (0123456789)" in text  # who made the runs
    assert r"url     = {https://example.org/100\%/}" in about.bibtex(study, made)
    assert "@misc{lopa_bench_report_2026_01_02," in about.bibtex(study, made)
    tags = about.meta("title", 'a "quoted" word', made, "figures/a.png")
    assert '<meta property="og:image" content="https://example.org/100%/figures/a.png">' in tags
    assert 'content="a &quot;quoted&quot; word"' in tags
    assert "og:image" not in about.meta("title", "words", replace(made, url=""), "figures/a.png")


@pytest.mark.parametrize("paper", sorted(PAPERS))
@pytest.mark.parametrize(
    "colour", ["#000000", "#ffffff", "#9e9e9e", "#1b2a49", "#c98a1b", "#440154", "#7ad151", "#737373"]
)
def test_text_of_any_colour_is_readable_on_light_and_on_dark_paper(colour: str, paper: str) -> None:
    if (colour, paper) != ("#ffffff", "dark"):  # what is white on white paper is the paper, not a text
        assert contrast(on_paper(colour, paper, READABLE), PAPERS[paper]) >= READABLE
