"""Children of a process: named, watched, told how they ended, and gone when their parent is gone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from multiprocessing import Pipe

import numpy as np
import pytest

from lopa_bench.system.channel import Channel, Inbox
from lopa_bench.system.processes import Crew
from tests.warm import ROOT


def is_there(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"  # a zombie waits for somebody to ask
    except (FileNotFoundError, ProcessLookupError):
        return False


def gone(*pids: int) -> bool:
    """Whether these processes end in time."""
    end = time.monotonic() + 20
    while any(map(is_there, pids)) and time.monotonic() < end:
        time.sleep(0.01)
    return not any(map(is_there, pids))


def test_a_child_answers_has_its_own_environment_and_ends_with_its_crew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEVICE", "of the parent")
    with Crew() as crew:
        first = crew.start("first", "tests.crew_members:echo", {"DEVICE": "7"})
        second = crew.start("second", "tests.crew_members:echo", {"DEVICE": None})
        for child in (first, second):
            child.channel.send(values=[0.1, float("nan"), "ü\ud800"], none=None)
        said = [child.channel.receive() for child in (first, second)]
        assert [message["device"] for message in said] == ["7", None]
        assert [message["pid"] for message in said] == [first.pid, second.pid]
        assert said[0]["values"][0] == 0.1
        assert said[0]["values"][2] == "ü\ud800"
        assert first.is_alive
    assert gone(first.pid, second.pid)


@pytest.mark.parametrize(
    ("target", "number", "words"),
    [
        ("echo", signal.SIGKILL, "was killed by SIGKILL"),
        ("fail", None, "ended with status 1 (ValueError: no such weights)"),
        ("hang_up", None, "closed its channel"),
    ],
)
def test_how_a_child_ended_is_told_with_its_name(
    target: str, number: int | None, words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("lopa_bench.system.processes.GRACE_SECONDS", 1.0)
    with Crew() as crew:
        child = crew.start("worker 3", f"tests.crew_members:{target}")
        if number is not None:
            os.kill(child.pid, number)
        with pytest.raises(EOFError):
            child.channel.receive()
        assert child.ended() == words
        assert not child.is_alive
        with pytest.raises(EOFError):
            child.channel.send(do=1)
    if target == "fail":
        assert "[worker 3] half a word" in capsys.readouterr().err


def test_no_child_outlives_a_parent_that_is_killed_and_none_takes_ctrl_c() -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.crew_members"], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout
    pids = [int(pid) for pid in process.stdout.readline().split()]
    assert len(pids) == 2
    assert all(map(is_there, pids))
    process.kill()
    process.wait()
    process.stdout.close()
    assert gone(*pids)


def test_an_inbox_tells_messages_in_order_and_then_the_end() -> None:
    here, there = (Channel(connection) for connection in Pipe())
    ended: list[int] = []
    inbox = Inbox(there, lambda _: ended.append(1))
    here.send(n=1, numbers=np.array([1.5, 2.5]), one=np.int64(3))
    here.send(n=2)
    assert inbox.receive() == {"n": 1, "numbers": [1.5, 2.5], "one": 3}
    assert inbox.receive() == {"n": 2}
    assert inbox.receive(wait=False) is None
    assert not inbox.is_over
    here.close()
    assert inbox.receive() is None
    assert inbox.receive() is None
    assert (inbox.is_over, ended) == (True, [1])


def test_what_is_no_message_ends_a_channel() -> None:
    connection, there = Pipe()
    connection.send_bytes(b"\x80\x04not json")
    with pytest.raises(EOFError):
        Channel(there).receive()


def test_a_channel_that_is_closed_while_somebody_reads_it_is_over_for_both_ends() -> None:
    here, there = (Channel(connection) for connection in Pipe())
    inbox = Inbox(there)
    time.sleep(0.05)  # until its thread waits
    there.close()
    with pytest.raises(EOFError):
        here.receive()
    assert inbox.receive() is None
    for use in (there.receive, there.send):  # a thread that was between two reads comes to the same end
        with pytest.raises(EOFError):
            use()
