"""Tables 1 to 7: every number of a small record, computed by hand, under the rule of its table.

Two samples, the second one wrong:
    content 100 and 10, window 128 and 64, 25 and 10 rounds (= calls), 2.0 s and 1.0 s, of which 0.1 s prefill.
Two problems make three bootstrap draws, (2, 0), (1, 1) and (0, 2), a quarter, a half and a quarter of all: the 95 %
interval of a ratio goes from the one sample's own ratio to the other's.
"""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import pytest

from analysis import published
from analysis.numbers import measure
from analysis.runs import find_run, find_runs
from analysis.study import Study
from analysis.tables.article import TABLES
from analysis.tables.model import Table
from analysis.tables.render import to_csv, to_html, to_latex, to_markdown
from lopa_bench.metrics import aggregate
from tests.analysis_runs import simulate, sweep, write_run
from tests.test_records import sample, step

HAND = [
    sample(
        0, content_tokens=100, eos_tokens=101, window_tokens=128, rounds=25, forwards=25, rows=75,
        tokens_processed=3000, prefill_s=0.1, decode_s=1.9, total_s=2.0, correct=True,
    ),
    sample(
        1, content_tokens=10, eos_tokens=11, window_tokens=64, rounds=10, forwards=10, rows=30,
        tokens_processed=1000, prefill_s=0.1, decode_s=0.9, total_s=1.0, correct=False,
    ),
]  # fmt: skip
ROWS: list[Any] = [(row, [step(0)]) for row in HAND]
HUB = {"source_kind": "hub", "source_name": "the benchmark", "model_is_toy": False}
FAST_12 = {"tau_add": 0.1, "tau_act": 0.7, "tau_conf": 0.7, "block_size": 32, "gen_length": 512, "decode_tail": True}
TABLE_5 = {"tau_act": 0.95, "block_size": 32, "gen_length": 512, "decode_tail": True}


@pytest.fixture(scope="module")
def article(tmp_path_factory: pytest.TempPathFactory) -> Study:
    """The hand-made record as runs of the article's models and settings."""
    root = tmp_path_factory.mktemp("article")
    d14 = {"name": "lopa", "k": 14, "tau_add": 0.1, "tau_conf": 0.9, **TABLE_5}
    c6 = {"name": "lopa", "k": 6, "tau_add": 0.3, "tau_conf": 0.95, **TABLE_5}
    write_run(root, "t1", d14, ROWS, model="d2f_dream", task="gsm8k", **HUB)
    write_run(root, "t2", c6, ROWS, model="d2f_diffucoder", task="humaneval_plus", **HUB)
    s12 = {"name": "lopa", "k": 7, **FAST_12}
    write_run(root, "t3", s12, ROWS, model="d2f_dream_base", task="gsm8k", device="cuda:0", **HUB)
    write_run(root, "t7", {"name": "d2f"}, ROWS, model="d2f_dream_base", task="gsm8k", device="cuda:0", **HUB)
    return Study.of(root)


SCORE = "50.0 [9.5, 90.5]"  # Wilson: (1/2 ± 1.96 sqrt(1/8 + 3.8416/16) ...) / (1 + 3.8416/2)
EXPECTED = {  # table, labels -> measured cells
    ("table1", "D2F-Dream", "+ LoPA", "GSM8K (4-shot)"): ["5.19 [4.92, 5.82]", SCORE],  # 192/(35 + 2); 128/26, 64/11
    ("table2", "D2F-DiffuCoder", "+ LoPA", "HumanEval+ (0-shot)"): ["3.14 [1.00, 4.00]", SCORE],  # 110/35
    ("table3", "D2F-Dream-Base", "LoPA-Dist-NV", "GSM8K"): [
        "69.2 [67.4, 71.1]",  # mean of 128/1.9 and 64/0.9
        "71.1",
        "5.49 [5.12, 6.40]",  # 192/35
        "1.50 [1.00, 2.00]",
    ],
    ("table4", "D2F-Dream-Base", "LoPA-Dist-NV", "S12", "GSM8K (4-shot)"): ["69.2 [67.4, 71.1]", "71.1", "69.2", SCORE],
    ("table5", "D2F-Dream", "GSM8K (4-shot)"): ["32", "0.10", "0.95", "0.90", "14"],
    ("table5", "D2F-DiffuCoder", "HumanEval+ (0-shot)"): ["32", "0.30", "0.95", "0.95", "6"],
    ("table6", "S12", "LoPA-Dist-NV", "BF16, TP1 BP8"): ["8", "32", "512", "0.10", "0.70", "0.70"],
    ("table7", "D2F-Dream-7B-Base", "HuggingFace CUDA", "GSM8K"): [
        "69.2 [67.4, 71.1]",
        "5.49 [5.12, 6.40]",
        "1.50 [1.00, 2.00]",
        SCORE,
    ],
}


