"""Finished runs can be sent to a tracker afterwards: whole, once, and with nothing of their records touched."""

from __future__ import annotations

import glob
import importlib.util
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from lopa_bench.metrics.aggregate import aggregate
from lopa_bench.records.locks import Lock
from lopa_bench.records.reading import read_samples
from lopa_bench.records.writing import RunStore
from lopa_bench.settings.tracker import TrackerConfig
from lopa_bench.tracking import send as sending
from lopa_bench.tracking.making import outputs_of
from lopa_bench.tracking.mlflow import numbers_of
from lopa_bench.tracking.send import command
from lopa_bench.tracking.tracker import Guarded
from tests.import_graph import ROOT
from tests.test_records import run_row, sample, step


def has(package: str) -> pytest.MarkDecorator:
    missing = importlib.util.find_spec(package) is None
    return pytest.mark.skipif(missing, reason=f"{package} is not installed ([{package}])")


def write(out: Path, name: str, **changes: Any) -> Path:
    folder = out / "runs" / name
    with RunStore(folder) as store:
        for index in range(3):
            store.add(sample(index), [step(at) for at in range(2)])
    numbers = aggregate(read_samples(folder))
    row = run_row(run_id=name, config={"decoder": {"k": 8}}, status="finished", n=3, aggregates=numbers)
    RunStore(folder).write_run(row | changes)
    return folder


class Service(Guarded):
    """A service that keeps what it is told, and fails where it is asked to."""

    service, place, draws_steps = "Service", "here", True
    told: list[Any]

    def __init__(self, fails_at: str = "") -> None:
        super().__init__(patience=5.0)
        self.fails_at, self.told = fails_at, []

    def start(self, run: Mapping[str, Any]) -> None:
        self._run = self._guarded("start", lambda: self._tell("start", run["run_id"]))

    def sample(self, row: Mapping[str, Any]) -> None:
        self._on_run("log", lambda run: self._tell("log", row["problem_id"]))

    def finish(self, aggregates: Mapping[str, Any], tables: Mapping[str, Any]) -> None:
        rows = tables["samples"].num_rows, tables["steps"].num_rows
        self._on_run("finish", lambda run: self._tell("finish", aggregates["n"], *rows))

    def _tell(self, *words: Any) -> Any:
        if words[0] == self.fails_at:
            raise OSError("no route to host")
        self.told.append(words)
        return self


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Service:
    one = Service()
    monkeypatch.setattr(sending, "make_tracker", lambda config, folder, patience: one)
    return one


def send(out: Path, *words: str) -> int:
    return command(["send", *words, "tracker=wandb", "--out", str(out)])


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.rglob("*.parquet")}


