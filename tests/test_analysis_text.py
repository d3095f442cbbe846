"""A user's own names in every format that the report writes: seen as they are, parsed by nothing."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest

from analysis.__main__ import main
from analysis.comparisons import against_baselines
from analysis.figures.registry import FIGURES
from analysis.figures.style import save
from analysis.replay.page import fragment
from analysis.report import write_report
from analysis.study import Study
from analysis.tables.article import TABLES
from analysis.tables.lists import aup_table, comparison_table, run_table
from analysis.tables.render import to_csv, to_html, to_latex, to_markdown
from analysis.text import clipped, csv_cell, file_name, html, latex, markdown, plain, script_json
from tests.analysis_runs import simulate, write_run

NAMES = [
    "tau$0.9$k", "</script><script>alert(1)</script>", "=1+1", "+1", "-1+2", "@SUM(A1)", r"\input{x}", "a|b", "x" * 300,
    "\U0001f600", "\u05d0\u05d1\u05d2", "evil\u202eexe", "_hidden", "two\nlines", "\x1b[31mred", "[v2]", "*bold*",
    "<!--", "&amp;", "`code`", "50 % of #1 {a} ~b ^c", "\t=1+1", "\uff1d1+1", "![x](http://e.org/x.png)", "mini[/v2]",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_a_spreadsheet_reads_a_name_as_text(name: str) -> None:
    cell = csv_cell(name)
    assert cell.lstrip()[0] not in "=+-@\uff1d\uff0b\uff0d\uff20"
    assert not re.search(r"[\x00-\x1f]", cell)
    assert csv_cell(-0.5) == -0.5, "a negative number is no formula"


@pytest.mark.parametrize("name", NAMES)
def test_no_sign_of_a_name_ends_an_element_or_turns_a_line(name: str) -> None:
    assert not re.search(r"""[<>"']|&(?!(amp|lt|gt|quot|#x27);)""", html(name))
    assert not re.search("[\x00-\x1f\u202a-\u202e]", html(name))
    assert json.loads(script_json({"name": name})) == {"name": name}
    assert not re.search("[<>]", script_json(name))


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("tau$0.9$k", r"tau\$0.9\$k"), ("a|b", r"a\|b"), (r"a\|b", r"a\\\|b"), ("*b*", r"\*b\*"),
        ("mini_ar", "mini_ar"), ("_x_", r"\_x\_"),
        ("<b>", r"\<b\>"), ("[a](b)", r"\[a\](b)"), ("two\nlines", r"two\\nlines"),
        ("`c`", r"\`c\`"),
    ],
)  # fmt: skip
def test_markdown_shows_a_name_as_it_is(name: str, shown: str) -> None:
    assert markdown(name) == shown


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        (r"\input{x}", r"\textbackslash{}input\{x\}"), ("tau$0.9$k", r"tau\$0.9\$k"), ("a_b&c%#", r"a\_b\&c\%\#"),
        ("\U0001f600", "[U+1F600]"), ("é", "é"), ("ł", "[U+0142]"), ("^~", r"\textasciicircum{}\textasciitilde{}"),
    ],
)  # fmt: skip
def test_latex_sets_a_name_as_it_is(name: str, shown: str) -> None:
    assert latex(name) == shown


def test_hidden_signs_are_spelled_out_and_all_others_stay() -> None:
    assert plain("a\nb\x1b\u202e\u200b") == r"a\nb\x1b\u202e\u200b"
    assert plain("\U0001f600 \u05d0 é $") == "\U0001f600 \u05d0 é $"


def test_a_long_name_keeps_its_beginning_and_its_end() -> None:
    text = "".join(map(str, range(100)))
    assert len(clipped(text, 20)) == 20
    assert clipped(text, 20)[:5] == text[:5]
    assert clipped(text, 20)[-4:] == text[-4:]
    assert clipped("short") == "short"


@pytest.mark.parametrize("name", [*NAMES, "../../x", "a/b", "", ".", "..", "CON", "a\x00b"])
def test_a_file_name_is_one_in_its_folder(name: str) -> None:
    made = file_name(name)
    assert re.fullmatch(r"[a-z0-9._-]{1,80}", made)
    assert made.strip(".")


def test_two_names_never_make_one_file() -> None:
    names = [*NAMES, "a/b", "a_b", "a b", "A_B", "a_B", "", "name", "x" * 301, file_name("a/b")]
    made = [file_name(name) for name in names]
    assert len(set(made)) == len(set(names))
    assert file_name("gsm8k-test.0007") == "gsm8k-test.0007"


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Study:
    """One small sweep; every name that a user chooses is hostile in one of its runs."""
    root = tmp_path_factory.mktemp("names")
    row: dict[str, Any] = {"model": "_$m$ </script> | =1", "source_name": "=cmd|' /C calc'!A0", "dtype": r"\d"}
    for k in (0, 3):
        write_run(root, f"=run|{k}", {"name": "lopa", "k": k}, simulate(4, k, 0.9, seed=k), **row)
    write_run(root, "+own", {"name": "d2f"}, simulate(4, 0, 0.9, seed=7), **(row | {"base": None, "decoder": "$own$"}))
    return Study.of(root)


