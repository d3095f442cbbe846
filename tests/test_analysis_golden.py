"""Tables 1 to 7 of a small record whose numbers were computed by hand, each under the rule of its table.

Two samples, the second one wrong:
    content 100 and 10, window 128 and 64, 25 and 10 rounds (= calls), 2.0 s and 1.0 s, of which 0.1 s prefill.
Two problems make three bootstrap draws, (2, 0), (1, 1) and (0, 2), a quarter, a half and a quarter of all: the 95 %
interval of a ratio goes from the one sample's own ratio to the other's. A record "times n" has n times the tokens in
the same calls and seconds, so that two rows of one table never show the same numbers by accident.

    lopa_dream       192 / (35 + 2) = 5.19    128 / 26 = 4.92    64 / 11 = 5.82
    lopa_diffucoder  110 / 35 = 3.14          100 / 25 = 4       10 / 10 = 1
    lopa_dist TPF    192 / 35 = 5.49          128 / 25 = 5.12    64 / 10 = 6.4
    lopa_dist TPS    mean of 128 / 1.9 = 67.37 and 64 / 0.9 = 71.11, that is 69.24
    ar_server TPS    192 / 3 = 64             128 / 2 = 64       64 / 1 = 64
    score            1 of 2; Wilson: (0.5 + z²/4 ± z sqrt(1/8 + z²/16)) / (1 + z²/2) = 0.095 and 0.905 with z = 1.96
"""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import pytest

from analysis.figures.scaling import figure4
from analysis.figures.style import PUBLISHED
from analysis.study import Study, measure
from analysis.tables.article import TABLES
from analysis.tables.beside import ArticleTable
from analysis.tables.render import to_csv, to_markdown
from lopa_bench.records.finding import find_run
from tests.analysis_runs import write_run
from tests.test_records import sample, step

HUB = {"source_kind": "hub", "source_name": "the benchmark", "model_is_toy": False}
CUDA = {"device": "cuda:0"}
NULL = dict.fromkeys(("rounds", "forwards", "rows", "tokens_processed", "prefill_s", "decode_s"))


def record(times: int = 1, **changes: Any) -> list[Any]:
    """The two samples with `times` the tokens."""
    first = sample(
        0, content_tokens=100 * times, eos_tokens=100 * times + 1, window_tokens=128 * times, rounds=25, forwards=25,
        rows=75, tokens_processed=3000, prefill_s=0.1, decode_s=1.9, total_s=2.0, correct=True,
    )  # fmt: skip
    second = sample(
        1, content_tokens=10 * times, eos_tokens=10 * times + 1, window_tokens=64 * times, rounds=10, forwards=10,
        rows=30, tokens_processed=1000, prefill_s=0.1, decode_s=0.9, total_s=1.0, correct=False,
    )  # fmt: skip
    return [(first | changes, [step(0)]), (second | changes, [step(0)])]


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Study:
    """The record as runs of the article's models and settings, and of the embedded model."""
    root = tmp_path_factory.mktemp("golden")
    table5 = {"tau_act": 0.95, "block_size": 32, "gen_length": 512, "decode_tail": True}
    dream = {**table5, "tau_add": 0.1, "tau_conf": 0.9}
    coder = {**table5, "tau_add": 0.3, "tau_conf": 0.95}
    s12 = {"name": "lopa", "k": 7, "tau_add": 0.1, "tau_act": 0.7, "tau_conf": 0.7, "block_size": 32, "gen_length": 512}
    plain = {"gen_length": 512, "decode_tail": True}

    def article(name: str, settings: dict[str, Any], rows: list[Any], model: str, task: str, **row: Any) -> None:
        write_run(root, name, settings, rows, **({"model": model, "task": task} | HUB | row))

    article("vanilla", {"name": "dream", "block_size": None, **plain}, record(1), "dream_instruct", "gsm8k")
    article("fast", {"name": "fast_dllm", **plain}, record(2), "dream_instruct", "gsm8k")
    article("lopa", {"name": "lopa", "base": "fast_dllm", "k": 14, **plain}, record(3), "dream_instruct", "gsm8k")
    article("d2f", {"name": "d2f", **dream}, record(2), "d2f_dream", "gsm8k")
    article("d2f-lopa", {"name": "lopa", "k": 14, **dream}, record(1), "d2f_dream", "gsm8k")
    article("coder", {"name": "dream", "block_size": None, **plain}, record(2), "diffucoder", "humaneval_plus")
    article("coder-d2f", {"name": "d2f", **coder}, record(3), "d2f_diffucoder", "humaneval_plus")
    article("coder-lopa", {"name": "lopa", "k": 6, **coder}, record(1), "d2f_diffucoder", "humaneval_plus")
    article("s12", s12 | plain, record(1), "d2f_dream_base", "gsm8k", **CUDA)
    article("base", {"name": "d2f", **plain}, record(2), "d2f_dream_base", "gsm8k", **CUDA)
    served = record(1, token_source="usage", **NULL)
    article("qwen", {"name": "greedy"}, served, "qwen3_8b", "gsm8k", backend="sglang", decoder="ar", k=None, base=None)

    mini = {**s12, "block_size": 16, "gen_length": 128}
    write_run(root, "mini", {"name": "d2f"}, record(1))
    write_run(root, "mini-7", mini, record(2))
    write_run(root, "mini-14", {**mini, "k": 14}, record(3))
    return Study.of(root)


