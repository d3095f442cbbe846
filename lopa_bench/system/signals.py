"""Signals that ask a run to stop: it then flushes and says how to go on, as after Ctrl-C."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None  # loaded here, since a fork of threads must not load


class Stopped(KeyboardInterrupt):
    """Like Ctrl-C, from a batch system or a closed terminal."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.exit_code = 128 + number


def signal_name(number: int) -> str:
    """Of any signal that can end a process; most of those for real time have no name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def exit_code(stop: KeyboardInterrupt) -> int:
    return stop.exit_code if isinstance(stop, Stopped) else 130


class Exited(RuntimeError):
    """Something inside a run called sys.exit: the run is not complete, whatever status was asked for."""

    def __init__(self, end: SystemExit) -> None:
        super().__init__(f"sys.exit({end.code!r}) was called inside the run")
        self.exit_code = status_of(end)


def status_of(end: SystemExit) -> int:
    """The exit status of a process that sys.exit ends before its work is done: what was asked for, but never 0."""
    asked = end.code if isinstance(end.code, int) else 1
    return asked & 0xFF or 1  # the system keeps eight bits: 256 would be a success


def stop_on_signals() -> None:
    """SIGTERM and SIGHUP stop as Ctrl-C does; one that is ignored (nohup) stays ignored."""
    for number in _stopping()[1:]:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _stop)


@contextmanager
def held_back() -> Iterator[None]:
    """Ctrl-C and the signals that stop a run wait for the end of the block; one that came is raised then."""
    if threading.current_thread() is not threading.main_thread():  # signals reach the main thread alone
        yield
        return
    came: list[int] = []

    def note(number: int, _: object) -> None:
        came.append(number)

    before: dict[int, Any] = {n: signal.getsignal(n) for n in _stopping() if callable(signal.getsignal(n))}
    try:
        for number in before:
            signal.signal(number, note)
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    for number in came[:1]:
        signal.raise_signal(number)


def _stopping() -> list[int]:
    return [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


def _stop(number: int, _: object) -> NoReturn:
    raise Stopped(number)


def die_with_parent(number: int = signal.SIGTERM) -> None:
    """Linux: a process whose parent is killed gets this signal, so that it does not go on unseen."""
    parent = os.getppid()
    if LIBC is not None:
        LIBC.prctl(PR_SET_PDEATHSIG, number)
        if os.getppid() != parent:  # it died before the call
            os.kill(os.getpid(), number)
