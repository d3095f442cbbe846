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
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from tasks.sandbox import processes
from tasks.sandbox.walls import landlock, linux, private_root, seccomp

STATUS_FD = 5
# Unprivileged ids that systems leave free; a number of its own for each sandbox makes the process limit its own.
FIRST_UID, UIDS = 61184, 4000
SIGNALS = 1024  # that may wait, and timers


def main() -> None:
    linux.prctl(linux.PR_SET_PDEATHSIG, signal.SIGKILL)
    config = json.loads(sys.argv[1])
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", "ascii")  # should memory run out, this goes first
    layers = _new_namespaces(config["without"])
    linux.prctl(linux.PR_SET_DUMPABLE, 0)  # no process of this user may look into the launcher, or take from it
    first = os.fork()
    if first:
        _, status = os.waitpid(first, 0)
        os._exit(os.waitstatus_to_exitcode(status) & 0xFF)
    try:
        _first_process(config, layers)
    except BaseException as error:
        os.write(2, f"launcher: {type(error).__name__}: {error}\n".encode())
        os._exit(1)


def _first_process(config: dict[str, Any], layers: list[str]) -> NoReturn:
    end = _way_to_end(layers, config["without"])
    signal.signal(signal.SIGTERM, lambda *_: end())
    linux.prctl(linux.PR_SET_PDEATHSIG, signal.SIGTERM)
    linux.prctl(linux.PR_SET_CHILD_SUBREAPER, 1)
    folder, uid = private_root.SCRATCH, _uid(config, layers)
    try:
        if "mount" not in layers:
            raise OSError("no mount namespace")
        private_root.enter(config["mount_point"], config["readable"], config["hidden"], uid)
        layers[layers.index("mount")] = "root"
    except OSError:
        layers = [layer for layer in layers if layer != "mount"]
        folder, uid = config["scratch"], _reachable(config, uid)
    if uid != os.geteuid():
        layers.append("uid")
    worker = os.fork()
    if not worker:
        _become_worker(config, layers, folder, uid)
    _wait(worker)
    end()
    os._exit(0)


def _way_to_end(layers: list[str], without: list[str]) -> Callable[[], object]:
    """How the first process ends all that the program started, and itself."""
    if "pid" in layers:
        return lambda: os._exit(0)  # the kernel kills the others
    if "landlock" not in without and landlock.confine_signals():
        return _kill_domain
    return _kill_one_by_one


def _kill_domain() -> None:
    """From inside a domain a signal to everybody reaches what is in it, in one step that no fork is faster than."""
    with contextlib.suppress(OSError):
        os.kill(-1, signal.SIGKILL)
    os._exit(0)


def _kill_one_by_one() -> None:
    processes.kill_descendants()
    os._exit(0)


def _uid(config: dict[str, Any], layers: list[str]) -> int:
    own = os.geteuid() == 0 and "user" not in layers and "uid" not in config["without"]
    return FIRST_UID + config["number"] % UIDS if own else os.geteuid()


def _reachable(config: dict[str, Any], uid: int) -> int:
    """`uid`, if such a user can use the interpreter and the scratch folder where they lie; else this user.

    The latter stays without any capability.
    """
    if uid == os.geteuid():
        return uid
    there = [path for path in config["readable"] if os.path.exists(path)]
    try:
        os.chmod(os.path.dirname(config["scratch"]), 0o711)
        os.chown(config["scratch"], uid, uid)
    except OSError:
        return os.geteuid()
    child = os.fork()
    if not child:
        with contextlib.suppress(OSError):
            _become_user(uid)
            usable = [os.access(path, os.R_OK | os.X_OK * os.path.isdir(path)) for path in there]
            usable += [os.access(config["python"], os.X_OK), os.access(config["scratch"], os.W_OK | os.X_OK)]
            os._exit(0 if all(usable) else 1)
        os._exit(1)
    if os.waitpid(child, 0)[1] == 0:
        return uid
    os.chown(config["scratch"], os.geteuid(), os.getegid())
    return os.geteuid()


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
    if uid == 0 and "plain namespaces" not in without:
        try:
            linux.unshare(flags)
            return list(kinds)
        except OSError:
            pass  # a container: it may still have user namespaces
    try:
        linux.unshare(flags | linux.CLONE_NEWUSER)
        Path("/proc/self/setgroups").write_text("deny", "ascii")
        Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1", "ascii")
        Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1", "ascii")
    except OSError:
        return []
    return ["user", *kinds]


