"""A file system of the solution's own: the interpreter and the system's libraries, read-only, and a scratch folder.

Whatever else is on the machine (data sets, caches with expected answers, keys, the home folder) has no name in it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable

from tasks.sandbox.walls import linux, scratch

SCRATCH = "/scratch"
SCRATCH_OPTIONS = f"size={scratch.SIZE_MB}m,nr_inodes={scratch.ENTRIES}"
DEVICES = ("null", "random", "urandom")  # not "zero": to map it is memory that is in no process' count


def enter(mount_point: str, readable: Iterable[str], hidden: Iterable[str], uid: int) -> None:
    """Builds the new root on `mount_point` (an empty folder) and makes it the root of this process."""
    linux.mount(None, "/", None, linux.MS_REC | linux.MS_PRIVATE)
    linux.mount("tmpfs", mount_point, "tmpfs", linux.MS_NOSUID, "size=1m,mode=755")
    for path in _outermost(readable):
        _add(path, mount_point)
    for path in hidden:
        if os.path.isdir(mount_point + path):
            linux.mount("tmpfs", mount_point + path, "tmpfs", linux.MS_NOSUID, "size=4k,mode=755")
    os.mkdir(mount_point + SCRATCH)
    if not os.path.exists(mount_point + "/tmp"):  # unless an interpreter lives there
        os.symlink(SCRATCH, mount_point + "/tmp")
    os.mkdir(mount_point + "/dev")
    os.symlink(SCRATCH, mount_point + "/dev/shm")
    for name in DEVICES:
        _bind(f"/dev/{name}", f"{mount_point}/dev/{name}")
    _add_proc(mount_point)
    linux.make_read_only(mount_point)
    _add_scratch(mount_point, uid)
    linux.change_root(mount_point)


def _outermost(paths: Iterable[str]) -> list[str]:
    kept: list[str] = []
    for path in sorted({form for given in paths for form in (os.path.normpath(given), os.path.realpath(given))}):
        if os.path.lexists(path) and not any(path.startswith(above + "/") for above in kept):
            kept.append(path)
    return kept


def _add(path: str, mount_point: str) -> None:
    """Symbolic links are made anew (/lib -> usr/lib, a virtual environment's interpreter), the rest is bound."""
    os.makedirs(os.path.dirname(mount_point + path), exist_ok=True)
    if os.path.islink(path):
        os.symlink(os.readlink(path), mount_point + path)
    else:
        _bind(path, mount_point + path)


def _bind(source: str, target: str) -> None:
    if os.path.isdir(source):
        os.makedirs(target, exist_ok=True)
    else:
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o644))
    linux.mount(source, target, None, linux.MS_BIND | linux.MS_REC)


def _add_proc(mount_point: str) -> None:
    """Containers often forbid a fresh /proc; then there is none, which few programs notice."""
    os.mkdir(mount_point + "/proc")
    with contextlib.suppress(OSError):
        linux.mount("proc", mount_point + "/proc", "proc", linux.MS_NOSUID | linux.MS_NODEV | linux.MS_NOEXEC)


def _add_scratch(mount_point: str, uid: int) -> None:
    folder = mount_point + SCRATCH
    linux.mount("tmpfs", folder, "tmpfs", linux.MS_NOSUID | linux.MS_NODEV, f"{SCRATCH_OPTIONS},mode=700")
    os.chown(folder, uid, -1)
