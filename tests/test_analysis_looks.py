"""How figures tell runs apart: markers, colours, legends, and names beside curves."""

# ruff: noqa: F811  # tests take the imported fixture by its name
from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.colors import to_hex

from analysis.figures.style import COLOURS, shade
from analysis.study import Study
from analysis.tables.article import TABLES
from tests.analysis_runs import write_run
from tests.test_analysis_figures import drawn, steps_of, sweep  # noqa: F401  # sweep is a fixture
from tests.test_analysis_golden import record
from tests.test_records import sample


def test_a_legend_names_what_is_drawn(sweep: Path) -> None:
    def named() -> list[str]:
        return [text.get_text() for text in drawn("figure4", sweep).legends[0].get_texts()]

    assert "score of greedy decoding, measured" not in named()
    write_run(sweep, "greedy", {"name": "greedy"}, record(1, correct=True))
    assert "score of greedy decoding, measured" in named()


def test_a_figure_says_how_many_panels_it_has_no_room_for(tmp_path: Path) -> None:
    for index in range(10):
        for k in (0, 1):
            write_run(tmp_path, f"{index}-{k}", {"name": "lopa", "k": k}, record(k + 1), model=f"model {index}")
    figure = drawn("accuracy_tpf", tmp_path)
    assert figure.get_suptitle() == "not shown: 2 more, since a figure has room for 8"


def test_lopa_on_each_of_several_bases_has_a_marker_of_its_own(sweep: Path) -> None:
    def named() -> dict[str, Any]:
        return {line.get_label(): line.get_marker() for line in drawn("accuracy_tpf", sweep).legends[0].get_lines()}

    assert named()["LoPA"] == "o"
    write_run(sweep, "fast", {"name": "lopa", "base": "fast_dllm", "k": 1}, record(2))
    assert {named()["LoPA on D2F"], named()["LoPA on Fast-dLLM"]} == {"o", "D"}


def test_an_own_decoder_stands_in_tables_and_figures(tmp_path: Path) -> None:
    config = {"decoder": {"name": "lopa", "base": "mine", "k": 2, "tau_conf": 0.9, "spread": 3}}
    plain = {"decoder": {"name": "mine", "k": 0, "tau_conf": 0.9, "spread": 3}}
    write_run(tmp_path, "b", {"name": "lopa", "k": 2}, record(2), base="mine", config=config)
    write_run(tmp_path, "a", {"name": "d2f"}, record(1), decoder="mine", base=None, config=plain)
    study = Study.of(tmp_path)
    for name in ("table1", "table3"):
        own = [line.labels[1] for line in TABLES[name](study).lines if line.run]
        assert [label.split(",")[0] for label in own] == ["mine", "LoPA on mine"]
    assert "mine" in [line.labels[1].split(",")[0] for line in TABLES["table7"](study).lines if line.run]
    bars = [label.get_text().split("\n")[0] for label in drawn("figure1", tmp_path).axes[2].get_yticklabels()]
    assert bars == ["mine", "LoPA on mine, k = 2"]
    legend = [text.get_text() for text in drawn("accuracy_tpf", tmp_path).legends[0].get_texts()]
    assert legend == ["mine", "LoPA"]
    baseline = study.baseline(next(run for run in study.runs if run.id == "b"))
    assert baseline is not None
    assert baseline.id == "a"


def test_a_decoder_without_lookahead_beside_it_has_not_the_colour_of_k_0(sweep: Path) -> None:
    write_run(sweep, "greedy", {"name": "greedy"}, record(1))
    write_run(sweep, "d2f", {"name": "d2f", "tau_conf": 0.5}, record(1))
    figure = drawn("accuracy_tpf", sweep)
    colours = [to_hex(container[0].get_color()) for container in figure.axes[0].containers]
    scale = [to_hex(shade(k / 2)) for k in (0, 1, 2)]
    assert sorted(colours) == sorted([*scale, scale[0], COLOURS[1]])  # D2F is k = 0
    legend = {line.get_label(): line.get_color() for line in figure.legends[0].get_lines()}
    assert (legend["greedy"], legend["D2F"], legend["LoPA"]) == (COLOURS[1], COLOURS[0], COLOURS[0])


def test_a_curve_over_steps_has_its_k_at_its_end_and_a_legend_only_without_room_for_that(tmp_path: Path) -> None:
    for k in (0, 1, 3, 7):
        steps = steps_of([8 - k] * (9 - k), [0] * (9 - k))
        write_run(tmp_path / "apart", f"k{k}", {"name": "lopa", "k": k}, [(sample(0), steps)])
        write_run(tmp_path / "alike", f"k{k}", {"name": "lopa", "k": k}, [(sample(0), steps_of([1] * 60, [0] * 60))])
    (ax,) = drawn("figure5", tmp_path / "apart").axes
    assert [text.get_text() for text in ax.texts] == ["k = 0", "k = 1", "k = 3", "k = 7"]
    assert [text.get_color() for text in ax.texts] == [line.get_color() for line in ax.lines]
    assert ax.get_legend() is None
    (ax,) = drawn("figure5", tmp_path / "alike").axes
    assert list(ax.texts) == []
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["k = 0", "k = 1", "k = 3", "k = 7"]
