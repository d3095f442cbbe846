"""lm-eval's requests as a file of task=requests (tasks/requests.py).

The file is named by its content, so the same requests are the same run: one that was stopped goes on, a finished one is
read back. Whoever makes the run again needs the file and no lm-eval.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lopa_bench.system.storage import whole_file


@dataclass(frozen=True)
class Request:
    """One text to be continued. `id` is unique in its file; `origin` is what lm-eval calls it."""

    id: str
    context: str
    origin: Mapping[str, Any]


def write_requests(folder: Path, task: str, requests: Sequence[Request], stop: Sequence[str]) -> Path:
    """Writes a file of requests, unless it is there already. Raises StorageError."""
    shared = {"until": list(stop), "task": f"lm_eval_{task}"}
    rows = [shared | {"id": one.id, "context": one.context, "origin": dict(one.origin)} for one in requests]
    data = "".join(json.dumps(row, sort_keys=True) + "\n" for row in rows).encode()
    name = re.sub(r"[^\w.-]+", "_", task, flags=re.ASCII)[:100]
    path = folder / f"{name}-{hashlib.sha256(data).hexdigest()[:10]}.jsonl"
    if not (path.is_file() and path.read_bytes() == data):
        with whole_file(path) as file:
            file.write(data)
    return path
