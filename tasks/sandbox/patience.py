"""How long the judge may compute over a reply: no longer than the program had time left.

It is counted in CPU time, for a busy machine should make no timeouts. A timer interrupts Python code; one call into C
code, which no timer interrupts, is ended by the kernel's limit, and the judge with it.
"""

from __future__ import annotations

import contextlib
import math
import resource
import signal
import time
from collections.abc import Iterator

from tasks.sandbox.ended import Ended

LEAST_S = 1.0  # also for the reply that came in the last moment
GRACE_S, GRACE_IN_C_S = 0.5, 1.0


@contextlib.contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Raises Ended inside the block when its time is up."""
    signal.signal(signal.SIGPROF, _out_of_time)
    allow(seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        _, hard = resource.getrlimit(resource.RLIMIT_CPU)
        resource.setrlimit(resource.RLIMIT_CPU, (hard, hard))


def allow(seconds: float) -> None:
    """So much CPU time from now on."""
    seconds = max(seconds, LEAST_S)
    signal.setitimer(signal.ITIMER_PROF, seconds + GRACE_S)
    soft = math.ceil(time.process_time() + seconds + GRACE_IN_C_S)
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (soft if hard == resource.RLIM_INFINITY else min(soft, hard), hard))


def _out_of_time(_signal: int, _frame: object) -> None:
    raise Ended("timeout", "comparing the results took too long")
