"""Samples are on disk before they are scored: whatever ends the scoring, none is decoded twice."""

from __future__ import annotations

import io
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lopa_bench.console.progress import Progress
from lopa_bench.metrics.aggregate import aggregate
from lopa_bench.records import writing as records
from lopa_bench.records.reading import read_run, read_samples
from lopa_bench.records.repair import read_back
from lopa_bench.records.schema import NOT_SCORED
from lopa_bench.records.writing import RunStore
from lopa_bench.run.judging import judge_part
from lopa_bench.system.signals import Stopped, held_back
from tasks.gsm8k.task import Gsm8k
from tasks.types import Score, TaskConfig, TaskError
from tests.scripted import Runs, generation, stop_at
from tests.test_records import sample, step
from tests.warm import FAULTS, Warm

JUDGE = Gsm8k.score


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runs:
    return Runs(tmp_path, monkeypatch)


class Scorer:
    """Judges as the task does, but for `then`, which happens at the `at`-th sample. `texts` are those it was given."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, at: int, then: Callable[[], Any]) -> None:
        self.at, self.then = at, then
        self.texts: list[str] = []
        monkeypatch.setattr(Gsm8k, "score", lambda task, problem, text: self.judge(task, problem, text))

    def judge(self, task: Gsm8k, problem: Any, text: str) -> Score:
        self.texts.append(text)
        if len(self.texts) == self.at:
            self.then()
        return JUDGE(task, problem, text)


def raises(error: BaseException) -> Callable[[], None]:
    def then() -> None:
        raise error

    return then


ENDS = [KeyboardInterrupt(), Stopped(signal.SIGTERM), SystemExit(0), TaskError("the grader is missing")]


@pytest.mark.parametrize("end", ENDS, ids=lambda end: type(end).__name__)
@pytest.mark.parametrize("limit", [5, 20])
def test_what_ends_the_scoring_loses_no_decode(
    runs: Runs, monkeypatch: pytest.MonkeyPatch, end: BaseException, limit: int
) -> None:
    scorer = Scorer(monkeypatch, at=3, then=raises(end))
    with pytest.raises(type(end)):
        runs.run(limit)
    found = read_samples(runs.folder)
    decoded = min(limit, 16)
    assert found["problem_index"].to_pylist() == list(range(decoded))
    assert found["answer_text"].to_pylist() == [f"{100 + index} 7 7" for index in range(decoded)]
    assert found["score_status"].to_pylist() == [NOT_SCORED] * decoded
    assert found["correct"].to_pylist() == [None] * decoded

    scorer.at, scorer.texts = 0, []
    result = runs.run(limit)
    assert len(runs.engines) == (1 if limit == 5 else 2), "no model is loaded for scores alone"
    assert runs.decoded == list(range(5)) if limit == 5 else [16, 17, 18, 19]
    assert scorer.texts == [f"{100 + index} 7 7" for index in range(limit)], "each is judged once"
    assert (result.row["status"], result.row["aggregates"]["judged"]) == ("finished", limit)


def test_rows_without_a_verdict_count_as_not_judged(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    Scorer(monkeypatch, at=3, then=raises(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        runs.run(5)
    numbers = aggregate(read_samples(runs.folder))
    assert (numbers["n"], numbers["judged"], numbers["unjudged"], numbers["accuracy"]) == (5, 0, 5, None)
    assert (numbers["complete"], numbers["pass_at"]) == (False, {})
    assert numbers["forwards"] == 15, "but they were decoded"


def test_the_text_is_on_disk_when_its_scoring_begins(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    on_disk: list[int] = []
    score_all = Gsm8k.score_all

    def looks(task: Gsm8k, pairs: Any) -> Any:
        on_disk.append(read_samples(runs.folder).num_rows)
        return score_all(task, pairs)

    monkeypatch.setattr(Gsm8k, "score_all", looks)
    runs.run(40)
    assert on_disk == [16, 32, 40]


def test_a_part_has_all_its_verdicts_or_none(tmp_path: Path) -> None:
    with RunStore(tmp_path) as store:
        for index in range(3):
            store.add(sample(index, correct=None, score_status=NOT_SCORED), [step()])
    (name,) = store.flushed
    assert read_back(tmp_path, "r").unscored == [name]
    store.replace(name, [row | {"correct": True, "score_status": "ok"} for row in store.rows(name)])
    assert read_back(tmp_path, "r").unscored == []
    assert read_samples(tmp_path)["correct"].to_pylist() == [True] * 3
    assert [path.name for path in (tmp_path / "samples").iterdir()] == [name]


def test_a_row_that_was_replaced_waits_for_no_verdict(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    store.add(sample(0, score_status=NOT_SCORED))
    store.add(sample(1))  # which keeps the part in use
    store.flush()
    store.add(sample(0))
    store.flush()
    assert read_back(tmp_path, "r").unscored == []


def test_ctrl_c_while_decoding_scores_what_there_is_and_a_second_one_leaves_it(
    runs: Runs, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    runs.before = stop_at(5, KeyboardInterrupt())
    scorer = Scorer(monkeypatch, at=2, then=raises(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        runs.run(10)
    assert read_samples(runs.folder)["score_status"].to_pylist() == [NOT_SCORED] * 5
    assert read_run(runs.folder)["status"].to_pylist() == ["interrupted"]
    assert f"stopped after 5 of 10 samples, kept in {runs.folder}" in capsys.readouterr().err
    scorer.at, runs.before = 0, lambda unit: None
    assert runs.run(10).row["n"] == 10
    assert runs.decoded == [5, 6, 7, 8, 9]


def test_ctrl_c_while_decoding_once_leaves_every_verdict(runs: Runs) -> None:
    runs.before = stop_at(5, KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        runs.run(10)
    assert NOT_SCORED not in read_samples(runs.folder)["score_status"].to_pylist()


def test_a_scorer_that_fails_while_a_run_stops_does_not_hide_why_it_stopped(
    runs: Runs, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    runs.before = stop_at(5, RuntimeError("out of luck"))
    Scorer(monkeypatch, at=2, then=raises(TaskError("the grader is missing")))
    with pytest.raises(RuntimeError, match="out of luck"):
        runs.run(10)
    assert read_run(runs.folder)["status"].to_pylist() == ["failed"]
    assert "warning: the grader is missing" in capsys.readouterr().err


@pytest.mark.parametrize("table", ["samples", "steps"])
def test_ctrl_c_during_a_flush_waits_until_both_files_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table: str
) -> None:
    write = records.write_table

    def interrupted(path: Path, rows: Any) -> None:
        if path.parent.name == table:
            signal.raise_signal(signal.SIGINT)
        write(path, rows)

    monkeypatch.setattr(records, "write_table", interrupted)
    store = RunStore(tmp_path)
    store.add(sample(), [step()])
    with pytest.raises(KeyboardInterrupt):
        store.flush()
    assert [len(list((tmp_path / name).glob("part-*.parquet"))) for name in ("samples", "steps")] == [1, 1]
    store.flush()
    assert len(list((tmp_path / "samples").iterdir())) == 1, "nothing is written twice"


def test_signals_that_are_held_back_come_once_and_after() -> None:
    done = []

    def interrupted() -> None:
        with held_back():
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)
            done.append("all")

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert done == ["all"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_kill_9_while_scoring_loses_no_decode(warm: Warm, settings: list[str], tmp_path: Path) -> None:
    faulty = ("task.name=faulty", "task.shots_style=kill", "task.limit=4", f"run.out={tmp_path}")
    done = warm.run(*settings, *faulty, env={"PYTHONPATH": str(FAULTS)})
    assert done.code == -signal.SIGKILL
    (folder,) = (path for path in (tmp_path / "runs").iterdir() if path.is_dir())
    assert read_samples(folder)["problem_index"].to_pylist() == [0, 1, 2, 3]
    again = warm.run(*settings, *faulty, env={"PYTHONPATH": str(FAULTS)})  # it kills itself again, but in scoring
    assert "0 of 4 samples are missing" in again.err


def test_the_scripted_decodes_are_what_the_rows_say(runs: Runs) -> None:
    runs.run(3)
    assert read_samples(runs.folder)["token_ids"].to_pylist() == [list(generation(index).ids) for index in range(3)]


def test_only_what_was_decoded_is_judged_and_by_its_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer is the text before the first stop string; a failed sample has none."""
    scorer = Scorer(monkeypatch, at=0, then=list)
    task = Gsm8k(TaskConfig(source="embedded", limit=2), embedded_default=True)
    with RunStore(tmp_path) as store:
        store.add(sample(0, correct=None, score_status=NOT_SCORED, completion="#### 4 STOP", answer_text="#### 4 "))
        store.add(sample(1, correct=None, score_status="not_decoded", finish_reason="error", answer_text=""))
    (name,) = store.flushed
    rows, judged = judge_part(store, task, name)
    assert scorer.texts == ["#### 4 "]
    assert [row["problem_id"] for row in judged] == ["p0"]
    assert [row["score_status"] for row in rows][1] == "not_decoded"
    assert read_samples(tmp_path)["score_status"].to_pylist() == [rows[0]["score_status"], "not_decoded"]
    assert rows[0]["score_status"] != NOT_SCORED


def test_progress_takes_verdicts_as_they_come_and_its_last_line_waits_for_them() -> None:
    stream = io.StringIO()
    waiting = [sample(index, correct=None, score_status=NOT_SCORED) for index in range(4)]
    with Progress(4, stream=stream) as progress:
        for row in waiting:
            progress.add(row)
        assert "4/4" not in stream.getvalue()
        progress.judged([row | {"correct": index == 0} for index, row in enumerate(waiting[:3])])
        progress.judged([waiting[3] | {"correct": None}])
    *_, last = stream.getvalue().splitlines()
    assert last.startswith("4/4 (100 %), accuracy 33.3 %")
    assert stream.getvalue().count("4/4") == 1


def test_a_server_s_failures_alone_end_the_progress_too() -> None:
    stream = io.StringIO()
    with Progress(1, stream=stream) as progress:
        progress.add(sample(0, correct=None, score_status="not_decoded", finish_reason="error"))
    assert stream.getvalue().startswith("1/1 (100 %), accuracy -")
