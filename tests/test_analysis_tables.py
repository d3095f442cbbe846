"""Tables 1 to 7: which run answers which row, what stands below, and how a table is written."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from analysis.study import Study, measure
from analysis.tables import published
from analysis.tables.article import TABLES
from analysis.tables.beside import ArticleTable
from analysis.tables.render import to_html, to_latex, to_markdown
from lopa_bench.metrics.aggregate import aggregate
from lopa_bench.records.finding import find_run, find_runs
from tests.analysis_runs import simulate, sweep, write_run
from tests.test_analysis_golden import HUB, record

FAST_12 = {"tau_add": 0.1, "tau_act": 0.7, "tau_conf": 0.7, "block_size": 32, "gen_length": 512, "decode_tail": True}
ROWS = record()


def test_numbers_and_intervals_are_those_of_the_console(tmp_path: Path) -> None:
    write_run(tmp_path, "r", {"name": "lopa", "k": 3}, simulate(20, 3, 0.9, seed=0), seed=7)
    run = find_run("r", tmp_path)
    for preset in ("effective", "lopa_dream", "lopa_dist"):
        ours, console = measure(run), aggregate(run.samples, preset, 7)
        for quantity in ("tpf", "tps"):
            value = ours.get(quantity, preset)
            assert value.value == pytest.approx(console[quantity])
            assert value.interval == pytest.approx(console[f"{quantity}_ci95"])
        assert ours.get("accuracy").interval == pytest.approx(console["accuracy_ci95"])


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("table1", "table1_dream"), ("table2", "table2_diffucoder"), ("table3", "table3_system"),
        ("table4", "table4_ablation"), ("table5", "table5_hyperparameters"), ("table6", "table6_settings"),
        ("table7", "table7_baselines"),
    ],
)  # fmt: skip
def test_without_a_run_a_table_is_the_published_one_in_its_order(tmp_path: Path, name: str, file: str) -> None:
    table = TABLES[name](Study([]))
    rows = published.rows(file)
    assert [line.labels[0] for line in table.lines] == [next(iter(row.values())) for row in rows]
    for line, row in zip(table.lines, rows, strict=True):
        assert [line.published[column.key] for column in table.columns] == [row[column.key] for column in table.columns]
    assert all(cell == "no run" for cells in _all_measured(table) for cell in cells)


def test_published_inconsistencies_stand_under_their_tables() -> None:
    assert "317.41" in to_markdown(TABLES["table7"](Study([])))
    assert "figure 4 shows 6.5" in to_html(TABLES["table2"](Study([])))
    assert "projected from single-GPU runs" in to_latex(TABLES["table1"](Study([])))


def test_a_toy_on_embedded_problems_is_a_row_of_its_own_and_says_so(tmp_path: Path) -> None:
    sweep(tmp_path, n=4, ks=(0, 14))
    table = TABLES["table1"](Study.of(tmp_path))
    own = [line for line in table.lines if not line.published]
    assert [line.labels[1] for line in own] == ["greedy", "Fast-dLLM", "D2F", "LoPA on D2F, k = 14"]
    assert {(line.labels[0], line.labels[2]) for line in own} == {("mini (toy)", "GSM8K format, embedded")}
    text = to_markdown(table)
    assert "not scores on the benchmark" in text
    assert "[a]†" in text  # the run stopped at the end token; the article's programs do not


def test_other_settings_on_other_hardware_or_problems_do_not_answer_an_article_row(tmp_path: Path) -> None:
    settings = {"name": "lopa", "k": 7, **FAST_12}
    facts = {"model": "d2f_dream_base", "task": "gsm8k"}
    write_run(tmp_path, "cpu", settings, ROWS, **facts, **HUB)
    write_run(tmp_path, "tau", {**settings, "tau_conf": 0.8}, ROWS, **facts, **HUB, device="cuda:0")
    write_run(tmp_path, "embedded", settings, ROWS, **facts, device="cuda:0")
    write_run(tmp_path, "unfinished", settings, ROWS, **facts, **HUB, device="cuda:0", status="interrupted")
    table = TABLES["table3"](Study.of(tmp_path))
    assert not [line for line in table.lines if line.published and line.run]


def test_shards_count_as_one_run_once_all_are_there(tmp_path: Path) -> None:
    for part in range(2):
        write_run(tmp_path, f"s{part}", {"name": "d2f"}, [ROWS[part]], shard=f"{part}/2", union_key="u", limit=2)
        runs = Study.of(tmp_path).runs
    assert len(find_runs(tmp_path)) == 2
    assert [(run.id, run.row["n"], run.samples.num_rows) for run in runs] == [("s0 and 1 other shards", 2, 2)]
    write_run(tmp_path, "t0", {"name": "greedy"}, [ROWS[0]], shard="0/2", union_key="v")
    write_run(tmp_path, "t1", {"name": "greedy"}, [ROWS[1]], shard="1/3", union_key="v")  # a half and a third
    assert len(Study.of(tmp_path).runs) == 1


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not installed")
@pytest.mark.parametrize("name", TABLES)
def test_latex_compiles_with_the_packages_that_it_names_and_fits_the_page(name: str, tmp_path: Path) -> None:
    sweep(tmp_path, n=3, ks=(0, 3))
    text = to_latex(TABLES[name](Study.of(tmp_path)))
    packages = text.partition("\n")[0].removeprefix("% ")
    page = r"\documentclass{article}\usepackage[margin=2cm]{geometry}" + packages
    (tmp_path / "page.tex").write_text(rf"{page}\begin{{document}}{chr(10)}{text}\end{{document}}")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "page.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, errors="replace")
    assert done.returncode == 0, done.stdout[-2000:]
    assert "Overfull" not in done.stdout


def test_latex_has_one_column_for_each_cell_and_no_raw_special_signs(tmp_path: Path) -> None:
    sweep(tmp_path, n=4, ks=(0, 14))
    study = Study.of(tmp_path)
    text = to_latex(TABLES["table1"](study))
    form = next(line for line in text.splitlines() if line.startswith(r"\begin{tabular}"))
    columns = len(form.removeprefix(r"\begin{tabular}{").rstrip("}"))
    body = text.partition(r"\midrule")[2].partition(r"\bottomrule")[0].strip().splitlines()
    assert {line.count(" & ") + 1 for line in body} == {columns}
    assert r"lopa\_dream" in text
    assert r"\begin{longtable}" in to_latex(TABLES["table4"](study))


def _all_measured(table: ArticleTable) -> list[list[str]]:
    labels, rows = len(table.headers), []
    for line in to_markdown(table).splitlines():
        if line.startswith("| ") and not line.startswith(f"| {table.headers[0]} |"):
            rows.append([part.strip() for part in line.strip("|").split("|")][labels::3][: len(table.columns)])
    return rows
