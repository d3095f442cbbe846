"""What figures draw: x, y, bands and words of every figure, from rows whose numbers were computed by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from matplotlib.axes import Axes

from analysis.figures.registry import FIGURES
from analysis.figures.style import PUBLISHED, Plotted
from analysis.rewards import rewards
from analysis.study import Study
from analysis.tables import published
from tests.analysis_runs import simulate, write_run
from tests.test_analysis_golden import CUDA, HUB, record
from tests.test_records import sample, step

TABLE5 = {"tau_add": 0.1, "tau_act": 0.95, "tau_conf": 0.9, "block_size": 32, "gen_length": 512, "decode_tail": True}
D2F_DREAM = {"model": "d2f_dream", "task": "gsm8k", **HUB}


def drawn(name: str, root: Path) -> Plotted:
    figure = FIGURES[name].draw(Study.of(root))
    assert figure is not None
    return figure


def curve(ax: Axes, index: int = 0) -> tuple[list[float], list[float]]:
    """x and y of the index-th series with error bars."""
    line = ax.containers[index][0]
    return list(line.get_xdata()), list(line.get_ydata())


def words(ax: Axes) -> tuple[str, str]:
    return ax.get_xlabel(), ax.get_ylabel()


def band(ax: Axes, index: int = 0) -> dict[float, tuple[float, float]]:
    """Lower and upper end at each x of a filled band."""
    ends: dict[float, set[float]] = {}
    for x, y in ax.collections[index].get_paths()[0].vertices:
        ends.setdefault(float(x), set()).add(round(float(y), 9))
    return {x: (min(ys), max(ys)) for x, ys in ends.items()}


def steps_of(fills: list[int], winners: list[int], branches: int = 3) -> list[dict[str, Any]]:
    return [
        step(i, positions=list(range(n)), tokens=[0] * n, probs=[1.0] * n, winner=w, branches=1 if i == 0 else branches)
        for i, (n, w) in enumerate(zip(fills, winners))
    ]


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    """The two samples with k = 0, 1 and 2, "times" 1, 2 and 3 the tokens."""
    for k in range(3):
        write_run(tmp_path, f"k{k}", {"name": "lopa", "k": k}, record(k + 1))
    return tmp_path


def test_lookahead_cost_has_positions_a_token_on_the_left_and_tokens_a_row_on_the_right(sweep: Path) -> None:
    """4000 positions and 105 rows for 110, 220 and 330 tokens."""
    left, right = drawn("lookahead_cost", sweep).axes
    assert curve(left) == ([0, 1, 2], pytest.approx([4000 / 110, 4000 / 220, 4000 / 330]))
    assert curve(right) == ([0, 1, 2], pytest.approx([110 / 105, 220 / 105, 330 / 105]))
    assert words(left) == ("lookahead branches k", "positions computed\nper content token")
    assert words(right) == ("lookahead branches k", "content tokens per row")


def test_presets_show_each_rule_with_its_own_number(sweep: Path) -> None:
    (ax,) = drawn("presets", sweep).axes
    rules = [label.get_text().split("\n")[0] for label in ax.get_yticklabels()]
    expected = {"effective": 110 / 35, "lopa_dream": 192 / 37, "lopa_diffucoder": 110 / 35, "lopa_dist": 192 / 35,
                "fast_dllm": 110 / 35, "d3llm": 110 / 35}  # fmt: skip
    assert rules == list(expected)
    for index in range(3):
        assert curve(ax, index)[0] == pytest.approx([(index + 1) * value for value in expected.values()])
    assert words(ax)[0] == "TPF under the rule (tokens per step)"


def test_score_against_tpf_and_tps_against_tpf(sweep: Path) -> None:
    write_run(sweep, "greedy", {"name": "greedy"}, record(1, correct=True))
    for name, ys, label in (
        ("accuracy_tpf", {"k0": 50, "k1": 50, "k2": 50, "greedy": 100}, "score (%)"),
        ("tps_tpf", {"k0": 110 / 3, "k1": 220 / 3, "k2": 110, "greedy": 110 / 3}, "TPS (content tokens per second)"),
    ):
        ax = drawn(name, sweep).axes[0]
        points = sorted((curve(ax, i)[0][0], curve(ax, i)[1][0]) for i in range(len(ax.containers)))
        tpf = {"k0": 110 / 35, "k1": 220 / 35, "k2": 330 / 35, "greedy": 110 / 35}
        assert points == [pytest.approx(point) for point in sorted((tpf[key], ys[key]) for key in ys)]
        assert words(ax) == ("TPF (content tokens per call)", label)


def test_the_front_joins_the_runs_that_nothing_beats_at_one_setting(sweep: Path) -> None:
    write_run(sweep, "greedy", {"name": "greedy"}, record(1, correct=True))
    ax = drawn("accuracy_tpf", sweep).axes[0]
    (front,) = [line for line in ax.lines if line.get_color() == "0.35"]
    assert [tuple(point) for point in front.get_xydata()] == [
        pytest.approx((330 / 35, 50)), pytest.approx((110 / 35, 100)),
    ]  # fmt: skip


def test_figure_5_draws_mean_and_middle_half_of_the_tokens_of_each_step(tmp_path: Path) -> None:
    """Step 0: 1, 3, 5 and 7 tokens; step 1: 2 + 1 and 4 tokens of the two samples that still decode."""
    rows = [([1, 2], [0, 1]), ([3, 4], [0, 0]), ([5], [0]), ([7], [0])]
    for k in (1, 2):
        samples = [(sample(i), steps_of(*row)) for i, row in enumerate(rows)]
        write_run(tmp_path, f"k{k}", {"name": "lopa", "k": k}, samples)
    (ax,) = drawn("figure5", tmp_path).axes
    assert ax.lines[0].get_xydata().tolist() == [[0, 4.0], [1, 3.5]]
    assert band(ax) == {0: (2.5, 5.5), 1: (3.25, 3.75)}
    assert words(ax) == ("step (model call) of a sample", "tokens gained in the step")


def test_winners_are_shares_of_the_calls_that_had_a_choice(tmp_path: Path) -> None:
    """k = 1: of three contested calls the anchor wins two; k = 2: of three it wins one, rank 1 two; blind: 1/2, 1/3."""
    write_run(tmp_path, "k1", {"name": "lopa", "k": 1}, [(sample(0), steps_of([1] * 4, [0, 0, 1, 0], 2))])
    write_run(tmp_path, "k2", {"name": "lopa", "k": 2}, [(sample(0), steps_of([1] * 4, [0, 1, 1, 0], 3))])
    left, right = drawn("winners", tmp_path).axes
    assert curve(left) == ([1, 2], pytest.approx([200 / 3, 100 / 3]))
    blind = next(line for line in left.lines if line.get_label() == "a blind score")
    assert blind.get_xydata().tolist() == [[1, pytest.approx(50)], [2, pytest.approx(100 / 3)]]
    assert curve(right) == ([0, 1], pytest.approx([100 / 3, 200 / 3]))
    assert words(left) == ("lookahead branches k", "calls won by the anchor (%)")
    assert words(right) == ("rank of the winner (0 = anchor)", "calls won at the largest k (%)")


def test_a_blind_score_picks_the_anchor_once_in_as_many_branches_as_each_call_has(tmp_path: Path) -> None:
    """Calls of two and of four branches: (1/2 + 1/4) / 2."""
    calls = [*steps_of([1], [0]), *(steps_of([1, 1], [0, 0], branches)[1] for branches in (2, 4))]
    for k in (2, 3):
        write_run(tmp_path, f"k{k}", {"name": "lopa", "k": k}, [(sample(0), calls)])
    left = drawn("winners", tmp_path).axes[0]
    blind = next(line for line in left.lines if line.get_label() == "a blind score")
    assert blind.get_ydata().tolist() == pytest.approx([37.5, 37.5])


def test_an_ablation_has_tpf_on_the_left_and_the_score_on_the_right(tmp_path: Path) -> None:
    for forced, times in (("per_block", 1), ("global", 2)):
        write_run(tmp_path, forced, {"name": "lopa", "k": 1, "forced": forced}, record(times))
    left, right = drawn("ablation_fallback", tmp_path).axes
    assert [label.get_text() for label in left.get_xticklabels()] == ["global", "per block"]
    assert curve(left)[1] == pytest.approx([220 / 35, 110 / 35])
    assert curve(right)[1] == pytest.approx([50, 50])
    assert (words(left), words(right)) == (
        ("forced pick", "TPF (content tokens per call)"), ("forced pick", "score (%)"),
    )  # fmt: skip


def test_a_curve_over_thresholds_names_its_ends(tmp_path: Path) -> None:
    for index, tau in enumerate((0.9, 0.8, 0.7)):
        for k in (0, 2):
            settings = {"name": "lopa", "k": k, "tau_conf": tau, "tau_act": tau}
            write_run(tmp_path, f"k{k}-{tau}", settings, record(index + 1 + k))
    (ax,) = drawn("ablation_tau_conf", tmp_path).axes
    for index, k in enumerate((0, 2)):
        assert curve(ax, index) == (
            pytest.approx([(i + 1 + k) * 110 / 35 for i in range(3)]), pytest.approx([50] * 3),
        )  # fmt: skip
    named = [(text.get_text(), text.xy[0]) for text in ax.texts]
    assert named == [
        ("τ 0.9", pytest.approx(110 / 35)), ("τ 0.7", pytest.approx(330 / 35)),
        ("τ 0.9", pytest.approx(330 / 35)), ("τ 0.7", pytest.approx(550 / 35)),
    ]  # fmt: skip
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["k = 0", "k = 2"]


def article_sweep(root: Path, **settings: Any) -> None:
    for k in (0, 7, 14):
        write_run(root, f"k{k}", {"name": "lopa", "k": k, **TABLE5, **settings}, record(k + 1), **D2F_DREAM)


def published_lines(ax: Axes) -> list[Any]:
    return [line for line in ax.lines if line.get_color() == PUBLISHED["color"]]


def test_the_published_curve_stands_behind_its_own_model_and_settings_with_the_differences(tmp_path: Path) -> None:
    article_sweep(tmp_path)
    figure = drawn("figure4", tmp_path)
    left = figure.axes[0]
    right = next(ax for ax in figure.axes if ax is not left and ax.bbox.bounds == left.bbox.bounds)
    said = {row["branches"]: row for row in published.rows("figure4_scaling")
            if (row["model"], row["task"]) == ("D2F-Dream", "gsm8k")}  # fmt: skip
    (line,) = published_lines(left)
    assert line.get_xydata().tolist() == [[int(k), float(row["tpf"])] for k, row in said.items()]
    (line,) = published_lines(right)
    assert line.get_xydata().tolist() == [[int(k), float(row["score"])] for k, row in said.items()]
    tpf = {k: (k + 1) * 192 / 37 for k in (7, 14)}
    assert [text.get_text() for text in left.texts] == [
        f"{tpf[7] - 8.4:+.2f}", f"{tpf[14] - 10.1:+.2f}",
    ]  # fmt: skip
    assert [text.get_text() for text in right.texts] == ["−25.0", "−23.8"]
    assert [text.xy for text in left.texts] == [(7, pytest.approx(tpf[7])), (14, pytest.approx(tpf[14]))]
    titles = [ax.get_title() for ax in figure.axes if "published, no run" in ax.get_title()]
    assert "D2F-Dream · GSM8K\npublished, no run with these settings" not in titles


@pytest.mark.parametrize("settings", [{"tau_conf": 0.8}, {"block_size": 16}])
def test_a_published_curve_with_other_settings_stands_in_a_panel_of_its_own(
    tmp_path: Path, settings: dict[str, Any]
) -> None:
    article_sweep(tmp_path, **settings)
    figure = drawn("figure4", tmp_path)
    assert published_lines(figure.axes[0]) == []
    assert "D2F-Dream · GSM8K\npublished, no run with these settings" in [ax.get_title() for ax in figure.axes]
    axes = {("score" in one.words, "score" in one.ax.get_ylabel()) for one in figure.told}
    assert axes == {(False, False), (True, True)}  # each number on its own axis


def test_the_dotted_line_is_greedy_decoding_on_the_same_problems(sweep: Path) -> None:
    def dotted() -> list[float]:
        lines = [line for ax in drawn("figure4", sweep).axes for line in ax.lines if line.get_linestyle() == ":"]
        return [line.get_ydata()[0] for line in lines]

    assert dotted() == []
    write_run(sweep, "one", {"name": "greedy"}, record(1, correct=True)[:1], limit=1)
    assert dotted() == [], "a baseline of another limit"
    write_run(sweep, "greedy", {"name": "greedy"}, record(1, correct=True))
    assert dotted() == [100.0]


def test_a_measured_bar_of_figure_1_stands_beside_a_published_one_with_its_settings_only(tmp_path: Path) -> None:
    """S12 is the article's fastest setting; its difference to 619.3 is printed."""
    s12 = {"name": "lopa", "k": 7, "tau_add": 0.1, "tau_act": 0.7, "tau_conf": 0.7, "block_size": 32, "gen_length": 512}
    facts = {"model": "d2f_dream_base", "task": "gsm8k", **HUB, **CUDA}
    write_run(tmp_path, "other", s12 | {"tau_conf": 0.8}, record(9), **facts)
    ax = drawn("figure1", tmp_path).axes[1]
    assert "no run of these" in ax.get_xlabel()
    write_run(tmp_path, "s12", s12, record(1), **facts)
    figure = drawn("figure1", tmp_path)
    ax = figure.axes[1]
    told = [one for one in figure.told if one.ax is ax and "+ LoPA" in one.words]
    assert [one.words.split("\n")[2] for one in told] == [
        "measured 69 [67, 71] tokens a second", "published 619 tokens a second", "published 856 tokens a second",
    ]  # fmt: skip
    assert told[0].words.endswith(", n = 2\ns12")
    assert told[0].y > told[1].y  # each at its own bar
    said, found = ax.containers[0], next(one for one in ax.containers if one.get_label() == "measured, 95 % interval")
    assert [bar.get_width() for bar in said] == [353.9, 273.3, 307.9, 224.3, 619.3, 856.5]
    assert [bar.get_width() for bar in found if bar.get_width() > 0] == [pytest.approx((128 / 1.9 + 64 / 0.9) / 2)]
    assert f"−{619.3 - (128 / 1.9 + 64 / 0.9) / 2:.0f}" in [text.get_text() for text in ax.texts]
    assert "LoPA-Dist-NV, TP1 BP8, n = 2" in [label.get_text().split("\n")[1] for label in ax.get_yticklabels()]


