"""The process that runs math-verify, so that a formula which never ends or fills the memory harms nobody.

One JSON request a line on stdin, one JSON reply a line on stdout; see math_grader.py for the other end.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import resource
import signal
import sys
from typing import Any


def judge(gold: str, answer: str) -> dict[str, Any]:
    from math_verify import parse, verify

    # Both sides between dollar signs: in \boxed{}, math-verify does not read "28\%". Its own limits are off, since
    # they return False for a timeout, which would pass for a wrong answer.
    sides = [parse(f"${side}$", parsing_timeout=None, raise_on_error=True) for side in (gold, answer)]
    return {"status": "ok", "correct": bool(verify(*sides, timeout_seconds=None, raise_on_error=True))}


def reply_to(request: dict[str, Any]) -> dict[str, Any]:
    try:
        return judge(request["gold"], request["answer"])
    except Exception as error:  # sympy raises whatever it likes, MemoryError and RecursionError included
        return {"status": "error", "reason": f"{type(error).__name__}: {error}"[:200]}


def main() -> None:
    seconds, memory_bytes = int(sys.argv[1]), int(sys.argv[2])
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # libraries may print; stdout belongs to the replies
    logging.disable(logging.WARNING)
    import math_verify  # noqa: F401  (before the limit, and before "ready")

    with contextlib.suppress(ValueError, OSError):  # not every system has this limit
        resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    print('{"status": "ready"}', file=replies, flush=True)
    for line in sys.stdin:
        signal.alarm(seconds + 5)  # ends this process if the one that should stop it is gone
        print(json.dumps(reply_to(json.loads(line))), file=replies, flush=True)
        signal.alarm(0)


if __name__ == "__main__":
    main()
