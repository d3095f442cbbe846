"""What is told first when several things are missing, and where notes go."""

from __future__ import annotations

import socket

import pytest

from lopa_bench.errors import BackendError, CheckpointError
from lopa_bench.plan.plan import make_plan, warn_of_ignored
from tasks.types import TaskError
from tests.test_conf import composed

NO_DATA = "task.source=/nowhere/test.jsonl"


def closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_an_absent_server_is_told_before_data_that_cannot_be_had() -> None:
    url = f"http://127.0.0.1:{closed_port()}"
    config = composed("backend=openai", f"backend.url={url}", "model=mini_ar", NO_DATA)
    with pytest.raises(
        BackendError, match=rf"backend\.url={url} does not answer .*; allowed: the address of a running"
    ):
        make_plan(config, {})


def test_a_server_program_that_is_not_installed_is_told_before_data_that_cannot_be_had() -> None:
    launch = ["backend=vllm", "backend.launch=true", "backend.command=[no-such-program,serve]"]
    config = composed(*launch, "model=mini_ar", NO_DATA)
    with pytest.raises(BackendError, match=r"backend\.command: no-such-program is not installed here"):
        make_plan(config, {})


def test_with_a_server_that_is_there_the_data_are_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        config = composed("backend=openai", f"backend.url={url}", "model=mini_ar", NO_DATA)
        with pytest.raises(TaskError, match=r"/nowhere/test\.jsonl"):
            make_plan(config, {})


def test_a_bad_checkpoint_folder_is_told_before_data_that_cannot_be_had(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("checkpoint")
    with pytest.raises(CheckpointError):
        make_plan(composed("model=dream", f"model.path={folder}", NO_DATA), {})


def test_a_note_is_no_part_of_the_output(capsys: pytest.CaptureFixture[str]) -> None:
    warn_of_ignored(composed("decoder=d2f", "decoder.k=3"))
    out, err = capsys.readouterr()
    assert (out, err) == ("", "note: decoder.k=3 means nothing for decoder=d2f; it has no lookahead\n")