def test_score_fill_draws_bins_of_scores_against_what_was_filled(tmp_path: Path) -> None:
    for k in (2, 3):
        write_run(tmp_path, f"k{k}", {"name": "lopa", "k": k}, simulate(6, k, 0.9, seed=k))
    study = Study.of(tmp_path)
    (ax,) = drawn("score_fill", tmp_path).axes
    for index, run in enumerate(study.runs):
        found = study.digest(run).score_fill
        assert found is not None
        assert ax.lines[index].get_xdata() == pytest.approx(found.score)
        assert ax.lines[index].get_ydata() == pytest.approx(found.filled)
    assert words(ax) == ("score of the winning branch (negative entropy, nats)", "positions filled by its call")


def test_rewarded_draws_bonus_and_gain_by_the_probability_of_the_token(tmp_path: Path) -> None:
    """Forty rounds of two branches: the unlikely one has the bonus and wins, the likely one has the gain."""
    told = {"lookahead_positions": [5, 6], "lookahead_tokens": [1, 2], "lookahead_counts": [1, 1]}
    steps = [
        step(i, branches=3, winner=2, scores=[0.0, 0.1, 0.5], fresh_probs=[0.9, 0.2], bonus=[0.0, 0.5], gain=[0.1, 0.0],
             **told)
        for i in range(40)
    ]  # fmt: skip
    for k in (0, 2):
        write_run(tmp_path, f"k{k}", {"name": "lopa", "k": k}, [(sample(0, forwards=40), steps)])
    found = rewards(next(run for run in Study.of(tmp_path).runs if run.k == 2))
    assert found is not None
    assert found.within_rounds("bonus", "advantage") == pytest.approx(1)
    assert found.within_rounds("advantage", "fresh") == pytest.approx(-1)
    figure = drawn("rewarded", tmp_path)
    (ax,) = figure.axes
    bonus, gain = ax.lines[:2]
    assert bonus.get_xdata() == pytest.approx([0.2] * 4 + [0.9] * 4)
    assert bonus.get_ydata() == pytest.approx([0.5] * 4 + [0.0] * 4)
    assert gain.get_ydata() == pytest.approx([0.0] * 4 + [0.1] * 4)
    assert "removal bonus 0.5000 [0.5000, 0.5000] at probability 0.20" in figure.told[0].words
    stars = [(one.x, one.y, one.words) for one in figure.told if "of the winners" in one.words]
    assert [(x, y) for x, y, _ in stars] == [pytest.approx((0.2, 0.5)), pytest.approx((0.2, 0.0))]
    assert "paired gain of the winners 0.0000 at probability 0.20, mean of 40" in stars[1][2]
