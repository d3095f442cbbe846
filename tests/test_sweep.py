"""A sweep tells the truth about every job, and no job can harm another."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hydra import compose, initialize_config_module
from omegaconf import OmegaConf

from lopa_bench.entry import prepare
from lopa_bench.records.locks import Lock
from lopa_bench.records.reading import read_samples
from lopa_bench.records.writing import RunStore
from lopa_bench.settings.config import structured
from lopa_bench.sweep import jobs
from lopa_bench.sweep.jobs import JobReport, fill_in
from lopa_bench.sweep.multirun import Sweep, SweepTable, _expected, conclude
from lopa_bench.sweep.process import SETTINGS
from lopa_bench.system.processes import pass_on
from tests.test_records import run_row
from tests.warm import FAULTS, ROOT, Warm

FAULTY = ("task.name=faulty", "task.limit=4")


def heed_interrupts() -> None:
    """What a background shell starts ignores SIGINT; a test that sends it must not depend on that."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def start(*arguments: str, cwd: Path = ROOT) -> subprocess.Popen[str]:
    """The command itself: a sweep starts fresh interpreters, so this test does too."""
    return subprocess.Popen(
        [sys.executable, "-m", "lopa_bench", *arguments], cwd=cwd, env=os.environ | {"PYTHONPATH": str(FAULTS)},
        text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        preexec_fn=heed_interrupts,
    )  # fmt: skip


def record(out: Path) -> list[dict[str, Any]]:
    (path,) = (out / "sweeps").glob("*/sweep.parquet")
    return pq.ParquetFile(path).read().to_pylist()


def test_six_jobs_of_which_four_end_badly(settings: list[str], tmp_path: Path) -> None:
    faults = "fine,early-raise,early-exit,early-_exit,kill,also-fine"
    process = start("-m", *settings, *FAULTY, f"task.shots_style={faults}", f"run.out={tmp_path}")
    out, err = process.communicate(timeout=600)

    assert process.returncode == 1
    jobs = record(tmp_path)
    assert [job["status"] for job in jobs] == ["finished", "failed", "exited", "vanished", "killed", "finished"]
    assert [job["error"] for job in jobs] == [
        None,
        "RuntimeError: this fault was asked for",
        "sys.exit(0)",
        "the process ended with status 0 in the middle of the run and said nothing (os._exit?)",
        "killed by SIGKILL",
        None,
    ]
    assert [job["signal"] for job in jobs] == [None, None, None, None, 9, None]
    assert all(f"task.shots_style={fault}" in job["overrides"] for fault, job in zip(faults.split(","), jobs))
    assert all(job["seconds"] > 0 for job in jobs)
    for job in jobs:
        if job["status"] == "finished":
            assert read_samples(job["path"]).num_rows == job["n"] == 4
    first, last_one = (read_samples(job["path"])["token_ids"].to_pylist() for job in (jobs[0], jobs[5]))
    assert first == last_one  # no seed is carried over
    logs = [(Path(job["folder"]) / "job.log").read_text() for job in jobs]
    assert "in _raise" in logs[1]  # the traceback
    assert "SystemExit: 0" in logs[2]
    *table, last = out.splitlines()
    assert json.loads(last)["failed"] == 4
    assert json.loads(last)["runs"] == [jobs[0]["run_id"], jobs[5]["run_id"]]
    for job in jobs:
        assert any(line.startswith(f"{job['job']} ") and job["status"] in line for line in table)
    assert "[1] failed after" in err


@pytest.mark.slow
def test_fail_fast_starts_no_further_job_and_relative_paths_mean_the_launch_folder(
    settings: list[str], tmp_path: Path
) -> None:
    faults = "task.shots_style=fine,early-raise,also-fine"
    process = start("-m", *settings, *FAULTY, faults, "fail_fast=true", "run.out=here", cwd=tmp_path)
    process.communicate(timeout=600)
    assert process.returncode == 1
    jobs = record(tmp_path / "here")
    assert [job["status"] for job in jobs] == ["finished", "failed", "skipped"]
    assert read_samples(tmp_path / "here" / "runs" / jobs[0]["run_id"]).num_rows == 4


def test_ctrl_c_ends_the_sweep_and_the_job_keeps_its_rows(settings: list[str], tmp_path: Path) -> None:
    process = start("-m", *settings, *FAULTY, "task.limit=100", "task.shots_style=sleep,fine", f"run.out={tmp_path}")
    assert process.stderr
    for line in process.stderr:
        if line.startswith("[0] lopa"):
            break
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=600)
    assert process.returncode == 130
    assert [job["status"] for job in record(tmp_path)] == ["interrupted", "not_started"]
    assert "[0] stopped after" in err
    (run,) = (path for path in (tmp_path / "runs").iterdir() if path.is_dir())
    assert read_samples(run).num_rows >= 10


