"""Several requests at once: how many are under way, when they are sent, and which numbers come of it."""

from __future__ import annotations

import time
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import pytest

from lopa_bench.engines.server import _arrivals
from lopa_bench.metrics.latency import load, percentiles
from lopa_bench.records import writing as records
from lopa_bench.records.schema import to_table
from tests.fake_server import Answer, generated, serving, whole
from tests.served_runs import config_for, gold_text, run_served, samples_of


def slow(number: int, attempt: int, body: dict[str, Any]) -> Answer:
    return whole(generated(gold_text(number)), delay_s=0.2)


def test_concurrency_is_what_it_says_and_speeds_are_those_of_the_wall_clock(tmp_path: Path) -> None:
    with serving(slow) as fake:
        result = run_served(config_for(tmp_path, fake.url, limit=9, concurrency=3))
    assert fake.most_under_way == 3
    numbers = result.row["aggregates"]
    assert 0.2 <= numbers["latency_s"] <= 1.05 * numbers["wall_s"] / 3, "a request's own, without its wait to be sent"
    assert numbers["wall_s"] >= 0.6
    assert numbers["tps"] == pytest.approx(9 * 4 / numbers["wall_s"])
    assert (numbers["tps_clock"], numbers["tps_server"]) == ("wall", None)
    assert numbers["requests_s"] == pytest.approx(9 / numbers["wall_s"])
    assert numbers["latency_percentiles_s"]["p50"] <= numbers["latency_percentiles_s"]["p99"]
    assert [row["problem_index"] for row in samples_of(result)] == list(range(9))


def test_scoring_takes_no_time_of_the_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests go on while answers are scored, and none is sent meanwhile if there is one at a time."""
    from tasks.gsm8k.task import Gsm8k

    judge = Gsm8k.score
    monkeypatch.setattr(Gsm8k, "score", lambda *arguments: time.sleep(0.3) or judge(*arguments))
    monkeypatch.setattr(records, "FLUSH_SAMPLES", 1)  # scored one by one
    with serving(slow) as fake:
        loaded = run_served(config_for(tmp_path, fake.url, limit=6, concurrency=3)).row["aggregates"]
        alone = samples_of(run_served(config_for(tmp_path, fake.url, limit=3)))
    assert 0.4 <= loaded["wall_s"] < 1.5, "two rounds of requests, not five verdicts more"
    sent = [row["sent_s"] for row in alone]
    assert all(later - earlier > 0.5 for earlier, later in pairwise(sent)), "a request and a verdict apart"


def test_one_at_a_time_is_the_default(tmp_path: Path) -> None:
    with serving(slow) as fake:
        result = run_served(config_for(tmp_path, fake.url, limit=3))
    assert fake.most_under_way == 1
    assert result.row["aggregates"]["tps_clock"] == "sample"


def test_arrivals_are_a_poisson_process_of_the_rate_and_the_same_for_a_seed() -> None:
    times = list(islice(_arrivals(4.0, seed=0), 4001))
    assert times == list(islice(_arrivals(4.0, seed=0), 4001))
    assert times != list(islice(_arrivals(4.0, seed=1), 4001))
    gaps = [after - before for before, after in pairwise(times)]
    assert sum(gaps) / len(gaps) == pytest.approx(0.25, rel=0.05)
    assert sum(gap > 0.25 for gap in gaps) / len(gaps) == pytest.approx(0.368, rel=0.1)  # 1/e, as gaps are exponential
    assert set(islice(_arrivals(None, seed=0), 5)) == {0.0}


def test_no_request_is_sent_before_it_arrives(tmp_path: Path) -> None:
    with serving(lambda number, *_: whole(generated(gold_text(number)))) as fake:
        config = config_for(tmp_path, fake.url, limit=3, concurrency=3, rate=8.0)
        sent = [row["sent_s"] for row in samples_of(run_served(config))]
    due = list(islice(_arrivals(8.0, config.run.seed), 3))
    assert due[2] > 0.1
    assert all(at >= wanted for at, wanted in zip(sent, due, strict=True))


def test_requests_that_could_not_be_sent_when_they_arrived_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(slow) as fake:
        result = run_served(config_for(tmp_path, fake.url, limit=4, concurrency=1, rate=1000.0))
    assert "3 of 4 requests were sent late" in capsys.readouterr().err
    sent = [row["sent_s"] for row in samples_of(result)]
    assert all(later - earlier >= 0.2 for earlier, later in pairwise(sent))


def _row(number: int, total_s: float | None, ttft_s: float | None, reason: str = "eos") -> dict[str, Any]:
    text = dict.fromkeys(("prompt", "completion", "answer_text", "gold"), "")
    return text | {
        "run_id": "r", "problem_id": str(number), "problem_index": number, "sample_index": 0, "finish_reason": reason,
        "scorer": "s", "score_status": "ok", "score_details": {}, "stop": [], "token_ids": [], "token_source": "usage",
        "batch": 1, "approximate": False, "total_s": total_s, "ttft_s": ttft_s,
    }  # fmt: skip


def test_goodput_counts_what_was_answered_within_every_limit() -> None:
    rows = [_row(0, 1.0, 0.1), _row(1, 1.0, 0.9), _row(2, 3.0, 0.1), _row(3, None, None, "timeout"), _row(4, 1.0, None)]
    samples = to_table("samples", rows)
    assert load(samples, wall_s=2.0) == {"requests_s": 2.0}
    assert load(samples, 2.0, slo_s=2.0)["good"] == 3
    both = load(samples, 2.0, slo_s=2.0, slo_ttft_s=0.5)
    assert (both["good"], both["goodput_s"]) == (1, 0.5), "a time that is not known is within no limit"


def test_percentiles_are_over_what_is_known() -> None:
    import numpy as np

    assert percentiles(np.array([np.nan])) is None
    assert percentiles(np.array([1.0, 2.0, 3.0, np.nan])) == {"p50": 2.0, "p95": 2.9, "p99": 2.98}
