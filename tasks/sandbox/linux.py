"""The few Linux system calls that the launcher needs and the standard library lacks, through ctypes."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable

CLONE_NEWNS = 0x00020000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

MS_RDONLY = 1
MS_NOSUID = 2
MS_NODEV = 4
MS_NOEXEC = 8
MS_REMOUNT = 32
MS_BIND = 4096
MS_REC = 16384
MS_PRIVATE = 1 << 18
MNT_DETACH = 2

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_CAPBSET_DROP = 24
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38
LAST_CAPABILITY = 63

# The numbers of these newer calls are the same on all architectures.
SYS_MOUNT_SETATTR = 442
SYS_LANDLOCK_CREATE_RULESET = 444
SYS_LANDLOCK_ADD_RULE = 445
SYS_LANDLOCK_RESTRICT_SELF = 446
AT_RECURSIVE = 0x8000
MOUNT_ATTR_RDONLY = 1
MOUNT_ATTR_NOSUID = 2
LANDLOCK_CREATE_RULESET_VERSION = 1
LANDLOCK_RULE_PATH_BENEATH = 1
LANDLOCK_READ = 1 << 0 | 1 << 2 | 1 << 3  # execute, read a file, read a folder
LANDLOCK_SCOPE = 1 << 0 | 1 << 1  # no abstract sockets of, and no signals to, processes outside
LANDLOCK_TCP = 1 << 0 | 1 << 1  # bind, connect

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def unshare(flags: int) -> None:
    _check(_libc.unshare(flags), "unshare")


def mount(source: str | None, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    arguments = [None if text is None else text.encode() for text in (source, target, kind, data)]
    result = _libc.mount(arguments[0], arguments[1], arguments[2], ctypes.c_ulong(flags), arguments[3])
    _check(result, f"mount {target}")


def make_read_only(path: str) -> None:
    """Makes a mount and all mounts below it read-only; inside a user namespace this cannot be taken back."""
    attributes = (ctypes.c_uint64 * 4)(MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID, 0, 0, 0)
    result = _libc.syscall(
        SYS_MOUNT_SETATTR, -100, path.encode(), AT_RECURSIVE, ctypes.byref(attributes), ctypes.sizeof(attributes)
    )
    _check(result, f"mount_setattr {path}")


def change_root(new_root: str) -> None:
    """Makes `new_root` (a mount point) the root and detaches the old one, so that nothing leads back to it."""
    os.chdir(new_root)
    _check(_libc.pivot_root(b".", b"."), "pivot_root")
    _check(_libc.umount2(b".", MNT_DETACH), "umount2")
    os.chdir("/")


def prctl(option: int, value: int) -> None:
    zero = ctypes.c_ulong(0)
    _check(_libc.prctl(option, ctypes.c_ulong(value), zero, zero, zero), f"prctl {option}")


def drop_capabilities() -> None:
    """Empties the bounding set: from the next execve on not even uid 0 has a capability."""
    for capability in range(LAST_CAPABILITY + 1):
        try:
            prctl(PR_CAPBSET_DROP, capability)
        except OSError:
            break  # EINVAL: the kernel has no more of them; EPERM: there is nothing to drop


def landlock_restrict(readable: Iterable[str], writable: Iterable[str]) -> int:
    """Limits this process and its children to these folders (and, where the kernel knows that, to no TCP and signals).

    Returns the ABI version that was used. Raises OSError where Landlock is missing.
    """
    abi = _check(
        _libc.syscall(SYS_LANDLOCK_CREATE_RULESET, None, ctypes.c_size_t(0), LANDLOCK_CREATE_RULESET_VERSION),
        "landlock",
    )
    everything = (1 << (13 if abi == 1 else 14 if abi == 2 else 15)) - 1
    attributes = (ctypes.c_uint64 * 3)(everything, LANDLOCK_TCP if abi >= 4 else 0, LANDLOCK_SCOPE if abi >= 6 else 0)
    size = ctypes.c_size_t(24 if abi >= 6 else 16 if abi >= 4 else 8)
    ruleset = _check(_libc.syscall(SYS_LANDLOCK_CREATE_RULESET, ctypes.byref(attributes), size, 0), "landlock")
    try:
        for path in readable:
            _allow(ruleset, path, LANDLOCK_READ & everything)
        for path in writable:
            _allow(ruleset, path, everything)
        prctl(PR_SET_NO_NEW_PRIVS, 1)
        _check(_libc.syscall(SYS_LANDLOCK_RESTRICT_SELF, ruleset, 0), "landlock_restrict_self")
    finally:
        os.close(ruleset)
    return abi


def _allow(ruleset: int, path: str, access: int) -> None:
    try:
        folder = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return  # a folder that does not exist needs no rule
    if not os.path.isdir(path):
        access &= 0b111 | 1 << 14  # a file takes only the rights that mean something for one
    rule = (access).to_bytes(8, "little") + folder.to_bytes(4, "little")
    try:
        result = _libc.syscall(SYS_LANDLOCK_ADD_RULE, ruleset, LANDLOCK_RULE_PATH_BENEATH, ctypes.c_char_p(rule), 0)
        _check(result, f"landlock rule for {path}")
    finally:
        os.close(folder)