@pytest.mark.parametrize("name", TABLES)
def test_every_measured_cell_is_the_hand_computed_number(article: Study, name: str) -> None:
    found = {(name, *labels): cells for labels, cells in _measured(TABLES[name](article)).items()}
    assert found == {key: cells for key, cells in EXPECTED.items() if key[0] == name}


def test_every_preset_counts_the_same_rows_by_its_own_rule(article: Study) -> None:
    numbers = measure(find_run("t1", article.runs[0].folders[0].parents[1]))
    tpf = {name: numbers.get("tpf", name).value for name in ("effective", "lopa_dream", "lopa_diffucoder", "lopa_dist")}
    assert tpf == pytest.approx(
        {"effective": 110 / 35, "lopa_dream": 192 / 37, "lopa_diffucoder": 110 / 35, "lopa_dist": 192 / 35}
    )
    assert numbers.get("tps", "effective").value == pytest.approx(110 / 3)
    assert numbers.get("tpf", "ar_server").value is None  # no server counted these rows
    assert numbers.get("tpf_row").value == pytest.approx(110 / 105)
    assert numbers.get("processed_per_token").value == pytest.approx(4000 / 110)


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


def test_the_difference_is_measured_minus_published(article: Study) -> None:
    row = _csv(TABLES["table1"](article), "D2F-Dream", "+ LoPA", "GSM8K (4-shot)")
    assert row["tpf_published"] == "10.1"
    assert float(row["tpf_difference"]) == pytest.approx(192 / 37 - 10.1)
    assert (row["n"], row["source"], row["run_model"], row["preset"]) == (
        "2",
        "the benchmark",
        "d2f_dream",
        "lopa_dream",
    )
    assert row["hardware"] == "cpu float32 (Test CPU)"


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
    assert len(Study.of(tmp_path).runs) == 1


def test_latex_has_one_column_for_each_cell_and_no_raw_special_signs(article: Study) -> None:
    text = to_latex(TABLES["table1"](article))
    form = next(line for line in text.splitlines() if line.startswith(r"\begin{tabular}"))
    columns = len(form.removeprefix(r"\begin{tabular}{").rstrip("}"))
    body = text.partition(r"\midrule")[2].partition(r"\bottomrule")[0].strip().splitlines()
    assert {line.count(" & ") + 1 for line in body} == {columns}
    assert r"lopa\_dream" in text
    assert r"\begin{longtable}" in to_latex(TABLES["table4"](article))


def _measured(table: Table) -> dict[tuple[str, ...], list[str]]:
    """Labels -> measured cells of the lines that have a run and belong to the article."""
    cells = dict(zip((line.labels for line in table.lines), _all_measured(table)))
    return {line.labels: cells[line.labels] for line in table.lines if line.run and line.published}


def _all_measured(table: Table) -> list[list[str]]:
    labels, rows = len(table.headers), []
    for line in to_markdown(table).splitlines():
        if line.startswith("| ") and not line.startswith(f"| {table.headers[0]} |"):
            rows.append([part.strip() for part in line.strip("|").split("|")][labels::3][: len(table.columns)])
    return rows


def _csv(table: Table, *labels: str) -> dict[str, str]:
    rows = csv.DictReader(io.StringIO(to_csv(table)))
    return next(row for row in rows if tuple(row[name] for name in table.headers) == labels)
