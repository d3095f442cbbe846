"""How much main memory a process may still take."""

from __future__ import annotations

from pathlib import Path

from lopa_bench.system.out_of_memory import group_folders

MEMINFO = Path("/proc/meminfo")


def available() -> int | None:
    """Bytes that this process can take without swapping: of the machine, and of each control group that it is in.

    None where the system does not say.
    """
    found = [left for folder in group_folders() if (left := _left(folder)) is not None]
    try:
        lines = dict(line.split(":", 1) for line in MEMINFO.read_text("ascii").splitlines())
        found.append(int(lines["MemAvailable"].split()[0]) * 1024)
    except (OSError, ValueError, KeyError):
        pass
    return min(found, default=None)


def _left(folder: Path) -> int | None:
    """What a control group has left, counting as free what the kernel can take back from its file cache."""
    try:
        most, taken = (folder / "memory.max").read_text("ascii"), (folder / "memory.current").read_text("ascii")
        lines = dict(line.split() for line in (folder / "memory.stat").read_text("ascii").splitlines())
        return max(0, int(most) - int(taken) + int(lines.get("inactive_file", "0")))
    except (OSError, ValueError):  # no such file, or "max": no limit
        return None
