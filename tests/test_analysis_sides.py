"""Who stands beside whom: every decoder at one setting, or at the best of settings that all were offered, on the same
problems, model and device.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from matplotlib.axes import Axes

from analysis.__main__ import main
from analysis.figures.throughput import figure1
from analysis.figures.tradeoffs import accuracy_tpf
from analysis.study import Study, best
from analysis.tables.article import TABLES
from analysis.tables.lists import aup_curves, aup_table
from analysis.tables.render import to_markdown
from tests.analysis_runs import config_of, write_run
from tests.test_analysis_golden import HUB
from tests.test_records import sample, step

TAUS = (0.9, 0.8, 0.7)
# tokens a second by lookahead and threshold: lookahead is slower at each of them, and faster than the default of k = 0
SPEEDS = {0: (100, 200, 400), 8: (50, 150, 300)}


def timed(n: int, speed: float, correct: int | None = None, forwards: int = 8) -> list[Any]:
    """`n` samples of 32 positions, by lopa_dist `speed` tokens a second; the first `correct` are right."""
    right = n if correct is None else correct
    return [
        (
            sample(i, decode_s=32 / speed, total_s=32 / speed, prefill_s=0.0, correct=i < right, forwards=forwards,
                   rounds=forwards),
            [step(0)],
        )
        for i in range(n)
    ]  # fmt: skip


def swept(root: Path, n: int = 6, ks: tuple[int, ...] = (0, 8), name: str = "", **row: Any) -> None:
    for k in ks:
        for tau, speed in zip(TAUS, SPEEDS[k]):
            settings = {"name": "lopa", "k": k, "tau_conf": tau, "tau_act": tau}
            write_run(root, f"{name}k{k}-{tau}", settings, timed(n, speed), **row)


def own_axes(study: Study) -> list[Axes]:
    """The panels of figure 1 that show no published bar."""
    figure = figure1(study)
    assert figure is not None
    return [ax for ax in figure.axes if "article" not in ax.get_title()]


def bars_of(ax: Axes) -> list[tuple[str, float]]:
    """Labels and widths."""
    return list(zip(labels(ax), (bar.get_width() for bar in ax.patches)))


def bars(study: Study) -> dict[str, list[tuple[str, float]]]:
    return {ax.get_title(): bars_of(ax) for ax in own_axes(study)}


def all_bars(study: Study) -> list[list[tuple[str, float]]]:
    return [bars_of(ax) for ax in own_axes(study)]


def labels(ax: Axes) -> list[str]:
    return [label.get_text() for label in ax.get_yticklabels()]


def own_lines(study: Study, name: str) -> list[tuple[str, float | None, int | None]]:
    table = TABLES[name](study)
    return [(line.labels[1], table.cells(line)[0].measured.value, table.n(line)) for line in table.lines if line.run]


def test_a_sweep_in_which_lookahead_is_slower_shows_the_slowdown(tmp_path: Path) -> None:
    swept(tmp_path)
    study = Study.of(tmp_path)
    panels = bars(study)
    best = panels["mini (toy) · GSM8K format, embedded\nn = 6\neach at its fastest of the same settings"]
    assert best == [
        ("LoPA on D2F, k = 0\nτ 0.7, best of 3", pytest.approx(400)),
        ("LoPA on D2F, k = 8\nτ 0.7, best of 3", pytest.approx(300)),
    ]
    assert own_lines(study, "table3") == [
        ("LoPA on D2F, k = 0, τ 0.7, fastest of 3 settings, cpu", pytest.approx(400), 6),
        ("LoPA on D2F, k = 8, τ 0.7, fastest of 3 settings, cpu", pytest.approx(300), 6),
    ]


def test_a_single_default_run_never_stands_beside_the_best_of_many(tmp_path: Path) -> None:
    """k = 8 was tried on three thresholds and D2F on one: both stand at that one."""
    swept(tmp_path, ks=(8,))
    write_run(tmp_path, "d2f", {"name": "d2f", "tau_conf": 0.8, "tau_act": 0.8}, timed(6, 200))
    study = Study.of(tmp_path)
    (panel,) = bars(study).values()
    assert panel == [("D2F\nτ 0.8", pytest.approx(200)), ("LoPA on D2F, k = 8\nτ 0.8", pytest.approx(150))]
    assert [line[:2] for line in own_lines(study, "table3")] == [
        ("D2F, τ 0.8, not tuned, cpu", pytest.approx(200)),
        ("LoPA on D2F, k = 8, τ 0.8, not tuned, cpu", pytest.approx(150)),
    ]


def test_beside_tuned_decoders_who_was_not_tuned_says_so_and_stands_in_another_panel(tmp_path: Path) -> None:
    swept(tmp_path)
    write_run(tmp_path, "greedy", {"name": "greedy"}, timed(6, 10))
    single, best = bars(Study.of(tmp_path)).values()
    assert [label.split("\n")[0] for label, _ in best] == ["LoPA on D2F, k = 0", "LoPA on D2F, k = 8"]
    assert single[0] == ("greedy\nnot tuned", pytest.approx(10))
    assert all(label.endswith("not tuned") for label, _ in single)
    assert [width for _, width in single[1:]] in ([pytest.approx(s) for s in pair] for pair in zip(*SPEEDS.values()))


def test_base_decoders_with_settings_of_their_own_have_a_panel_each(tmp_path: Path) -> None:
    swept(tmp_path)
    for k in (0, 4):
        for tau in TAUS:
            settings = {"name": "lopa", "base": "fast_dllm", "k": k, "tau_conf": tau}
            write_run(tmp_path, f"fast{k}-{tau}", settings, timed(6, 1000 * tau + k))
    _, first, second = all_bars(Study.of(tmp_path))
    assert [label for label, _ in first] == [
        "LoPA on Fast-dLLM, k = 0\nτ 0.9, best of 3", "LoPA on Fast-dLLM, k = 4\nτ 0.9, best of 3",
    ]  # fmt: skip
    assert [label for label, _ in second] == [
        "LoPA on D2F, k = 0\nτ 0.7, best of 3", "LoPA on D2F, k = 8\nτ 0.7, best of 3",
    ]  # fmt: skip


def test_a_comparison_that_somebody_chose_says_what_else_differs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_run(tmp_path, "a", {"name": "d2f"}, timed(3, 100))
    write_run(tmp_path, "b", {"name": "d2f"}, timed(3, 50), device="cuda", model="other")
    assert main(["compare", "a", "b", "--outputs", str(tmp_path)]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[2].startswith(
        "not like with like, in model: mini / other; device: local on cpu float32 / local on cuda"
    )


def test_a_small_later_sweep_never_displaces_a_large_one(tmp_path: Path) -> None:
    swept(tmp_path, n=6, name="large", created="2026-01-01T00:00:00+00:00")
    for k in range(9):
        row = {"created": "2026-02-01T00:00:00+00:00"}
        write_run(
            tmp_path, f"small{k}", {"name": "lopa", "k": k, "tau_conf": 0.7, "tau_act": 0.7}, timed(2, 999), **row
        )
    study = Study.of(tmp_path)
    assert {n for _, _, n in own_lines(study, "table3")} == {6}
    (series,) = study.k_series()
    assert [(run.k, run.row["n"]) for run in series] == [(0, 6), (8, 6)]
    assert all(width < 999 for panel in bars(study).values() for _, width in panel)


def test_of_runs_with_equal_settings_the_one_with_the_most_samples_stands_and_of_these_the_newest(
    tmp_path: Path,
) -> None:
    for name, n, created in (("large", 4, "2026-01-01"), ("later", 2, "2026-03-01"), ("newest", 4, "2026-02-01")):
        write_run(tmp_path, name, {"name": "d2f"}, timed(n, 100), created=created)
    study = Study.of(tmp_path)
    chosen = best(study.runs)
    assert chosen is not None
    assert chosen.id == "newest"
    assert [[run.id for run in group] for group in study.contexts()] == [["newest"], ["later"]]


@pytest.mark.parametrize(
    "row",
    [
        {"model": "other"}, {"device": "cuda"}, {"source_sha256": "1" * 64}, {"task": "mbpp"}, {"batch": 4},
        {"scorer": "strict"}, {"dtype": "bfloat16"}, {"config_task": {"shots": 4}},
    ],
)  # fmt: skip
def test_runs_that_differ_in_more_than_the_decoder_share_no_panel_and_no_curve(
    tmp_path: Path, row: dict[str, Any]
) -> None:
    write_run(tmp_path, "a", {"name": "lopa", "k": 0}, timed(6, 100))
    if "config_task" in row:
        row = {"config": config_of({"name": "lopa", "k": 8}) | {"task": row["config_task"]}}
    write_run(tmp_path, "b", {"name": "lopa", "k": 8}, timed(6, 50), **row)
    study = Study.of(tmp_path)
    assert study.k_series() == []
    assert max(len(panel) for panel in bars(study).values()) == 1
    assert accuracy_tpf(study) is None
    assert study.baseline(next(run for run in study.runs if run.id == "b")) is None


def test_runs_on_fewer_problems_are_compared_on_what_they_share(tmp_path: Path) -> None:
    """k = 0 on six problems of which the first two are right; k = 8 on the first three, all right."""
    write_run(tmp_path, "a", {"name": "lopa", "k": 0}, timed(6, 100, correct=2))
    write_run(tmp_path, "b", {"name": "lopa", "k": 8}, timed(3, 50))
    study = Study.of(tmp_path)
    (series,) = study.k_series()
    values = [study.value(run, "accuracy", among=series).value for run in series]
    assert values == [pytest.approx(2 / 3), 1.0]
    assert [study.numbers(run, series).n for run in series] == [3, 3]


def test_a_sample_that_one_run_failed_on_or_could_not_judge_counts_for_none(tmp_path: Path) -> None:
    failed, unjudged = timed(4, 100), timed(4, 50)
    failed[0][0].update(finish_reason="error", correct=None, content_tokens=0)
    unjudged[1][0].update(correct=None)
    unjudged[2][0].update(correct=False)
    write_run(tmp_path, "a", {"name": "lopa", "k": 0}, failed)
    write_run(tmp_path, "b", {"name": "lopa", "k": 8}, unjudged)
    study = Study.of(tmp_path)
    (series,) = study.k_series()
    found = [study.numbers(run, series) for run in series]
    assert [(one.n, one.judged, one.get("accuracy").value) for one in found] == [(3, 2, 1.0), (3, 2, 0.5)]


def test_rows_side_by_side_say_one_n_although_a_sample_of_one_failed(tmp_path: Path) -> None:
    for k, failing in ((0, 0), (8, 2)):
        samples = timed(4, 100)
        for one, _ in samples[:failing]:
            one.update(finish_reason="error", correct=None, content_tokens=0)
        write_run(tmp_path, f"k{k}", {"name": "lopa", "k": k}, samples)
    assert [n for _, _, n in own_lines(Study.of(tmp_path), "table3")] == [2, 2]


def test_only_decoders_tried_on_the_same_settings_make_the_pareto_front(tmp_path: Path) -> None:
    """Greedy has the best score at one setting: it is drawn hollow and the line does not reach it."""
    swept(tmp_path)
    write_run(tmp_path, "greedy", {"name": "greedy"}, timed(6, 10, forwards=32))
    figure = accuracy_tpf(Study.of(tmp_path))
    assert figure is not None
    ax = figure.axes[0]
    (front,) = [line for line in ax.lines if line.get_marker() in ("None", "")][:1]
    hollow = [line for line in ax.lines if line.get_markerfacecolor() == "white"]
    assert 11 / 32 not in front.get_xdata()
    assert [line.get_xdata().tolist() for line in hollow] == [[11 / 32]]
    assert "hollow: not tuned" in [text.get_text()[:17] for text in figure.legends[0].get_texts()]


@pytest.mark.parametrize("name", ["mine", "a-decoder-of-my-own-with-a-name-of-48-characters"])
def test_the_legend_below_a_single_panel_ends_inside_the_figure(tmp_path: Path, name: str) -> None:
    swept(tmp_path)
    for base in ("greedy", "fast_dllm", name):
        write_run(tmp_path, base, {"name": "greedy"}, timed(6, 10), decoder=base, base=base)
    figure = accuracy_tpf(Study.of(tmp_path))
    assert figure is not None
    figure.canvas.draw()
    box = figure.legends[0].get_window_extent()
    assert (box.x0 >= 0, box.x1 <= figure.bbox.x1) == (True, True)


def test_areas_are_taken_over_settings_that_all_curves_share(tmp_path: Path) -> None:
    swept(tmp_path)
    extra = {"name": "lopa", "k": 8, "tau_conf": 0.6, "tau_act": 0.6}
    write_run(tmp_path, "more", extra, timed(6, 999, forwards=1))
    along = [curve for curve in aup_curves(Study.of(tmp_path)) if "settings of" in curve.over]
    assert [(curve.name, len(curve.runs)) for curve in along] == [("LoPA on D2F, k = 0", 3), ("LoPA on D2F, k = 8", 3)]
    assert {curve.over for curve in along} == {"3 settings of τ, the same for all of this decoder"}


def test_an_area_without_a_rival_says_so(tmp_path: Path) -> None:
    swept(tmp_path, ks=(8,))
    grid = aup_table(Study.of(tmp_path))
    assert {line["swept_over"] for line in grid.values} == {"3 settings of τ; no other decoder was tuned"}
    assert {line["n"] for line in grid.values} == {6}


def test_the_baseline_is_the_one_at_the_same_threshold_on_the_most_problems(tmp_path: Path) -> None:
    swept(tmp_path)
    write_run(tmp_path, "few", {"name": "lopa", "k": 0, "tau_conf": 0.7, "tau_act": 0.7}, timed(3, 1), limit=3)
    write_run(tmp_path, "d2f", {"name": "d2f"}, timed(6, 1))
    study = Study.of(tmp_path)
    found = {run.id: study.baseline(run) for run in study.runs if run.lookahead}
    assert {name: run and run.id for name, run in found.items()} == {f"k8-{tau}": f"k0-{tau}" for tau in TAUS}


def test_a_row_on_other_problems_than_the_largest_of_its_task_is_marked(tmp_path: Path) -> None:
    facts = HUB | {"model": "dream_instruct"}
    write_run(tmp_path, "a", {"name": "dream", "block_size": None}, timed(6, 100), **facts)
    write_run(tmp_path, "b", {"name": "fast_dllm"}, timed(3, 100), **facts)
    text = to_markdown(TABLES["table1"](Study.of(tmp_path)))
    lines = [line for line in text.splitlines() if line.startswith("| Dream |") and "no run" not in line]
    assert [line.endswith("‡ |") for line in lines] == [False, True]
    assert "Rows marked ‡" in text


def test_who_was_set_up_otherwise_stands_beside_nobody(tmp_path: Path) -> None:
    """Lookahead was tried at twice the length more often; only at 128 there is a decoder without it."""
    for tau in TAUS:
        for length, k, speed in ((128, 0, 100), (128, 4, 50), (256, 4, 900), (256, 8, 900)):
            settings = {"name": "lopa", "k": k, "tau_conf": tau, "tau_act": tau, "gen_length": length}
            write_run(tmp_path, f"{length}-{k}-{tau}", settings, timed(6, speed))
    study = Study.of(tmp_path)
    assert [value for _, value, _ in own_lines(study, "table3")] == [pytest.approx(100), pytest.approx(50)]
    assert {round(width) for panel in bars(study).values() for _, width in panel} == {100, 50}


def test_titles_of_panels_beside_long_labels_end_inside_the_figure(tmp_path: Path) -> None:
    swept(tmp_path, model="a-model-with-quite-a-long-name-of-34")
    figure = figure1(Study.of(tmp_path))
    assert figure is not None
    figure.canvas.draw()
    for ax in figure.axes:
        box = ax.title.get_window_extent()
        assert (box.x0 >= 0, box.x1 <= figure.bbox.x1) == (True, True), ax.get_title()


def test_the_fastest_setting_is_sought_on_the_samples_that_all_settings_decoded(tmp_path: Path) -> None:
    """At 0.8 all but the last sample failed; it took as long as at 0.9, where the others were slow."""
    for k in (0, 8):
        samples = timed(3, 100)
        for one, _ in samples[:2]:
            one.update(decode_s=32.0, total_s=32.0)
        write_run(tmp_path, f"k{k}-0.9", {"name": "lopa", "k": k, "tau_conf": 0.9, "tau_act": 0.9}, samples)
        failed = timed(3, 90)
        for one, _ in failed[:2]:
            one.update(finish_reason="error", correct=None, content_tokens=0)
        write_run(tmp_path, f"k{k}-0.8", {"name": "lopa", "k": k, "tau_conf": 0.8, "tau_act": 0.8}, failed)
    assert [label.split(", ")[2] for label, _, _ in own_lines(Study.of(tmp_path), "table3")] == ["τ 0.9", "τ 0.9"]


def test_a_short_run_takes_no_samples_from_longer_ones(tmp_path: Path) -> None:
    """k = 0 on twelve problems, k = 4 on six of them, k = 8, which the article has, on three."""
    for k, n in ((0, 12), (4, 6), (8, 3)):
        write_run(tmp_path, f"k{k}", {"name": "lopa", "k": k}, timed(n, 100 + k))
    study = Study.of(tmp_path)
    (series,) = study.k_series()
    assert [(run.k, study.numbers(run, series).n) for run in series] == [(0, 6), (4, 6)]
    assert {n for _, _, n in own_lines(study, "table3")} == {12, 6}