def _become_worker(config: dict[str, Any], layers: list[str], folder: str, uid: int) -> NoReturn:
    try:
        os.setsid()
        os.chdir(folder)
        linux.drop_capabilities()
        most = _most_tasks(config["limits"]["processes"], layers)
        if uid != os.geteuid():
            _become_user(uid)
        linux.prctl(linux.PR_SET_PDEATHSIG, signal.SIGKILL)
        linux.prctl(linux.PR_SET_NO_NEW_PRIVS, 1)
        _set_limits(config["limits"], most)
        if "root" not in layers:
            layers = layers + _landlock(config, folder)
        layers = layers + _seccomp(config["without"], layers)
        _report({"layers": [*layers, "session", "rlimits"], "uid": uid})
        os.close(STATUS_FD)
        os.execve(config["python"], [config["python"], "-s", "-B", "-c", config["bootstrap"]], _environment(folder))
    except BaseException as error:
        os.write(2, f"launcher: {type(error).__name__}: {error}\n".encode())
    os._exit(1)


def _become_user(uid: int) -> None:
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)


def _landlock(config: dict[str, Any], folder: str) -> list[str]:
    if "landlock" in config["without"]:
        return []
    devices = ["/dev/random", "/dev/urandom"]
    try:
        landlock.restrict([*config["readable"], *devices], [folder, "/dev/null"])
    except OSError:
        return []
    return ["landlock"]


def _seccomp(without: list[str], layers: list[str]) -> list[str]:
    if "seccomp" in without:
        return []
    alone = {"root", "net"} <= set(layers)  # sockets that have a path are reached through files
    kept_apart = "uid" in layers or ("landlock" in layers and landlock.version() >= 6)
    try:
        seccomp.install(seccomp.rules(os.getpid(), alone, [] if kept_apart else _ancestors()))
    except OSError:
        return []
    return ["seccomp"]


def _ancestors() -> list[int]:
    """What a program of the same user must not signal: the processes above it, their groups, and all at once."""
    found, pid = [], os.getppid()
    while pid > 0:
        found.append(pid)
        pid = processes.parent_of(pid) or 0
    groups = {processes.group_of(pid) or 1 for pid in found}
    return [*found, *(-group for group in groups | {1})]


def _most_tasks(allowed: int, layers: list[str]) -> int:
    """The kernel counts all tasks of a user (of one in a new namespace only those in there), so the others are added.

    There is room for a neighbour that starts as many; how many are of this program is looked at from outside.
    """
    if {"user", "uid"} & set(layers):
        return allowed
    return processes.tasks_of(os.geteuid()) + 2 * allowed


def _environment(folder: str) -> dict[str, str]:
    """All that the solution sees. Strings hash alike in every run, so that a set has one order and a verdict is final.

    `python -I` would ignore PYTHONHASHSEED; with no other variable set and no user site (-s) this is as isolated.
    """
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    here = {"HOME": folder, "TMPDIR": folder, "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"}
    return {**here, **threads, "PYTHONHASHSEED": "0", "PYTHONUTF8": "1"}


def _set_limits(limits: dict[str, Any], most_tasks: int) -> None:
    memory, files = limits["memory_mb"] << 20, limits["file_mb"] << 20
    cpu = max(1, -(-int(limits["cpu_s"] * 1000) // 1000))
    for kind, soft, hard in (
        (resource.RLIMIT_CPU, cpu, cpu + 1),
        (resource.RLIMIT_AS, memory, memory),
        (resource.RLIMIT_FSIZE, files, files),
        (resource.RLIMIT_NOFILE, 256, 256),
        (resource.RLIMIT_NPROC, most_tasks, most_tasks),
        (resource.RLIMIT_CORE, 0, 0),
        (resource.RLIMIT_MEMLOCK, 0, 0),
        (resource.RLIMIT_MSGQUEUE, 0, 0),
        (resource.RLIMIT_RTPRIO, 0, 0),
        (resource.RLIMIT_SIGPENDING, SIGNALS, SIGNALS),
    ):
        _, most = resource.getrlimit(kind)
        if most != resource.RLIM_INFINITY:
            soft, hard = min(soft, most), min(hard, most)
        resource.setrlimit(kind, (soft, hard))


def _wait(worker: int) -> None:
    """Reaps whatever comes until the worker itself ends."""
    while True:
        pid, status, usage = os.wait4(-1, 0)
        if pid == worker:
            code = os.waitstatus_to_exitcode(status)
            _report({"exit": code, "cpu_s": usage.ru_utime + usage.ru_stime, "rss_kb": usage.ru_maxrss})
            return


def _report(fact: dict[str, Any]) -> None:
    os.write(STATUS_FD, json.dumps(fact).encode() + b"\n")