def test_a_run_is_told_from_its_records_once(
    tmp_path: Path, service: Service, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write(tmp_path, "a")
    before = files(folder)
    assert send(tmp_path, "a", str(folder)) == 0  # the same run, named twice
    told = [("start", "a"), *(("log", f"p{index}") for index in range(3)), ("finish", 3, 3, 6)]
    assert service.told == told
    assert capsys.readouterr().out == "sent a to Service: here\n"
    assert send(tmp_path, "a") == 0
    assert service.told == told
    assert "a was sent to Service: here at 2" in capsys.readouterr().err
    assert send(tmp_path, "a", "--again") == 0
    assert service.told == told * 2
    assert files(folder) == before


@pytest.mark.parametrize("at", ["start", "log", "finish"])
def test_what_fails_is_one_line_and_can_be_sent_later(
    at: str, tmp_path: Path, service: Service, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write(tmp_path, "a")
    service.fails_at = at
    assert send(tmp_path, "a") == 1
    said = capsys.readouterr().err
    assert said == f"error: a was not sent: Service could not {at} (no route to host); its records are as they were\n"
    assert not (folder / "sent.json").exists()


def test_only_whole_finished_runs_are_sent_and_all_are_judged_first(
    tmp_path: Path, service: Service, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, "whole")
    write(tmp_path, "stopped", status="interrupted")
    write(tmp_path, "killed", status="running")
    write(tmp_path, "short", n=5)
    for name, reason in (
        ("stopped", "did not finish (interrupted)"),
        ("killed", "did not finish (killed)"),
        ("short", "is damaged"),
        ("nosuch", "names no single run"),
    ):
        assert send(tmp_path, "whole", name) == 2
        assert reason in capsys.readouterr().err
    assert service.told == []


def test_a_run_in_progress_is_named(tmp_path: Path) -> None:
    """Asked by another process: the lock is this one's."""
    folder = write(tmp_path, "a", status="running")
    lock = Lock(folder)
    words = ["send", "a", "tracker=wandb", "--out", str(tmp_path)]
    code = f"import sys; from lopa_bench.tracking.send import command; sys.exit(command({words!r}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    lock.release()
    assert (done.returncode, "a is still in progress" in done.stderr) == (2, True)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["a"], "send needs tracker=wandb"),
        (["tracker=wandb"], "send needs a run"),
        (["a", "tracker=wandb2"], "did you mean tracker.name=wandb?"),
        (["a", "tracker=wandb", "tracker.modus=online"], "did you mean tracker.mode=VALUE?"),
        (["a", "tracker=wandb", "tracker.uri=x"], "tracker.uri has no meaning here"),
        (["a", "tracker=wandb", "tracker.mode=disabled"], "sends nothing"),
    ],
)
def test_wrong_words_are_told(
    words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, "a")
    assert command(["send", *words, "--out", str(tmp_path)]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("name", ["mlflow", "tensorboard"])
def test_a_missing_package_is_named_before_a_run(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lopa_bench.settings.tracker.find_spec", lambda package: None)
    with pytest.raises(ValueError, match=rf"tracker={name} needs the package {name}.*pip install"):
        TrackerConfig(name=name).check()


def test_numbers_and_intervals_are_metrics_and_nothing_else() -> None:
    found = {
        "n": 3,
        "tpf": 1.5,
        "complete": True,
        "tpf_ci95": [1, 2],
        "note": "x",
        "latency_s": None,
        "stops": {"a": 1},
    }
    assert dict(numbers_of(found)) == {"n": 3.0, "tpf": 1.5, "tpf_ci95_low": 1.0, "tpf_ci95_high": 2.0}
    assert outputs_of(Path("/x/runs/a")) == Path("/x")


@has("tensorboard")
def test_tensorboard_reads_what_was_sent(tmp_path: Path) -> None:
    write(tmp_path, "a")
    assert command(["send", "a", "tracker=tensorboard", "--out", str(tmp_path)]) == 0
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.util.tensor_util import make_ndarray

    found = EventAccumulator(str(tmp_path / "tensorboard" / "a"))
    found.Reload()
    points = [(event.step, float(make_ndarray(event.tensor_proto))) for event in found.Tensors("run/n")]
    assert points == [(3, 3.0)]
    assert len(found.Tensors("running/tpf")) == 3
    assert command(["send", "a", "tracker=tensorboard", "--out", str(tmp_path), "--again"]) == 0
    assert len(glob.glob(str(tmp_path / "tensorboard" / "a-2" / "*"))) == 1


@has("mlflow")
@pytest.mark.slow
def test_mlflow_knows_a_run_that_it_has(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write(tmp_path, "a")
    words = ["send", "a", "tracker=mlflow", "tracker.project=mine", "--out", str(tmp_path)]
    assert command(words) == 0
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{tmp_path / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("mine")
    assert experiment is not None
    (run,) = client.search_runs([experiment.experiment_id])
    assert (run.info.status, run.data.metrics["n"], run.data.params["config.decoder.k"]) == ("FINISHED", 3.0, "8")
    assert list(json.loads((folder / "sent.json").read_text())) == [
        f"MLflow: sqlite:///{tmp_path / 'mlflow.db'}, experiment mine"
    ]
    (folder / "sent.json").unlink()
    assert command(words) == 0
    assert f"as {run.info.run_id}" in capsys.readouterr().err
    assert len(client.search_runs([experiment.experiment_id])) == 1
