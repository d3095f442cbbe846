"""Signs that memory ran out."""

from __future__ import annotations

from pathlib import Path

CGROUP = Path("/sys/fs/cgroup")


def is_out_of_memory(error: BaseException) -> bool:
    """Python's own error, torch's for a device, and torch's for main memory, which has no type of its own."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    return isinstance(error, RuntimeError) and "can't allocate memory" in str(error)


def oom_kills() -> int:
    """How many processes the kernel has killed for memory here (control group, else machine); 0 if unknown."""
    for path in (*_group_files(), Path("/proc/vmstat")):
        try:
            lines = dict(line.split()[:2] for line in path.read_text("ascii").splitlines())
        except (OSError, ValueError):
            continue
        if "oom_kill" in lines:
            return int(lines["oom_kill"])
    return 0


def group_folders() -> list[Path]:
    """The control groups of this process, its own first."""
    try:
        group = Path("/proc/self/cgroup").read_text("utf-8", "surrogateescape").strip().rpartition(":")[2].lstrip("/")
    except OSError:
        return []
    return [CGROUP / group, CGROUP]


def _group_files() -> list[Path]:
    return [folder / "memory.events" for folder in group_folders()]
