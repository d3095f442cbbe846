"""The scratch folder of a program that has no file system of its own: how much it holds, and how it goes away.

A folder in memory has a size that the kernel keeps. One on a shared disk has none, so it is counted, with what was
written to it and has no name any more.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable

from tasks.sandbox.processes import is_ending

SIZE_MB, ENTRIES = 64, 4096  # private_root gives its own the same
BLOCK = 512


class TooMuch(Exception):
    """The folder holds more than it may; the text says of what."""


def check(folder: str, processes: Iterable[int], file_mb: int) -> None:
    """Raises TooMuch, or PermissionError where a process does not let itself be looked into.

    `file_mb` is what one file may hold: an unlinked file that is only mapped does not tell its size.
    """
    sizes = _named(folder)
    mapped: set[int] = set()
    for pid in processes:
        try:
            sizes.update(_open_without_name(pid))
            mapped |= _mapped_without_name(pid, folder)
        except (FileNotFoundError, ProcessLookupError):
            continue
        except PermissionError:
            if not is_ending(pid):
                raise
    known = {inode for _, inode in sizes}
    total = sum(sizes.values()) + len(mapped - known) * (file_mb << 20)
    if total > SIZE_MB << 20:
        raise TooMuch(f"the scratch folder holds {total >> 20} MB, and {SIZE_MB} are allowed")


def remove(folder: str) -> None:
    """Removes a folder whatever was done to it: folders without rights, and nested deeper than a path can be long."""
    waiting, number = [folder], 0
    while waiting:
        current = waiting.pop()
        with contextlib.suppress(OSError):
            os.chmod(current, 0o700)
            for entry in list(os.scandir(current)):
                with contextlib.suppress(OSError):
                    if not entry.is_dir(follow_symlinks=False):
                        os.unlink(entry.path)
                        continue
                    os.chmod(entry.path, 0o700)  # a folder without rights cannot be moved
                    waiting.append(entry.path)
                    if current != folder:
                        number += 1
                        waiting[-1] = os.path.join(folder, f".{os.getpid()}-{number}")
                        os.rename(entry.path, waiting[-1])
            if current != folder:
                os.rmdir(current)
    for name in _names(folder):
        with contextlib.suppress(OSError):
            os.rmdir(os.path.join(folder, name))
    with contextlib.suppress(OSError):
        os.rmdir(folder)


def _names(folder: str) -> list[str]:
    with contextlib.suppress(OSError):
        return os.listdir(folder)
    return []


def _named(folder: str) -> dict[tuple[int, int], int]:
    """The bytes on disk of each file, whatever number of names it has."""
    sizes: dict[tuple[int, int], int] = {}
    waiting, entries = [folder], 0
    while waiting:
        try:
            found = _scan(waiting.pop())
            entries += len(found)
            if entries > ENTRIES:
                raise TooMuch(f"the scratch folder holds more than {ENTRIES} files")
            for entry in found:
                with contextlib.suppress(FileNotFoundError):  # it has just gone
                    facts = entry.stat(follow_symlinks=False)
                    sizes[facts.st_dev, facts.st_ino] = facts.st_blocks * BLOCK
                    if stat.S_ISDIR(facts.st_mode):
                        waiting.append(entry.path)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise TooMuch(f"the scratch folder cannot be read: {os.strerror(error.errno or 0)}") from None
    return sizes


def _scan(folder: str) -> list[os.DirEntry[str]]:
    with contextlib.suppress(PermissionError):
        return list(os.scandir(folder))
    os.chmod(folder, 0o700)  # its owner took the right to read it away
    return list(os.scandir(folder))


def _open_without_name(pid: int) -> dict[tuple[int, int], int]:
    sizes = {}
    for number in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(FileNotFoundError):
            facts = os.stat(f"/proc/{pid}/fd/{number}")
            if stat.S_ISREG(facts.st_mode) and facts.st_nlink == 0:
                sizes[facts.st_dev, facts.st_ino] = facts.st_blocks * BLOCK
    return sizes


def _mapped_without_name(pid: int, folder: str) -> set[int]:
    with open(f"/proc/{pid}/maps", encoding="utf-8", errors="surrogateescape") as file:
        lines = [line.split(None, 5) for line in file if line.endswith(" (deleted)\n")]
    return {int(fields[4]) for fields in lines if len(fields) == 6 and fields[5].startswith(folder + "/")}
