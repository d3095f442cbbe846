"""A task that ends its process in a given way, for tests of what is left then.

`task.shots_style` names the fault. It happens when the task is made (`early-...`) or when the third sample is scored.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence

from tasks.gsm8k.task import Gsm8k
from tasks.types import Problem, Score, TaskConfig


def _raise() -> None:
    raise RuntimeError("this fault was asked for")


def _memory() -> None:
    raise MemoryError("this fault was asked for")


def _base(error: BaseException) -> None:
    raise error


FAULTS: dict[str, Callable[[], object]] = {
    "raise": _raise,
    "memory": _memory,
    "generator-exit": lambda: _base(GeneratorExit()),
    "cancelled": lambda: _base(asyncio.CancelledError()),
    "exit": lambda: sys.exit(0),
    "exit-256": lambda: sys.exit(256),
    "exit-3": lambda: sys.exit(3),
    "exit-text": lambda: sys.exit("this fault was asked for"),
    "_exit": lambda: os._exit(0),
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "interrupt": lambda: os.kill(os.getpid(), signal.SIGINT),
    "sleep": lambda: time.sleep(0.2),
}


class AnyName(tuple[str, ...]):
    """Styles of which every name is one."""

    def __contains__(self, name: object) -> bool:
        return True


class Faulty(Gsm8k):
    shots_styles = AnyName()

    def __init__(self, config: TaskConfig, embedded_default: bool) -> None:
        self.fault, config.shots_style = config.shots_style, "keyed"
        super().__init__(config, embedded_default)
        config.shots_style = self.fault
        self.scored = 0
        print(f"made by process {os.getpid()}")
        if self.fault.startswith("early-"):
            FAULTS[self.fault.removeprefix("early-")]()

    def score(self, problem: Problem, completion: str) -> Score:
        self.scored += 1
        if self.scored >= 3 and self.fault in FAULTS:
            FAULTS[self.fault]()
        return super().score(problem, completion)

    def score_all(self, pairs: Sequence[tuple[Problem, str]]) -> list[Score]:
        if self.fault == "slow":
            print(f"scoring {len(pairs)} together", file=sys.stderr, flush=True)
            time.sleep(0.5)
        return super().score_all(pairs)
