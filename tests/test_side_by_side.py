"""Runs below each other: every number against its definition, ratios of like with like only, and what was varied."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from lopa_bench.console.report import console_on, json_values
from lopa_bench.console.side_by_side import side_by_side
from lopa_bench.metrics.aggregate import aggregate
from lopa_bench.metrics.ratios import ratios_to_first
from lopa_bench.metrics.varied import Measured, by_name, differing, settings_of
from lopa_bench.records.reading import read_samples
from lopa_bench.records.runs import as_run, open_run
from lopa_bench.records.schema import to_json
from lopa_bench.records.writing import RunStore
from lopa_bench.sweep.jobs import JobReport
from lopa_bench.sweep.report import report_sweep
from tests.test_records import measured, run_row, sample

HAND = {
    "preset": "effective", "formula": "content / forwards, content / total time", "n": 40, "errors": 0,
    "accuracy": 0.25, "accuracy_ci95": [0.125, 0.5], "pass_at": {"1": 0.25}, "tpf": 3.5, "tpf_ci95": [3.25, 3.75],
    "tpf_row": 1.5, "tps": 321.0, "tps_ci95": [300.0, 345.0], "latency_s": 0.5, "latency_s_ci95": [0.4, 0.6],
    "forwards": 700, "rows": 2100, "finish_reasons": {}, "unjudged": 0,
}  # fmt: skip


@pytest.fixture(autouse=True)
def no_terminal_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)


def text_of(renderable: Any, width: int = 100) -> str:
    stream = io.StringIO()
    Console(file=stream, width=width).print(renderable)
    return stream.getvalue()


def lines_of(renderable: Any, width: int = 100) -> list[list[str]]:
    return [line.split() for line in text_of(renderable, width).splitlines() if line.strip()]


def stored(folder: Path, rows: list[dict[str, Any]], overrides: tuple[str, ...] = (), **changes: Any) -> Measured:
    """A run on disk, as a sweep hands it over."""
    with RunStore(folder) as store:
        for row in rows:
            store.add(row)
        store.write_run(run_row(run_id=folder.name, status="finished", **changes))
    return Measured(open_run(folder), aggregate(read_samples(folder)), overrides)


def test_every_number_of_the_table_is_the_one_of_its_heading() -> None:
    table = lines_of(side_by_side([measured(HAND, status="finished")]))
    at = table.index(["decoder", "k", "n", "accuracy", "TPF", "TPF/row", "TPS", "latency", "forwards", "rows"])
    assert table[at + 1] == ["lopa", "8", "40", "25.0", "%", "3.50", "1.50", "321", "0.50", "s", "700", "2100"]
    assert table[at + 2] == ["on", "d2f", "12.5–50.0", "3.25–3.75", "300–345", "0.40–0.60"]


def test_every_number_of_the_json_line_is_the_one_of_its_name() -> None:
    values = json.loads(to_json(json_values(measured(HAND, Path("there"), status="finished"))))
    names = (
        "preset", "n", "errors", "accuracy", "accuracy_ci95", "pass_at", "tpf", "tpf_ci95", "tpf_row", "tps",
        "tps_ci95", "latency_s", "forwards", "rows",
    )  # fmt: skip
    assert {name: values[name] for name in names} == {name: HAND[name] for name in names}
    about = {name: value for name, value in values.items() if name not in names}
    assert about == {
        "run_id": "r", "status": "finished", "task": "gsm8k", "source": "embedded word problems", "model": "mini",
        "model_is_toy": True, "decoder": "lopa", "k": 8, "path": "there",
    }  # fmt: skip


def test_ratios_are_of_the_later_run_by_the_first_and_accuracy_is_the_later_minus_the_first() -> None:
    later = HAND | {
        "accuracy": 0.2, "tpf": 7.0, "tpf_row": 1.2, "tps": 160.5, "latency_s": 0.75, "forwards": 350, "rows": 3150
    }  # fmt: skip
    (ratios,) = [one for one in ratios_to_first([measured(HAND, k="0"), measured(later)])[0] if one]
    assert ratios.accuracy_difference == pytest.approx(-0.05)
    assert ratios.values == pytest.approx(
        {"tpf": 2.0, "tpf_row": 0.8, "tps": 0.5, "latency_s": 1.5, "forwards": 0.5, "rows": 1.5}
    )
    table = lines_of(side_by_side([measured(HAND, k="0"), measured(later)]))
    assert ["to", "first", "-5.0", "pt", "×2.00", "×0.80", "×0.50", "×1.50", "×0.50", "×1.50"] in table
    assert "ratios: on the 40 samples that both runs decoded" in text_of(
        side_by_side([measured(HAND, k="0"), measured(later)])
    )


def test_ratios_are_over_the_problems_that_both_decoded_and_say_how_many(tmp_path: Path) -> None:
    """The first run has four problems of which the later one has two, and these are slow and wrong for the first."""
    first = stored(
        tmp_path / "a",
        [sample(0, forwards=20, correct=False), sample(1, forwards=20, correct=False), sample(2), sample(3)],
        k="0",
    )
    later = stored(tmp_path / "b", [sample(0, forwards=10), sample(1, forwards=10)])
    (ratios,) = [one for one in ratios_to_first([first, later])[0] if one]
    assert (ratios.pairs, ratios.accuracy_difference, ratios.values["tpf"]) == (2, 1.0, 2.0)
    table = lines_of(side_by_side([first, later]))
    (row,) = [line for line in table if line[:2] == ["to", "first"]]
    assert row[2:6] == ["2", "+100.0", "pt", "×2.00"]
    assert "ratios: on the 2 samples that both runs decoded" in text_of(side_by_side([first, later]))


def test_a_sample_that_failed_in_one_run_is_in_no_ratio(tmp_path: Path) -> None:
    first = stored(tmp_path / "a", [sample(0), sample(1)], k="0")
    failed = sample(1, finish_reason="error", error="x", correct=None, forwards=None, content_tokens=None)
    later = stored(tmp_path / "b", [sample(0, forwards=4), failed])
    (ratios,) = [one for one in ratios_to_first([first, later])[0] if one]
    assert (ratios.pairs, ratios.values["tpf"], ratios.accuracy_difference) == (1, 2.0, 0.0)


OTHERS: list[dict[str, Any]] = [
    {"task": "math"},
    {"source_sha256": "1" * 64},
    {"model": "other"},
    {"model_sha256": "2" * 64},
    {"device": "cuda"},
    {"dtype": "bfloat16"},
    {"scorer": "lm_eval_strict"},
    {"batch": 16},
    {"config": {"task": {"shots": 3}}},
]


@pytest.mark.parametrize("other", OTHERS, ids=str)
def test_no_ratio_is_shown_between_runs_that_are_not_alike(other: dict[str, Any], tmp_path: Path) -> None:
    first = stored(tmp_path / "a", [sample(0)], k="0")
    text = text_of(side_by_side([first, stored(tmp_path / "b", [sample(0, forwards=4)], **other)]))
    assert "×" not in text
    assert "to first" not in text
    assert "their ratios compare nothing, and none is shown" in " ".join(text.split())


def test_no_ratio_is_shown_between_counting_rules_or_without_a_common_problem(tmp_path: Path) -> None:
    first = stored(tmp_path / "a", [sample(0)], k="0")
    other = stored(tmp_path / "b", [sample(0, forwards=4)])
    other = replace(other, numbers=aggregate(read_samples(tmp_path / "b"), "lopa_dist"))
    assert "×" not in text_of(side_by_side([first, other]))
    assert "×" not in text_of(side_by_side([first, stored(tmp_path / "c", [sample(5)])]))


def test_of_two_tasks_each_has_a_first_of_its_own(tmp_path: Path) -> None:
    runs = [
        stored(tmp_path / f"{task}{k}", [sample(0, forwards=8 if k == "0" else forwards)], task=task, k=k)
        for task, forwards in (("gsm8k", 4), ("mbpp", 2))
        for k in ("0", "4")
    ]
    ratios, apart = ratios_to_first(runs)
    assert [one and one.values["tpf"] for one in ratios] == [None, 2.0, None, 4.0]
    assert apart == ["task: gsm8k / mbpp"]
    text = text_of(side_by_side(runs))
    assert text.count("task=gsm8k") == text.count("task=mbpp") == 2
    assert "first: the first run above with the same task, source, model, device and counting rule" in text


def test_rows_of_a_sweep_name_every_override_that_not_all_of_them_have(tmp_path: Path) -> None:
    common = ("task.limit=2", "decoder.gen_length=16")
    runs = [
        stored(tmp_path / tau, [sample(0)], (*common, f"decoder.tau_conf={tau}", "run.out=x", "decoder.k=8"))
        for tau in ("0.9", "0.8")
    ]
    text = text_of(side_by_side(runs))
    assert "decoder.tau_conf=0.9" in text
    assert "decoder.tau_conf=0.8" in text
    assert "limit" not in text
    assert "run.out" not in text
    stream = io.StringIO()
    jobs = [JobReport(n, "finished", [*one.overrides], "f", path=str(one.run.folder)) for n, one in enumerate(runs)]
    report_sweep(tmp_path, jobs, runs, stream=stream)
    table = json.loads(stream.getvalue().splitlines()[-1])["table"]
    assert [row["varied"] for row in table] == [{"decoder.tau_conf": "0.9"}, {"decoder.tau_conf": "0.8"}]


def test_what_was_varied_is_found_by_name_whatever_the_order() -> None:
    assert differing([["a=1", "+b=2", "c=3"], ["c=3", "a=1", "b=4"], ["a=1", "b=2"]]) == [
        {"b": "2", "c": "3"}, {"b": "4", "c": "3"}, {"b": "2"}
    ]  # fmt: skip
    assert by_name(["-m", "run.shard=0/2", "hydra/launcher=ray", "tracker=wandb", "task='a=b'"]) == {"task": "'a=b'"}


def test_values_for_programs_are_those_of_the_configuration() -> None:
    run = as_run(run_row(config=json.dumps({"decoder": {"tau_conf": 0.9, "k": 8}, "task": {"name": "gsm8k"}})))
    own = {"decoder.tau_conf": "0.90", "decoder.k": "8", "task": "gsm8k", "+row": "mini/ar"}
    assert settings_of(own, run) == {"decoder.tau_conf": 0.9, "decoder.k": 8, "task": "gsm8k", "+row": "mini/ar"}


HOSTILE = ["mini[/v2]", "[red]mini[/red]", ":smile:", "tau$0.9$k", "a\x1b[31mb", "two\nlines", "\u202eabc", "[link=x]"]
SEEN = ["mini[/v2]", "[red]mini[/red]", ":smile:", "tau$0.9$k", "a\\x1b[31mb", "two\\nlines", "\\u202eabc", "[link=x]"]


@pytest.mark.parametrize(("name", "seen"), [*zip(HOSTILE, SEEN)])
def test_a_users_text_is_shown_as_text(name: str, seen: str, tmp_path: Path) -> None:
    names = {"model": name, "task": name, "source_name": name, "decoder": name, "base": name, "k": name}
    text = text_of(side_by_side([measured(HAND, **names), measured(HAND)]), 200)
    assert text.count(seen) >= 5
    assert "\x1b" not in text
    stream = io.StringIO()
    job = JobReport(0, "failed", [f"model.name={name}"], f"/nowhere/{name}", error=name)
    report_sweep(tmp_path / name.replace("/", ""), [job], [], f"decoder:{name}", stream)
    *shown, last = stream.getvalue().splitlines()
    assert sum(seen in line for line in shown) >= 2
    assert "\x1b" not in stream.getvalue()
    assert json.loads(last)["failed"] == 1


def test_a_long_name_is_broken_and_no_number_is_lost() -> None:
    long = "数" * 40 + "x" * 200
    text = text_of(side_by_side([measured(HAND, decoder=long), measured(HAND, model="m")]), 80)
    assert "…" not in text
    (row,) = [line for line in text.splitlines() if "321" in line and "数" in line]
    assert row.split()[1:] == ["8", "40", "25.0", "%", "3.50", "1.50", "321", "0.50", "s", "700", "2100"]


def test_a_table_that_cannot_be_drawn_costs_a_warning_and_not_the_json_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stream = io.StringIO()
    broken = {name: value for name, value in HAND.items() if name != "formula"}
    report_sweep(tmp_path, [JobReport(0, "finished", [], "f")], [measured(broken, tmp_path)], stream=stream)
    assert json.loads(stream.getvalue().splitlines()[-1])["table"][0]["tpf"] == 3.5
    assert "a table cannot be shown (KeyError: 'formula')" in caplog.text


def test_a_plain_text_is_printed_as_it_is() -> None:
    stream = io.StringIO()
    console_on(stream).print("[bold]:smile: 3[/v2]")
    assert stream.getvalue() == "[bold]:smile: 3[/v2]\n"