def test_wrong_settings_of_a_sweep_are_one_message_and_no_job(warm: Warm, settings: list[str], tmp_path: Path) -> None:
    done = warm.run("-m", *settings, "decoder.kk=0,1", f"run.out={tmp_path}")
    assert done.code == 2
    assert done.err.startswith("error: ")
    assert len(done.err.splitlines()) == 1
    assert not list(tmp_path.glob("sweeps/*/sweep.parquet"))


@pytest.mark.parametrize(
    ("code", "outcome", "oom", "status"),
    [
        (0, {"status": "finished"}, 0, "finished"),
        (1, {"status": "failed", "error": "ValueError: x"}, 0, "failed"),
        (1, {"status": "out_of_memory", "error": "MemoryError"}, 0, "out_of_memory"),
        (0, {"status": "exited", "error": "sys.exit(0)"}, 0, "exited"),
        (130, {"status": "interrupted"}, 0, "interrupted"),
        (2, {"status": "refused", "error": "lock"}, 0, "refused"),
        (0, None, 0, "vanished"),
        (-9, None, 0, "killed"),
        (-9, None, 1, "out_of_memory"),
        (-11, None, 1, "killed"),
        (-6, {"status": "finished"}, 0, "killed"),
        (-40, None, 0, "killed"),  # a signal without a name
        (3, {"status": "finished"}, 0, "failed"),
    ],
)
def test_ways_to_end_are_told_apart(code: int, outcome: Mapping[str, Any] | None, oom: int, status: str) -> None:
    report = JobReport(0, "running", [], "folder")
    fill_in(report, code, outcome, oom)
    assert report.status == status
    assert (report.error is None) == (status in ("finished", "interrupted"))


@pytest.mark.parametrize(
    ("fault", "status", "code"),
    [("early-memory", "out_of_memory", 1), ("early-interrupt", "interrupted", 130), ("early-exit", "exited", 1)],
)
def test_a_job_says_itself_how_it_ended(
    fault: str, status: str, code: int, settings: list[str], tmp_path: Path
) -> None:
    with _composed([*settings, *FAULTY, f"task.shots_style={fault}", f"run.out={tmp_path}"]) as config:
        (tmp_path / SETTINGS).write_text(OmegaConf.to_yaml(config, resolve=True))
    command = [sys.executable, "-m", "lopa_bench.sweep.child", str(tmp_path)]
    environment = os.environ | {"PYTHONPATH": str(FAULTS)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, preexec_fn=heed_interrupts)
    outcome = jobs.read_outcome(tmp_path)
    assert outcome
    assert (outcome["status"], done.returncode) == (status, code)


def test_a_job_whose_run_is_locked_is_refused_and_says_by_whom(tmp_path: Path) -> None:
    lock = Lock(tmp_path)
    script = f"from pathlib import Path; from lopa_bench.records.locks import Lock; Lock(Path({str(tmp_path)!r}))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT)
    assert f"Locked: {tmp_path}/.lock is held by process {os.getpid()} on" in done.stderr
    lock.release()
    assert subprocess.run([sys.executable, "-c", script], cwd=ROOT).returncode == 0


@pytest.mark.parametrize(
    ("argument", "values"),
    [
        ("decoder.k=0,2", ["decoder.k=0", "decoder.k=2"]),
        ("decoder.k=range(0,9,4)", ["decoder.k=0", "decoder.k=4", "decoder.k=8"]),
        ("task.source='a,b'", ["task.source='a,b'"]),  # quotes: one value with a comma
        ("task.source='k=8/test.jsonl'", ["task.source='k=8/test.jsonl'"]),
        ("task.source='C:/x: y'", ["task.source='C:/x: y'"]),
        ("task.source=k\\=8.jsonl", ["task.source='k=8.jsonl'"]),  # a backslash does without quotes
        ("run.shard=0/2,1/2", ["run.shard=0/2", "run.shard=1/2"]),
        ("+x=[1,2]", ["+x=[1,2]"]),  # a list is one value
        ("+x=[1,2],[3]", ["+x=[1,2]", "+x=[3]"]),
        ("'task.source=a b'", ["task.source='a b'"]),
    ],
)
def test_quoting_of_lists_commas_equal_signs_and_colons(argument: str, values: list[str]) -> None:
    """The arguments as a program gets them, behind the shell's own quotes (docs/sweeps.md)."""
    config = OmegaConf.create(
        {"hydra": {
            "sweeper": {"_target_": "hydra._internal.core_plugins.basic_sweeper.BasicSweeper", "params": None},
            "overrides": {"task": [argument.strip("'") if argument.startswith("'") else argument]},
        }}
    )  # fmt: skip
    found = [job[0] for job in _expected(config)]
    assert [_value(text) for text in found] == [_value(text) for text in values]


