"""The process that judges one program. It reads a job from its input and writes the verdict to its output.

The program runs in a sandbox that this process starts and ends. What it can send here are values, and this process
alone has the expected ones, so a pass cannot be forged: not by exiting, patching, printing, or comparing equal to all.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import sys
import traceback
from typing import Any

from tasks.sandbox import patience
from tasks.sandbox.ended import Ended
from tasks.sandbox.inside.codec import BadValue
from tasks.sandbox.outputs import OutputsError
from tasks.sandbox.remote import Link, Missing, SolutionError
from tasks.sandbox.runner import STARTED
from tasks.sandbox.session import Session
from tasks.sandbox.suites import Failed, record_outputs, run_asserts, run_check, run_outputs
from tasks.sandbox.walls import linux

SUITES = {"asserts": run_asserts, "check": run_check, "outputs": run_outputs, "record": record_outputs}
JUDGE_MEMORY = 3 << 30


def main() -> None:
    linux.prctl(linux.PR_SET_PDEATHSIG, signal.SIGKILL)
    linux.prctl(linux.PR_SET_DUMPABLE, 0)  # no other process of this user may look into this one
    linux.prctl(linux.PR_SET_CHILD_SUBREAPER, 1)
    signal.signal(signal.SIGTERM, _told_to_stop)
    resource.setrlimit(resource.RLIMIT_AS, (JUDGE_MEMORY, JUDGE_MEMORY))
    job = json.load(sys.stdin)
    with contextlib.redirect_stdout(sys.stderr):  # a test may print
        verdict = judge(job)
    json.dump(verdict, sys.stdout)


def judge(job: dict[str, Any]) -> dict[str, Any]:
    """Runs the job's tests; a failure of the harness itself has the status "sandbox" and judges nothing."""
    progress: dict[str, Any] = {"passed": 0, "total": None, "parts": {}}
    try:
        session = Session(job["folder"], job["limits"], job["prefixes"], job["without"])
    except BaseException:
        return {"status": "sandbox", "detail": traceback.format_exc()[-2000:], **progress}
    os.write(1, STARTED)  # whatever goes wrong from now on, the program may have done
    try:
        status, text = _run(session, job, progress)
    except OutputsError as error:
        status, text = "sandbox", str(error)
    except Ended as end:
        status, text = end.status, end.text
    except BaseException:
        # Of all programs only the canonical one is above the suspicion of having made its judge fail.
        status = "sandbox" if job["suite"] == "record" else "error"
        text = f"its answers could not be judged: {traceback.format_exc()[-1500:]}"
    left = session.close()
    if left and status == "pass":
        status, text = "error", f"{left} of its processes could not be killed"
    return {
        "status": status,
        "detail": text,
        **progress,
        "layers": session.layers,
        "output_bytes": session.output_bytes,
        "output_capped": session.output_capped,
        "cpu_s": session.facts.get("cpu_s"),
        "rss_kb": session.facts.get("rss_kb"),
        "wall_s": session.seconds,
    }


def _run(session: Session, job: dict[str, Any], progress: dict[str, Any]) -> tuple[str, str]:
    try:
        with patience.limited(job["limits"]["wall_s"]):
            SUITES[job["suite"]](Link(session), job, progress)
            if session.stopped is not None:
                raise session.stopped
            session.look()
        return "pass", ""
    except Failed as failure:
        return "wrong", str(failure)
    except Missing as missing:
        return "missing", str(missing)
    except Ended as end:
        return end.status, end.text
    except SolutionError as error:
        return "error", str(error)
    except BadValue as error:
        return "error", f"the result cannot be read: {error}"
    except (MemoryError, RecursionError) as error:  # a result that is too much for the judge, too
        return ("memory" if isinstance(error, MemoryError) else "error"), f"{type(error).__name__} in the judge"


def _told_to_stop(_signal: int, _frame: object) -> None:
    raise Ended("error", "its judge was told to stop")
