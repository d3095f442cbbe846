"""The end of a sweep with `against`: every run beside one of them, problem by problem."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf
from rich.console import Console

from lopa_bench.console.paired import paired_table
from lopa_bench.errors import ConfigError
from lopa_bench.metrics.aggregate import aggregate
from lopa_bench.metrics.paired import baseline_first, compare_all
from lopa_bench.metrics.varied import Measured
from lopa_bench.records.reading import read_samples
from lopa_bench.records.writing import RunStore
from lopa_bench.settings.validate import validate
from lopa_bench.sweep.jobs import JobReport
from lopa_bench.sweep.report import report_sweep
from tests.test_conf import composed
from tests.test_records import measured, sample

CONF = Path(__file__).parents[1] / "conf"
N = 20


def made(root: Path, name: str, wrong: int, tokens: int, seconds: float = 1.0, **changes: Any) -> Measured:
    """A run of N problems of which the first `wrong` are not solved, `tokens` each in 10 forwards."""
    folder = root / name
    with RunStore(folder) as store:
        for i in range(N):
            counts = {"forwards": 10, "content_tokens": tokens, "total_s": seconds + 0.001 * i}
            store.add(sample(i, correct=i >= wrong, **counts) | {"run_id": name}, [])
    return measured(aggregate(read_samples(folder)), folder, run_id=name, status="finished", **changes)


@pytest.fixture
def runs(tmp_path: Path) -> list[Measured]:
    return [
        made(tmp_path, "fast", wrong=10, tokens=60, seconds=0.5, decoder="lopa", k="8"),
        made(tmp_path, "twin", wrong=0, tokens=10, decoder="ar", base=None, k=None, model="mini_ar"),
        made(tmp_path, "same", wrong=1, tokens=20, decoder="d2f", base=None, k="0"),
    ]


def test_the_baseline_comes_first_and_the_others_are_compared_with_it(runs: list[Measured]) -> None:
    ordered, found = baseline_first(runs, "decoder:ar")
    assert found
    assert [one.run.id for one in ordered] == ["twin", "fast", "same"]
    (_, fast), (_, same) = compare_all(ordered)
    assert (fast.accuracy.difference.value, fast.only_a_correct, fast.only_b_correct) == (-0.5, 10, 0)
    assert fast.mcnemar_p == pytest.approx(2 / 2**10)
    assert fast.adjusted_p == pytest.approx(4 / 2**10), "two tests: the smaller p counts twice"
    assert same.adjusted_p == same.mcnemar_p == 1.0
    assert fast.quantities["tpf"].ratio.value == pytest.approx(6.0)
    assert fast.quantities["tps"].ratio.value == pytest.approx(6 * 1.0095 / 0.5095)


def test_the_table_says_who_was_paired_with_whom(runs: list[Measured]) -> None:
    stream = io.StringIO()
    Console(file=stream, width=110).print(paired_table(baseline_first(runs, "decoder:ar")[0]))
    text = stream.getvalue()
    assert "paired with ar (mini_ar)" in text
    assert re.search(r"lopa k=8 on d2f +mini +20 +-50.0 pt +0.002 +0.004 +×6.00 +×11.9 +×0.50", text)
    assert re.search(r"d2f +mini +20 +-5.0 pt +1.000 +1.000", text)


def test_runs_on_other_problems_are_not_paired(tmp_path: Path, runs: list[Measured]) -> None:
    other = made(tmp_path, "other", wrong=0, tokens=1, task="mbpp", decoder="d2f", k="0")
    assert len(compare_all([*baseline_first(runs, "decoder:ar")[0], other])) == 2


def test_a_baseline_that_did_not_finish_is_told(runs: list[Measured], tmp_path: Path) -> None:
    jobs = [JobReport(0, "failed", ["decoder=ar"], str(tmp_path)), JobReport(1, "finished", [], str(tmp_path))]
    stream = io.StringIO()
    report_sweep(tmp_path, jobs, [runs[0], runs[2]], "decoder:ar", stream)
    assert "no run with decoder:ar has finished" in stream.getvalue()
    assert "paired with" not in stream.getvalue()


@pytest.mark.parametrize("against", ["ar", "decoder:", "speed:fast"])
def test_a_wrong_baseline_is_refused(against: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(f"against={against} is not allowed; allowed: NAME:VALUE")):
        validate(composed(f"against={against}"))


@pytest.mark.parametrize(
    "row", sorted(path.relative_to(CONF / "row").with_suffix("").as_posix() for path in (CONF / "row").rglob("*.yaml"))
)
def test_every_row_of_the_comparisons_is_valid(row: str) -> None:
    experiment = "compare/mini" if row.startswith("mini/") else "compare/qwen3_sglang"
    config = composed(f"+experiment={experiment}", f"+row={row}")
    validate(config)
    assert config.against == "decoder:ar"
    assert (
        config.decoder.name in row or (config.decoder.name == "ar" and "qwen3" in row) or config.decoder.name == "d2f"
    )
    sweep = OmegaConf.load(CONF / "experiment" / f"{experiment}.yaml")
    assert row in str(sweep.hydra.sweeper.params["+row"]).split(",")


@pytest.mark.parametrize(
    "other", [{"task": "math"}, {"source_sha256": "1" * 64}, {"scorer": "other"}, {"config": {"task": {"shots": 3}}}]
)
def test_runs_on_other_problems_prompts_or_scorers_are_left_out(other: dict[str, Any], tmp_path: Path) -> None:
    baseline, apart = made(tmp_path, "a", 0, 10), made(tmp_path, "b", 0, 20, **other)
    assert compare_all([baseline, apart]) == []
    assert [one.run.id for one, _ in compare_all([baseline, apart, made(tmp_path, "c", 0, 20)])] == ["c"]


def test_the_other_shards_of_a_union_are_paired_too(tmp_path: Path) -> None:
    baseline, part, whole = (made(tmp_path, name, 0, tokens) for name, tokens in (("a", 10), ("b", 20), ("c", 30)))
    half, other = (tmp_path / name for name in ("half", "other"))
    for folder, numbers_of in ((half, range(10)), (other, range(10, N))):
        with RunStore(folder) as store:
            for i in numbers_of:
                store.add(sample(i, forwards=10, content_tokens=40), [])
    union = Measured(replace(part.run, folders=(half, other)), part.numbers)
    assert [found.pairs for _, found in compare_all([baseline, union, whole])] == [N, N]