# The lines that have a run, as Markdown prints them: labels; measured, published and difference of each column; n.
# Published values are the article's, typed here once more.
S = "50.0 [9.5, 90.5]"
EXPECTED = {
    "table1": f"""
Dream | vanilla | GSM8K (4-shot) | 5.19 [4.92, 5.82] | 1.0 | +4.19 | {S} | 72.6 | −22.6 | 2
Dream | + Fast-dLLM | GSM8K (4-shot) | 10.38 [9.85, 11.64] | 2.1 | +8.28 | {S} | 72.6 | −22.6 | 2
Dream | + LoPA | GSM8K (4-shot) | 15.57 [14.77, 17.45] | 3.1 | +12.47 | {S} | 73.3 | −23.3 | 2
D2F-Dream | vanilla | GSM8K (4-shot) | 10.38 [9.85, 11.64] | 3.1 | +7.28 | {S} | 78.5 | −28.5 | 2
D2F-Dream | + LoPA | GSM8K (4-shot) | 5.19 [4.92, 5.82] | 10.1 | −4.91 | {S} | 73.8 | −23.8 | 2
mini (toy) | D2F, τ 0.9, tau_act 0.95 | GSM8K format, embedded | 5.19 [4.92, 5.82] | – | – | {S} | – | – | 2
mini (toy) | LoPA on D2F, k = 14, τ 0.7 | GSM8K format, embedded | 15.57 [14.77, 17.45] | – | – | {S} | – | – | 2
""",
    "table2": f"""
DiffuCoder | vanilla | HumanEval+ (0-shot) | 6.29 [2.00, 8.00] | 1.0 | +5.29 | {S} | 65.2 | −15.2 | 2
D2F-DiffuCoder | vanilla | HumanEval+ (0-shot) | 9.43 [3.00, 12.00] | 2.2 | +7.23 | {S} | 65.9 | −15.9 | 2
D2F-DiffuCoder | + LoPA | HumanEval+ (0-shot) | 3.14 [1.00, 4.00] | 8.3 | −5.16 | {S} | 64.0 | −14.0 | 2
""",
    "table3": """
D2F-Dream-Base | LoPA-Dist-NV | GSM8K \
| 69.2 [67.4, 71.1] | 619.33 | −550.1 | 71.1 | 1299.25 | −1228.1 | 5.49 [5.12, 6.40] | 13.16 | −7.67 \
| 1.50 [1.00, 2.00] | 0.85 | +0.65 | 2
mini (toy) | D2F, τ 0.9, tau_act 0.95, not tuned, cpu | GSM8K format, embedded \
| 69.2 [67.4, 71.1] | – | – | 71.1 | – | – | 5.49 [5.12, 6.40] | – | – | 1.50 [1.00, 2.00] | – | – | 2
mini (toy) | LoPA on D2F, k = 14, τ 0.7, not tuned, cpu | GSM8K format, embedded \
| 207.7 [202.1, 213.3] | – | – | 213.3 | – | – | 16.46 [15.36, 19.20] | – | – | 1.50 [1.00, 2.00] | – | – | 2
""",
    "table4": f"""
D2F-Dream-Base | LoPA-Dist-NV | S12 | GSM8K (4-shot) \
| 69.2 [67.4, 71.1] | 619.33 | −550.1 | 71.1 | 1299.25 | −1228.1 | 69.2 | 1201.18 | −1131.9 | {S} | 60.88 | −10.9 | 2
mini (toy) | cpu | S12 (k = 7) | GSM8K format, embedded \
| 138.5 [134.7, 142.2] | – | – | 142.2 | – | – | 138.5 | – | – | {S} | – | – | 2
""",
    "table5": """
D2F-Dream | GSM8K (4-shot) \
| 32 | 32 | +0 | 0.10 | 0.1 | +0.00 | 0.95 | 0.95 | +0.00 | 0.90 | 0.90 | +0.00 | 14 | 14 | +0 | 2
D2F-DiffuCoder | HumanEval+ (0-shot) \
| 32 | 32 | +0 | 0.30 | 0.3 | +0.00 | 0.95 | 0.95 | +0.00 | 0.95 | 0.95 | +0.00 | 6 | 6 | +0 | 2
mini (toy) | GSM8K format, embedded | 16 | – | – | 0.10 | – | – | 0.70 | – | – | 0.70 | – | – | 14 | – | – | 2
""",
    "table6": """
S12 | LoPA-Dist-NV | BF16, TP1 BP8 | 8 | 8 | +0 | 32 | 32 | +0 | 512 | 512 | +0 \
| 0.10 | 0.1 | +0.00 | 0.70 | 0.7 | +0.00 | 0.70 | 0.7 | +0.00 | 2
S12, mini (toy) | GSM8K format, embedded, local | cpu float32 (Test CPU) | 8 | – | – | 16 | – | – | 128 | – | – \
| 0.10 | – | – | 0.70 | – | – | 0.70 | – | – | 2
""",
    "table7": f"""
D2F-Dream-7B-Base | HuggingFace CUDA | GSM8K | 138.5 [134.7, 142.2] | 224.33 | −85.9 | 10.97 [10.24, 12.80] | 3.90 \
| +7.07 | 1.50 [1.00, 2.00] | 2.68 | −1.18 | {S} | 64.90 | −14.9 | 2
Qwen3-8B | SGLang | GSM8K | 64.0 [64.0, 64.0] | 317.31 | −253.3 | 1.00 [1.00, 1.00] | 1.00 \
| +0.00 | 1.50 [1.00, 2.00] | 0.49 | +1.01 | {S} | 93.63 | −43.6 | 2
mini (toy) | D2F, local | GSM8K format, embedded | 69.2 [67.4, 71.1] | – | – | 5.49 [5.12, 6.40] | – \
| – | 1.50 [1.00, 2.00] | – | – | {S} | – | – | 2
""",
}


