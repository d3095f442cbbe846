"""What a run really ran on: versions, machine, revision of the code."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from lopa_bench import ROOT
from lopa_bench.system.libraries import RECORDED, installed


def product_version() -> str:
    """Version of this distribution; "unknown" when it runs from a folder that was never installed."""
    try:
        return version("lopa-bench")
    except PackageNotFoundError:
        return "unknown"


def versions() -> dict[str, str | None]:
    """Versions of the packages that a result can depend on."""
    return {"lopa-bench": product_version(), "python": platform.python_version()} | installed(RECORDED)


def version_line() -> str:
    """This program and what its results depend on, in a line."""
    others = ", ".join(f"{name} {number}" for name, number in versions().items() if number and name != "lopa-bench")
    return f"lopa_bench {product_version()} ({git_revision() or 'no git'}); {others}"


def host(device: str) -> dict[str, Any]:
    """The machine and, where there is one, the accelerator."""
    facts: dict[str, Any] = {
        "hostname": platform.node(),
        "machine": platform.machine(),
        "system": f"{platform.system()} {platform.release()}",
        "processor": _processor(),
        "cpus": os.cpu_count(),
        "gpu": None,
    }
    if device == "server":  # of the client; the server's own facts come from the server
        return facts
    import torch

    facts["threads"] = torch.get_num_threads()
    if device.startswith("cuda"):
        facts["gpu"] = torch.cuda.get_device_name(device)
        facts["gpus"] = torch.cuda.device_count()
        facts["cuda"] = torch.version.cuda
    return facts


def machine_name(facts: Mapping[str, Any]) -> str:
    """The machine of `host` in a line. Times that were taken on different ones do not add up to a speed."""
    parts = [facts["gpu"] or facts["processor"] or facts["machine"]]
    if facts.get("threads") is not None:
        parts.append(f"{facts['threads']} thread{'s' if facts['threads'] > 1 else ''}")
    if ranks := facts.get("ranks"):
        parts.append(f"{ranks['branch']} branch ranks")
    return f"{facts['hostname']} ({', '.join(parts)})"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor()


def git_revision() -> str | None:
    """Revision of the code, with "+changes" if the checkout differs from it; None outside a checkout."""
    if not (ROOT / ".git").exists():
        return None
    try:
        head = subprocess.run(
            ["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, timeout=5, check=True
        )
        dirty = subprocess.run(
            ["git", "status", "--porcelain", "-uno"], cwd=ROOT, capture_output=True, text=True, timeout=5
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return head.stdout.strip() + ("+changes" if dirty.stdout.strip() else "")
