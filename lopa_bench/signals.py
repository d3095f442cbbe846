"""Signals that ask a run to stop: it then flushes and says how to go on, as after Ctrl-C."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from typing import NoReturn

PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None  # loaded here, since a fork of threads must not load


class Stopped(KeyboardInterrupt):
    """Like Ctrl-C, from a batch system or a closed terminal."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.exit_code = 128 + number


def exit_code(stop: KeyboardInterrupt) -> int:
    return stop.exit_code if isinstance(stop, Stopped) else 130


def stop_on_signals() -> None:
    """SIGTERM and SIGHUP stop as Ctrl-C does; one that is ignored (nohup) stays ignored."""
    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _stop)


def _stop(number: int, _: object) -> NoReturn:
    raise Stopped(number)


def die_with_parent() -> None:
    """Linux: a job whose sweep is killed gets SIGTERM, so that it does not go on unseen."""
    parent = os.getppid()
    if LIBC is not None:
        LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:  # it died before the call
            os.kill(os.getpid(), signal.SIGTERM)
