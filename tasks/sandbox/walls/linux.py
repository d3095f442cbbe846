"""The few Linux system calls that the launcher needs and the standard library lacks, through ctypes."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import signal
from collections.abc import Iterator

CLONE_NEWNS = 0x00020000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

MS_NOSUID = 2
MS_NODEV = 4
MS_NOEXEC = 8
MS_BIND = 4096
MS_REC = 16384
MS_PRIVATE = 1 << 18
MNT_DETACH = 2

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_SECCOMP = 22
PR_CAPBSET_DROP = 24
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38
LAST_CAPABILITY = 63
SECCOMP_MODE_FILTER = 2
SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_SPEC_ALLOW = 1, 4

# The number of this newer call is the same on all architectures.
SYS_MOUNT_SETATTR = 442
AT_RECURSIVE = 0x8000
MOUNT_ATTR_RDONLY = 1
MOUNT_ATTR_NOSUID = 2

libc = ctypes.CDLL(None, use_errno=True)


def check(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def unshare(flags: int) -> None:
    check(libc.unshare(flags), "unshare")


def mount(source: str | None, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    arguments = [None if text is None else text.encode() for text in (source, target, kind, data)]
    result = libc.mount(arguments[0], arguments[1], arguments[2], ctypes.c_ulong(flags), arguments[3])
    check(result, f"mount {target}")


def make_read_only(path: str) -> None:
    """Makes a mount and all mounts below it read-only; inside a user namespace this cannot be taken back."""
    attributes = (ctypes.c_uint64 * 4)(MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID, 0, 0, 0)
    result = libc.syscall(
        SYS_MOUNT_SETATTR, -100, path.encode(), AT_RECURSIVE, ctypes.byref(attributes), ctypes.sizeof(attributes)
    )
    check(result, f"mount_setattr {path}")


def change_root(new_root: str) -> None:
    """Makes `new_root` (a mount point) the root and detaches the old one, so that nothing leads back to it."""
    os.chdir(new_root)
    check(libc.pivot_root(b".", b"."), "pivot_root")
    check(libc.umount2(b".", MNT_DETACH), "umount2")
    os.chdir("/")


def prctl(option: int, value: int) -> None:
    zero = ctypes.c_ulong(0)
    check(libc.prctl(option, ctypes.c_ulong(value), zero, zero, zero), f"prctl {option}")


def drop_capabilities() -> None:
    """Empties the bounding set: from the next execve on not even uid 0 has a capability."""
    for capability in range(LAST_CAPABILITY + 1):
        try:
            prctl(PR_CAPBSET_DROP, capability)
        except OSError:
            break  # EINVAL: the kernel has no more of them; EPERM: there is nothing to drop


def system_call(number: int, *arguments: object) -> int:
    """Returns what the kernel does. Raises OSError."""
    return check(libc.syscall(number, *arguments), f"system call {number}")


class _Filter(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("rows", ctypes.c_void_p))


def set_filter(seccomp: int, rows: ctypes.Array[ctypes.c_char], count: int) -> None:
    """Installs a filter of system calls; `seccomp` is that call's number. Raises OSError.

    Old kernels would take a filtered process for one that needs costly precautions against speculation.
    """
    program = _Filter(count, ctypes.cast(rows, ctypes.c_void_p))
    try:
        system_call(
            seccomp, SECCOMP_SET_MODE_FILTER, ctypes.c_ulong(SECCOMP_FILTER_FLAG_SPEC_ALLOW), ctypes.byref(program)
        )
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOSYS):
            raise
        check(libc.prctl(PR_SET_SECCOMP, ctypes.c_ulong(SECCOMP_MODE_FILTER), ctypes.byref(program), 0, 0), "seccomp")


@contextlib.contextmanager
def seeing_as(uid: int) -> Iterator[None]:
    """Files and /proc as a user of that id sees them, for a root that lacks the capability to look into others."""
    libc.setfsgid(uid)
    libc.setfsuid(uid)
    try:
        yield
    finally:
        libc.setfsuid(os.geteuid())
        libc.setfsgid(os.getegid())
        prctl(PR_SET_DUMPABLE, 0)  # the kernel has reset these two
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