@pytest.mark.parametrize("name", TABLES)
def test_every_cell_of_every_table_is_the_hand_computed_number(study: Study, name: str) -> None:
    lines = markdown_lines(TABLES[name](study))
    assert [line for line in lines if "no run" not in line] == EXPECTED[name].strip().splitlines()
    assert len(lines) > len(EXPECTED[name].strip().splitlines())  # the article's other rows say that they have no run


def test_every_preset_counts_the_same_rows_by_its_own_rule(study: Study) -> None:
    numbers = measure(run_of(study, "d2f-lopa"))
    tpf = {name: numbers.get("tpf", name).value for name in ("effective", "lopa_dream", "lopa_diffucoder", "lopa_dist")}
    assert tpf == pytest.approx(
        {"effective": 110 / 35, "lopa_dream": 192 / 37, "lopa_diffucoder": 110 / 35, "lopa_dist": 192 / 35}
    )
    assert numbers.get("tps", "effective").value == pytest.approx(110 / 3)
    assert numbers.get("tpf", "ar_server").value is None  # no server counted these rows
    assert numbers.get("tpf_row").value == pytest.approx(110 / 105)
    assert numbers.get("processed_per_token").value == pytest.approx(4000 / 110)
    assert numbers.get("step_s").value == pytest.approx(3 / 35)