def _value(text: str) -> tuple[str, Any]:
    from hydra.core.override_parser.overrides_parser import OverridesParser

    (override,) = OverridesParser.create().parse_overrides([text])
    return override.get_key_element(), override.value()


def test_a_quoted_path_reaches_the_job_as_it_was_meant(warm: Warm, settings: list[str], tmp_path: Path) -> None:
    folder = tmp_path / "k=8, a: b"
    folder.mkdir()
    for name in ("test", "train"):
        text = (ROOT / "tasks" / "embedded" / f"gsm8k_{name}.jsonl").read_text()
        (folder / f"{name}.jsonl").write_text(text)
    arguments = [text for text in settings if not text.startswith("task.source")]
    done = warm.run(*arguments, "task.limit=2", f"task.source='{folder}/test.jsonl'", f"run.out={tmp_path}")
    assert (done.code, done.values["n"]) == (0, 2)


def test_a_sweep_never_mixes_with_the_jobs_of_another(warm: Warm, settings: list[str], tmp_path: Path) -> None:
    JobReport(0, "finished", [], str(tmp_path / "sweep" / "0")).write()
    done = warm.run("-m", *settings, "decoder.k=0,1", f"hydra.sweep.dir={tmp_path}/sweep")
    assert done.code == 2
    assert "holds the jobs of another sweep" in done.err


def test_two_sweeps_of_the_same_second_have_two_folders() -> None:
    folders = set()
    for _ in range(2):
        with _composed([]) as config:
            folders.add(config.hydra.sweep.dir.rpartition("-")[2])
    assert len(folders) == 2


def test_a_job_that_never_began_is_in_the_table(tmp_path: Path) -> None:
    JobReport(1, "finished", ["k=1"], str(tmp_path / "1")).write()
    JobReport(2, "running", ["k=2"], str(tmp_path / "2")).write()
    reports = Sweep(tmp_path, [["k=0"], ["k=1"], ["k=2"]]).jobs()
    assert [report.status for report in reports] == ["not_started", "finished", "vanished"]
    assert reports[0].overrides == ["k=0"]


@pytest.mark.parametrize(
    "name",
    ["a${b}", "${model.path}", "tau$0.9$k", "1e3", "null", "yes", "2026-01-01", "a: b # c", "[/x]", "数", "0x10", "~"],
)
def test_a_name_reaches_a_job_as_it_was_given(name: str) -> None:
    settings = structured("local")
    OmegaConf.update(settings, "model.name", name.replace("${", "\\${"))
    loaded = OmegaConf.merge(structured("local"), OmegaConf.create(jobs.as_given(settings)))
    assert OmegaConf.to_object(loaded).model.name == name  # a Config
    assert OmegaConf.to_container(loaded, resolve=True) == OmegaConf.to_container(settings, resolve=True)


def test_a_run_that_is_gone_at_the_end_of_its_sweep_costs_a_warning_and_not_the_json_line(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    for job in (0, 1):
        folder = tmp_path / "runs" / str(job)
        report = JobReport(job, "finished", [f"decoder.k={job}"], str(tmp_path / str(job)), path=str(folder))
        report.run_id, report.numbers = f"r{job}", {"preset": "effective", "formula": "f", "n": 1, "tpf": 2.0 + job}
        report.write()
    with RunStore(tmp_path / "runs" / "1") as store:
        store.write_run(run_row(run_id="r1", status="finished", k="1"))
    monkeypatch.setattr(SweepTable, "opened", Sweep(tmp_path))
    (tmp_path / "sweep.parquet").mkdir()  # nor can the record be written
    assert conclude() == 0
    values = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (values["runs"], [row["tpf"] for row in values["table"]]) == (["r0", "r1"], [3.0])
    assert "job 0 is not in the table: no run at" in caplog.text
    assert "sweep.parquet cannot be written" in caplog.text


def test_what_a_job_says_is_read_to_its_end_although_nothing_can_be_written() -> None:
    """A full pipe would hold the job up."""
    source = io.BytesIO(b"line\n" * 1000)
    with open("/dev/full", "wb", buffering=0) as log:
        pass_on(source, "0", log.write).join(20)
    assert source.read() == b""


class _composed:
    """The configuration as Hydra composes it from overrides."""

    def __init__(self, overrides: list[str]) -> None:
        self.overrides = overrides

    def __enter__(self) -> Any:
        prepare()
        self.context = initialize_config_module("conf", version_base="1.3")
        self.context.__enter__()
        return compose("config", self.overrides, return_hydra_config=not self.overrides)

    def __exit__(self, *error: Any) -> None:
        self.context.__exit__(*error)
