"""Landlock: what a process that nobody gave a root of its own may still reach, through ctypes.

A domain holds for the process that enters it and for all that it starts, and domains nest.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable

from tasks.sandbox.walls import linux

SYS_CREATE_RULESET, SYS_ADD_RULE, SYS_RESTRICT_SELF = 444, 445, 446  # on all architectures
VERSION = 1
RULE_PATH_BENEATH = 1
READ = 1 << 0 | 1 << 2 | 1 << 3  # execute, read a file, read a folder
TCP = 1 << 0 | 1 << 1  # bind, connect
SCOPE_SOCKETS, SCOPE_SIGNALS = 1 << 0, 1 << 1  # no abstract sockets of, and no signals to, processes outside


def version() -> int:
    """Of the kernel's interface; 0 without Landlock."""
    try:
        return linux.system_call(SYS_CREATE_RULESET, None, ctypes.c_size_t(0), VERSION)
    except OSError:
        return 0


def confine_signals() -> bool:
    """Enters a domain out of which no signal leads, and nothing else is changed; False before Linux 6.12."""
    if version() < 6:
        return False
    _enter(_ruleset(0, 0, SCOPE_SIGNALS))
    return True


def restrict(readable: Iterable[str], writable: Iterable[str]) -> None:
    """Limits this process and its children to these folders (and, where the kernel knows that, to no TCP and signals).

    Raises OSError where Landlock is missing.
    """
    abi = version()
    everything = (1 << (13 if abi == 1 else 14 if abi == 2 else 15)) - 1
    ruleset = _ruleset(everything, TCP if abi >= 4 else 0, SCOPE_SOCKETS | SCOPE_SIGNALS if abi >= 6 else 0)
    for path in readable:
        _allow(ruleset, path, READ)
    for path in writable:
        _allow(ruleset, path, everything)
    _enter(ruleset)


def _ruleset(files: int, network: int, scope: int) -> int:
    attributes = (ctypes.c_uint64 * 3)(files, network, scope)
    size = ctypes.c_size_t(24 if scope else 16 if network else 8)
    return linux.system_call(SYS_CREATE_RULESET, ctypes.byref(attributes), size, 0)


def _enter(ruleset: int) -> None:
    try:
        linux.prctl(linux.PR_SET_NO_NEW_PRIVS, 1)
        linux.system_call(SYS_RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)


def _allow(ruleset: int, path: str, access: int) -> None:
    try:
        folder = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return  # a folder that does not exist needs no rule
    if not os.path.isdir(path):
        access &= 0b111 | 1 << 14  # a file takes only the rights that mean something for one
    rule = ctypes.c_char_p(access.to_bytes(8, "little") + folder.to_bytes(4, "little"))
    try:
        linux.system_call(SYS_ADD_RULE, ruleset, RULE_PATH_BENEATH, rule, 0)
    finally:
        os.close(folder)