def test_the_csv_holds_every_digit_and_where_a_number_comes_from(study: Study) -> None:
    row = csv_line(TABLES["table1"](study), "D2F-Dream", "+ LoPA", "GSM8K (4-shot)")
    numbers = [float(row[f"tpf{part}"]) for part in ("", "_low", "_high", "_published", "_difference")]
    assert numbers == pytest.approx([192 / 37, 128 / 26, 64 / 11, 10.1, 192 / 37 - 10.1], rel=1e-12)
    where = ["n", "source", "run_model", "run_model_is_toy", "hardware", "preset", "run_id"]
    assert [row[name] for name in where] == [
        "2", "the benchmark", "d2f_dream", "False", "cpu float32 (Test CPU)", "lopa_dream", "d2f-lopa",
    ]  # fmt: skip
    served = csv_line(TABLES["table7"](study), "Qwen3-8B", "SGLang", "GSM8K")
    assert served["preset"] == "ar_server"


def test_figure_4_draws_the_hand_computed_numbers_with_their_intervals(study: Study) -> None:
    """The embedded model with k = 7 (times 2) and k = 14 (times 3), by lopa_dream, and no curve of another model."""
    figure = figure4(study)
    assert figure is not None
    left = figure.axes[0]
    right = next(ax for ax in figure.axes if ax is not left and ax.bbox.bounds == left.bbox.bounds)
    for ax, middle, low, high in (
        (left, [2 * 192 / 37, 3 * 192 / 37], [2 * 128 / 26, 3 * 128 / 26], [2 * 64 / 11, 3 * 64 / 11]),
        (right, [50, 50], [9.4531, 9.4531], [90.5469, 90.5469]),
    ):
        line, _, (bars,) = ax.containers[0]
        assert line.get_xdata().tolist() == [7, 14]
        assert line.get_ydata() == pytest.approx(middle)
        ends = [segment[:, 1] for segment in bars.get_segments()]
        assert [end[0] for end in ends] == pytest.approx(low, abs=1e-3)
        assert [end[1] for end in ends] == pytest.approx(high, abs=1e-3)
    assert not [line for ax in (left, right) for line in ax.lines if line.get_color() == PUBLISHED["color"]]


def markdown_lines(table: ArticleTable) -> list[str]:
    """Labels, numbers and n of each line; the last column is the letter of the run."""
    rows = [line for line in to_markdown(table).splitlines() if line.startswith("| ")]
    return [" | ".join(part.strip() for part in row.strip("|").split("|")[:-1]) for row in rows[1:]]


def csv_line(table: ArticleTable, *labels: str) -> dict[str, str]:
    rows = csv.DictReader(io.StringIO(to_csv(table)))
    return next(row for row in rows if tuple(row[name] for name in table.headers) == labels)


def run_of(study: Study, name: str) -> Any:
    return find_run(name, Path(study.runs[0].folders[0]).parents[1])
