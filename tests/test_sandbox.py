"""Each hostile or broken program gets its verdict in time, and leaves nothing behind."""

from __future__ import annotations

import multiprocessing
import time
from pathlib import Path
from typing import Any

import pytest

from tasks.sandbox import Limits, Verdict, run_job, run_jobs
from tasks.sandbox.runner import cores

SHORT = Limits(cpu_s=1, wall_s=6)
RIGHT = "return b * h / 2"


def tri_area_job(program: str) -> dict[str, Any]:
    return {
        "suite": "asserts",
        "program": program,
        "setup": [],
        "gold": "",
        "names": ["tri_area"],
        "optional_names": [],
        "tests": ["assert tri_area(4, 3) == 6", "assert tri_area(0, 9) == 0"],
    }


def judge(program: str, limits: Limits = SHORT, without: tuple[str, ...] = ()) -> Verdict:
    """The verdict on a program, which must come within the wall clock limit and two seconds (and the start)."""
    start = time.monotonic()
    verdict = run_job(tri_area_job(program), limits, without)
    assert verdict.wall_s < limits.wall_s + 2, verdict
    assert time.monotonic() - start < limits.wall_s + 30
    assert verdict.status != "sandbox", verdict.detail
    return verdict


def function(*body: str) -> str:
    return "def tri_area(b, h):\n" + "".join(f"    {line}\n" for line in body)


