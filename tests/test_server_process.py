"""Servers as processes: started and ended by a run, killed in the middle of one, and a real one of `transformers`."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from lopa_bench.backends.autoregressive import load_causal
from lopa_bench.backends.server.launch import free_port
from lopa_bench.errors import BackendError
from lopa_bench.records.reading import read_run, read_samples
from lopa_bench.settings.backend import LocalSettings
from lopa_bench.settings.config import Config
from tests.fake_server import Answer, generated, serving, whole
from tests.served_runs import MINI_AR, config_for, gold_text, run_served, samples_of

ROOT = Path(__file__).parents[1]


def launched(out: Path, *words: str, **settings: Any) -> Config:
    command = ["{python}", "-m", "tests.fake_process", *(words or ("{port}",))]
    more: dict[str, Any] = {"launch": True, "command": command, "env": {"PYTHONPATH": str(ROOT)}, "retries": 1}
    return config_for(out, None, **(more | settings))


def children() -> list[psutil.Process]:
    return [child for child in psutil.Process().children(recursive=True) if child.status() != psutil.STATUS_ZOMBIE]


def test_a_launched_server_is_awaited_keeps_its_log_and_ends_with_the_run(tmp_path: Path) -> None:
    before = children()
    result = run_served(launched(tmp_path))
    assert result.row["aggregates"]["accuracy"] == 1.0
    assert (result.folder / "server.log").exists()
    assert children() == before


def test_a_launched_server_ends_when_the_run_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = children()
    config = launched(tmp_path)
    monkeypatch.setattr("lopa_bench.run.runner._Runner._finish", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        run_served(config)
    assert children() == before


def test_a_server_that_does_not_start_is_told_with_the_end_of_its_log(tmp_path: Path) -> None:
    with pytest.raises(BackendError, match="ended with status 1 while it started: no such model: nowhere/nothing"):
        run_served(launched(tmp_path, "refuse"))


def test_a_server_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    before = children()
    config = launched(tmp_path, command=["{python}", "-c", "import time; time.sleep(60)"], startup_s=0.5)
    with pytest.raises(BackendError, match=r"no answer within backend.startup_s=0.5 s: it wrote nothing"):
        run_served(config)
    assert children() == before


def test_a_program_that_is_not_installed_is_named(tmp_path: Path) -> None:
    with pytest.raises(BackendError, match=r"backend.command: no_such_server is not installed here"):
        run_served(launched(tmp_path, command=["no_such_server", "{port}"]))


def test_what_would_not_reach_a_launched_server_is_refused(tmp_path: Path) -> None:
    config = launched(tmp_path)
    config.model.revision = "abc"
    with pytest.raises(BackendError, match=r"model.revision=abc would not reach a launched server; allowed: a merged"):
        run_served(config)


def test_end_ids_are_refused_for_a_server_which_ends_texts_by_itself(tmp_path: Path) -> None:
    config = launched(tmp_path)
    config.model.end_ids = [1]
    with pytest.raises(BackendError, match=r"model\.end_ids=\[1\] does not reach a server"):
        run_served(config)


def test_a_launched_server_that_dies_ends_the_run_with_what_it_answered(tmp_path: Path) -> None:
    mortal = launched(tmp_path, "{port}", "5", limit=8)
    with pytest.raises(BackendError, match=r"the server at http://127.0.0.1:\d+ is gone"):
        run_served(mortal)
    [folder] = (tmp_path / "runs").glob("2*")
    assert read_run(folder).to_pylist()[0]["status"] == "failed"
    rows = read_samples(folder).to_pylist()
    assert [row["finish_reason"] for row in rows] == ["eos"] * 5 + ["unreachable"]
    assert rows[-1]["correct"] is None


def test_killed_in_mid_run_the_rest_is_done_after_a_restart(tmp_path: Path) -> None:
    """The same command with a server at the same address again: six of eight samples are asked for anew."""
    port = free_port()
    served: list[int] = []

    def behave(number: int, attempt: int, body: dict[str, Any]) -> Answer:
        served.append(number)
        return whole(generated(gold_text(number)))

    def dying(number: int, attempt: int, body: dict[str, Any]) -> Answer:
        return behave(number, attempt, body) if number < 2 else Answer([b"{"], cut=True)

    config = config_for(tmp_path, f"http://127.0.0.1:{port}", limit=8, retries=0)
    with serving(dying, port):
        first = run_served(config)
    assert first.row["aggregates"]["finish_reasons"] == {"unreachable": 6, "eos": 2}
    with pytest.raises(BackendError, match="does not answer"):
        run_served(config_for(tmp_path, f"http://127.0.0.1:{port}", limit=8, retries=0))
    with serving(behave, port) as fake:
        fake._seen = dict.fromkeys(("a", "b"), (0, 0))  # problems 0 and 1 are not asked for again
        last = run_served(config_for(tmp_path, f"http://127.0.0.1:{port}", limit=8, retries=0))
    assert last.folder == first.folder
    assert [row["correct"] for row in samples_of(last)] == [True] * 8
    assert len(served) == 8


@pytest.mark.slow
def test_a_real_server_gives_the_ids_of_local_decoding(tmp_path: Path) -> None:
    """`transformers serve` with mini_ar, started by the run: every sample answered, tokens as its usage records say."""
    settings: dict[str, Any] = {
        "name": "openai", "prompt": "text", "timeout_s": 120.0, "launch": True, "startup_s": 300.0,
        "command": ["transformers", "serve", "{model}", "--host", "{host}", "--port", "{port}"],
        "env": {"OMP_NUM_THREADS": "1"},
    }  # fmt: skip
    config = config_for(tmp_path, None, limit=20, **settings)
    config.decoder.gen_length = 128
    served = samples_of(run_served(config))
    local_config = config_for(tmp_path, "http://unused", limit=20)
    local_config.decoder.gen_length = 128
    local_config.backend = LocalSettings(device="cpu", threads=1)
    local = samples_of(run_served(local_config))
    codec = load_causal(MINI_AR, local_config.backend).codec
    assert [row["finish_reason"] for row in served] == ["eos"] * 20
    for ours, theirs in zip(local, served, strict=True):
        assert codec.ids_of(theirs["completion"]) == ours["token_ids"][:-1]
        assert theirs["token_source"] == "usage"
        counts = ("prompt_tokens", "window_tokens", "eos_tokens", "content_tokens", "correct")
        assert [theirs[name] for name in counts] == [ours[name] for name in counts]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child that its parent has died")
def test_a_launched_server_does_not_outlive_a_run_that_is_killed(tmp_path: Path) -> None:
    script = (
        "from pathlib import Path; from tests.test_server_process import launched, run_served;"
        f"run_served(launched(Path({str(tmp_path)!r}), limit=500))"
    )
    harness = psutil.Popen(
        [sys.executable, "-c", script], cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    while not (servers := harness.children()) and harness.is_running():
        time.sleep(0.05)
    harness.kill()
    harness.wait()
    gone, alive = psutil.wait_procs(servers, timeout=10)
    assert (len(gone), alive) == (1, [])