def test_every_table_is_whole_in_every_format(study: Study) -> None:
    for table in (make(study) for make in TABLES.values()):
        width = len(table.headers) + 3 * len(table.columns) + 2
        body = [line for line in to_markdown(table).splitlines() if line.startswith("|")]
        assert {len(re.findall(r"(?<!\\)\|", line)) for line in body} == {width + 1}
        assert "</script>" not in to_html(table)
        assert not re.search(r"(?<!\\)\$m", to_latex(table))
        rows = list(csv.reader(io.StringIO(to_csv(table))))
        assert len({len(row) for row in rows}) == 1
        assert not [cell for row in rows for cell in row if cell[:1] in ("=", "@")]


def test_what_a_csv_calls_a_number_is_one(study: Study) -> None:
    """Of grids and tables: columns of numbers hold numbers or nothing, with an ASCII minus, low and high apart."""
    texts = {"decoding", "settings", "against", "its_settings", "model", "task", "run", "baseline_run", "decoder",
             "swept_over", "version", "status", "problems", "where"}  # fmt: skip
    for grid in (comparison_table(against_baselines(study)), aup_table(study), run_table(study)):
        lines = list(csv.DictReader(io.StringIO(to_csv(grid))))
        assert lines
        assert not [value for line in lines for name, value in line.items() if name not in texts and value and
                    not _is_number(value)]  # fmt: skip
    ours = {"source", "run_model", "run_model_is_toy", "hardware", "preset", "run_id"}
    for table in (make(study) for make in TABLES.values()):
        lines = list(csv.DictReader(io.StringIO(to_csv(table))))
        wrong = [value for line in lines for name, value in line.items()
                 if name not in {*table.headers, *ours} and value and not _is_number(value)]  # fmt: skip
        assert not wrong


def _is_number(text: str) -> bool:
    try:
        return bool(text.isascii()) and float(text) is not None
    except ValueError:
        return False


def test_the_comparisons_are_numbers_with_their_interval_in_columns(study: Study) -> None:
    (one,) = [one for one in against_baselines(study) if one.b.k == 3]
    line = next(line for line in comparison_table([one]).values)
    ratio = one.numbers.quantities["tpf"].ratio
    assert (line["tpf_ratio"], (line["tpf_ratio_low"], line["tpf_ratio_high"])) == (ratio.value, ratio.interval)
    assert line["score_difference_points"] == 100 * one.numbers.accuracy.difference.value
    assert (line["only_a_right"], line["only_b_right"]) == (
        one.numbers.only_a_correct, one.numbers.only_b_correct,
    )  # fmt: skip
    assert (line["run"], line["baseline_run"]) == ("=run|3", "=run|0")


@pytest.mark.parametrize("name", ["figure1", "figure4", "lookahead_cost", "presets", "accuracy_tpf"])
def test_a_picture_shows_dollar_signs_and_names_that_begin_with_a_line(
    study: Study, name: str, tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    figure = FIGURES[name].draw(study)
    assert figure is not None
    save(figure, tmp_path, name)
    legends = [text for legend in figure.legends for text in legend.get_texts()]
    texts = [text for ax in figure.axes for text in (ax.title, *ax.get_yticklabels())] + legends
    named = [text for text in texts if "_$m$ </script>" in text.get_text()]
    assert named
    assert not any(text.get_parse_math() for text in texts)
    assert not [one for one in recwarn if "Glyph" in str(one.message)]


def test_the_report_is_written_for_any_name(study: Study, tmp_path: Path) -> None:
    page = write_report(study, tmp_path).read_text(encoding="utf-8")
    assert page.count("</script>") == page.count("<script")
    assert "<!--" not in page


def test_a_replay_of_any_problem_is_a_file_below_the_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    decoded = simulate(2, 0, 0.9, seed=0)
    names = ["../../evil", "a/b\n</script>"]
    rows = [(sample | {"problem_id": name}, steps) for (sample, steps), name in zip(decoded, names)]
    write_run(tmp_path, "r", {"name": "d2f"}, rows)
    for name in names:
        assert main(["replay", "r", "--sample", name, "--outputs", str(tmp_path)]) == 0
        path = Path(capsys.readouterr().out.strip())
        assert path.parent == tmp_path / "report"
        assert path.exists()
        assert path.read_text(encoding="utf-8").count("</script>") == 2


def test_the_data_of_a_replay_is_json_whatever_the_text_holds() -> None:
    trace = {"prompt": "a <!-- \x00 </script> & \u2028", "problem": "p", "decoded": True}
    text = re.search(r'application/json">(.*?)</script>', fragment([trace]), re.DOTALL)
    assert text
    assert json.loads(text[1]) == {"runs": [trace]}
    assert "\x00" not in fragment([trace])