def alive(marker: str) -> bool:
    """Whether any process on this machine has the marker in its command line."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if marker.encode() in path.read_bytes():
                return True
        except OSError:
            continue
    return False


@pytest.mark.parametrize(
    ("program", "status"),
    [
        (function(RIGHT), "pass"),
        (function("return 6"), "wrong"),
        (function("return None"), "wrong"),
        (function("return 1 / 0"), "error"),
        (function("return input()"), "error"),
        (function("import no_such_module"), "error"),
        (function("return tri_area(b, h)"), "error"),
        ("def tri_area(b, h):\nreturn 6\n", "syntax"),
        ("tri_area = 6\x00", "syntax"),
        ("def triangle(b, h):\n    return b * h / 2\n", "missing"),
        ("raise ValueError\n" + function(RIGHT), "error"),
        (function("import os", "os.kill(os.getpid(), 11)"), "exit"),
    ],
)
def test_a_verdict_says_what_happened(program: str, status: str) -> None:
    assert judge(program).status == status


def test_the_main_block_does_not_run() -> None:
    assert judge(function(RIGHT) + "if __name__ == '__main__':\n    input()\n").status == "pass"


def test_tests_run_in_order_and_are_counted() -> None:
    verdict = judge(function("return 6"))
    assert (verdict.passed, verdict.total) == (1, 2)
    assert "tri_area(0, 9)" in verdict.detail


@pytest.mark.parametrize(
    "body",
    [
        ["return sum(range(10**12))"],
        ["while True:", "    pass"],
        ["while True:", "    try:", "        [x for x in range(10**9)]", "    except BaseException:", "        pass"],
        ["import signal", "signal.signal(signal.SIGXCPU, signal.SIG_IGN)", "while True:", "    pass"],
        ["import time", "time.sleep(10**6)"],
        ["import threading", "threading.Event().wait()"],
        ["import os", "os.read(3, 10**6)", "os.read(3, 1)"],  # takes the next request away from the worker
    ],
)
def test_an_endless_program_times_out(body: list[str]) -> None:
    assert judge(function(*body)).status == "timeout"


def test_endless_while_loading() -> None:
    assert judge("while True:\n    pass\n").status == "timeout"


def test_unbounded_allocation_has_a_status_of_its_own() -> None:
    limits = Limits(cpu_s=20, wall_s=30, memory_mb=512)
    assert judge(function("return bytearray(10**12)"), limits).status == "memory"
    assert judge(function("kept = []", "while True:", "    kept.append(bytearray(10**7))"), limits).status == "memory"


def test_processes_together_stay_below_the_memory_limit() -> None:
    hoard = ["import os, time", "for _ in range(20):", "    if os.fork() == 0:"]
    hoard += ["        kept = b'x' * (150 << 20)", "        time.sleep(60)", "        os._exit(0)", "time.sleep(60)"]
    limits = Limits(cpu_s=20, wall_s=30, memory_mb=512)
    assert judge(function(*hoard), limits).status == "memory"


def test_two_hundred_forks_end_with_the_verdict() -> None:
    body = ["import os", "for _ in range(200):", "    if os.fork() == 0:"]
    body += ["        os.execv('/usr/bin/env', ['env', 'sleep', '61.2001'])", "return b * h / 2"]
    assert judge(function(*body)).status == "error"  # not so many are allowed
    assert not alive("61.2001")


@pytest.mark.parametrize("without", [(), ("namespaces",)])
def test_a_child_that_left_the_session_and_holds_stdout_is_gone(without: tuple[str, ...]) -> None:
    body = ["import subprocess", "subprocess.Popen(['sleep', '61.3001'], start_new_session=True)", RIGHT]
    verdict = judge(function(*body), without=without)
    assert verdict.status == "pass", verdict
    assert verdict.wall_s < 3
    assert not alive("61.3001")


def test_much_output_is_capped_and_flagged() -> None:
    verdict = judge(function("print('x' * (50 << 20))", RIGHT), Limits(cpu_s=5, wall_s=10))
    assert verdict.status == "pass"
    assert verdict.output_capped
    assert verdict.output_bytes > 50 << 20


def test_output_may_be_any_bytes() -> None:
    verdict = judge(function("import sys", "sys.stdout.buffer.write(bytes([255, 254]))", "sys.stdout.flush()", RIGHT))
    assert (verdict.status, verdict.output_bytes >= 2, verdict.output_capped) == ("pass", True, False)


def test_changing_to_the_root_folder_harms_nothing() -> None:
    assert judge(function("import os", "os.chdir('/')", RIGHT)).status == "pass"


def test_a_result_that_is_too_large_is_an_error_and_not_a_pass() -> None:
    assert judge(function("return 'x' * (40 << 20)"), Limits(cpu_s=5, wall_s=10)).status == "error"


def test_a_scratch_folder_is_there_and_bounded() -> None:
    assert judge(function("open('note', 'w').write('x')", "assert open('note').read() == 'x'", RIGHT)).status == "pass"
    assert judge(function("open('big', 'wb').write(bytes(40 << 20))", RIGHT)).status in ("error", "exit")


def test_a_good_program_passes_ten_times_while_the_machine_is_busy() -> None:
    burners = [multiprocessing.get_context("spawn").Process(target=_burn, daemon=True) for _ in range(4)]
    for burner in burners:
        burner.start()
    try:
        jobs = [(tri_area_job(function("sum(range(10**6))", RIGHT)), Limits()) for _ in range(10)]
        assert [verdict.status for verdict in run_jobs(jobs)] == ["pass"] * 10
    finally:
        for burner in burners:
            burner.kill()
            burner.join()


@pytest.mark.slow
@pytest.mark.alone  # loads all cores
def test_a_program_that_waits_for_its_turn_does_not_time_out() -> None:
    """It needs more of the wall clock than the limit, and much less CPU time than that."""
    burners = [multiprocessing.get_context("spawn").Process(target=_burn, daemon=True) for _ in range(2 * cores())]
    for burner in burners:
        burner.start()
    try:
        needs = function("import time", "while time.process_time() < 1.2: pass", RIGHT)
        verdict = run_job(tri_area_job(needs), Limits(cpu_s=5, wall_s=2))
        assert (verdict.status, verdict.wall_s > 1.2) == ("pass", True)
    finally:
        for burner in burners:
            burner.kill()
            burner.join()


def _burn() -> None:
    while True:
        pass


def test_strings_hash_alike_in_every_run() -> None:
    """So a set of texts has one order; of twelve there are 479 million."""
    program = function("raise ValueError(''.join({f'<{n}>' for n in range(12)}))")
    first = judge(program).detail
    assert sorted(first.removeprefix("ValueError: ")) == sorted("".join(f"<{n}>" for n in range(12)))
    assert judge(program).detail == first
