"""Builds the walls around one solution and then becomes its interpreter.

Three processes: the outer one (in the judge's process namespace), the first process of the new namespace, and the
interpreter that runs the solution. When the first process of a process namespace ends, the kernel kills all others in
it, whatever session they moved to. Each wall that the kernel refuses is left out, and the judge is told which stand.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import sys
from pathlib import Path
from typing import Any

from tasks.sandbox import linux, private_root

STATUS_FD = 5
# Unprivileged ids that systems leave free; a number of its own for each sandbox makes the process limit its own.
FIRST_UID, UIDS = 61184, 4000


def main() -> None:
    linux.prctl(linux.PR_SET_PDEATHSIG, 9)
    config = json.loads(sys.argv[1])
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")  # should memory run out, this goes first
    layers = _new_namespaces(config["without"])
    first = os.fork()
    if first:
        _, status = os.waitpid(first, 0)
        os._exit(os.waitstatus_to_exitcode(status) & 0xFF)
    linux.prctl(linux.PR_SET_PDEATHSIG, 9)
    try:
        os._exit(_first_process(config, layers))
    except BaseException as error:
        os.write(2, f"launcher: {type(error).__name__}: {error}\n".encode())
        os._exit(1)


def _first_process(config: dict[str, Any], layers: list[str]) -> int:
    folder, uid = private_root.SCRATCH, os.geteuid()
    if uid == 0 and "user" not in layers:
        uid = FIRST_UID + config["number"] % UIDS
    try:
        if "mount" not in layers:
            raise OSError("no mount namespace")
        private_root.enter(config["mount_point"], config["readable"], config["hidden"], uid)
        layers[layers.index("mount")] = "root"
        if uid != os.geteuid():
            layers.append("uid")
    except OSError:
        # Another user may not even be able to reach the interpreter, so the user stays, without any capability.
        folder, uid = config["scratch"], os.geteuid()
        layers = [layer for layer in layers if layer != "mount"] + _landlock(config, folder)
    _report({"layers": [*layers, "session", "rlimits"]})
    worker = os.fork()
    if not worker:
        _become_worker(config, folder, uid)
    return _wait(worker)


def _new_namespaces(without: list[str]) -> list[str]:
    """Root needs no user namespace; without one it can later become a user that nothing belongs to.

    `without` names walls to leave out: tests look at what the others still hold.
    """
    if "namespaces" in without:
        return []
    kinds = {
        "mount": linux.CLONE_NEWNS,
        "pid": linux.CLONE_NEWPID,
        "net": linux.CLONE_NEWNET,
        "ipc": linux.CLONE_NEWIPC,
        "uts": linux.CLONE_NEWUTS,
    }
    flags = sum(kinds.values())
    uid, gid = os.geteuid(), os.getegid()
    if uid == 0:
        try:
            linux.unshare(flags)
            return list(kinds)
        except OSError:
            pass  # a container: it may still have user namespaces
    try:
        linux.unshare(flags | linux.CLONE_NEWUSER)
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
        Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")
    except OSError:
        return []
    return ["user", *kinds]


def _landlock(config: dict[str, Any], folder: str) -> list[str]:
    if "landlock" in config["without"]:
        return []
    devices = ["/dev/null", "/dev/zero", "/dev/random", "/dev/urandom"]
    try:
        linux.landlock_restrict([*config["readable"], *devices[1:]], [folder, devices[0]])
    except OSError:
        return []
    return ["landlock"]


def _become_worker(config: dict[str, Any], folder: str, uid: int) -> None:
    try:
        os.setsid()
        linux.prctl(linux.PR_SET_PDEATHSIG, 9)
        os.chdir(folder)
        linux.drop_capabilities()
        if uid != os.geteuid():
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
        linux.prctl(linux.PR_SET_NO_NEW_PRIVS, 1)
        _set_limits(config["limits"])
        os.close(STATUS_FD)
        os.execve(config["python"], [config["python"], "-s", "-B", "-c", config["bootstrap"]], _environment(folder))
    except BaseException as error:
        os.write(2, f"launcher: {type(error).__name__}: {error}\n".encode())
    os._exit(1)


def _environment(folder: str) -> dict[str, str]:
    """All that the solution sees. Strings hash alike in every run, so that a set has one order and a verdict is final.

    `python -I` would ignore PYTHONHASHSEED; with no other variable set and no user site (-s) this is as isolated.
    """
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    here = {"HOME": folder, "TMPDIR": folder, "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"}
    return {**here, **threads, "PYTHONHASHSEED": "0", "PYTHONUTF8": "1"}


def _set_limits(limits: dict[str, Any]) -> None:
    memory, files = limits["memory_mb"] << 20, limits["file_mb"] << 20
    cpu = max(1, -(-int(limits["cpu_s"] * 1000) // 1000))
    for kind, soft, hard in (
        (resource.RLIMIT_CPU, cpu, cpu + 1),
        (resource.RLIMIT_AS, memory, memory),
        (resource.RLIMIT_FSIZE, files, files),
        (resource.RLIMIT_NOFILE, 256, 256),
        (resource.RLIMIT_NPROC, limits["processes"], limits["processes"]),
        (resource.RLIMIT_CORE, 0, 0),
        (resource.RLIMIT_MEMLOCK, 0, 0),
        (resource.RLIMIT_MSGQUEUE, 0, 0),
    ):
        _, most = resource.getrlimit(kind)
        if most != resource.RLIM_INFINITY:
            soft, hard = min(soft, most), min(hard, most)
        resource.setrlimit(kind, (soft, hard))


def _wait(worker: int) -> int:
    """Reaps whatever comes until the worker itself ends; returning ends the namespace and all that is in it."""
    while True:
        pid, status, usage = os.wait4(-1, 0)
        if pid == worker:
            code = os.waitstatus_to_exitcode(status)
            _report({"exit": code, "cpu_s": usage.ru_utime + usage.ru_stime, "rss_kb": usage.ru_maxrss})
            return 0


def _report(fact: dict[str, Any]) -> None:
    os.write(STATUS_FD, json.dumps(fact).encode() + b"\n")
