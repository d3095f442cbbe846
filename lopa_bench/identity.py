"""What makes two runs the same run: everything that changes a result, hashed into a key.

Left out is what changes no row: where rows are written, how they are shown, who is told. `run.batch`, `run.warmup` and
the threads change no id on an exact backend but every time, so a run with another value is another run.
"""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from lopa_bench.backends.config import BackendSettings, LocalSettings
from lopa_bench.checksums import texts_sha256, weights_sha256
from lopa_bench.config import Config, ModelSettings
from lopa_bench.environment import product_version
from lopa_bench.models.folders import locate
from tasks.base import Problem, Prompt, Task

SILENT = ("out", "preset", "progress")  # settings of `run` that change no row
PATIENCE = (
    "startup_s",
    "key_env",
    "timeout_s",
    "retries",
    "backoff_s",
    "slo_s",
    "slo_ttft_s",
)  # of a server's settings
CODE = (
    "decoders",
    "tasks",
    "lopa_bench/engines",
    "lopa_bench/backends",
    "lopa_bench/models",
    "lopa_bench/completion.py",
    "lopa_bench/replies.py",
)
LIBRARIES = ("torch", "transformers", "tokenizers", "numpy")


@dataclass(frozen=True)
class Identity:
    """`key` is that of the run, `union_key` the one that all shards of a run share; `facts` is what was hashed."""

    key: str
    union_key: str
    facts: Mapping[str, Any]
    weights_sha256: str


def identify(config: Config, task: Task, prompts: Iterable[tuple[Problem, Prompt]]) -> Identity:
    """The identity of a run with resolved decoder settings. Reads no weights that were read before, loads no torch."""
    model = _model(config.model) if isinstance(config.backend, LocalSettings) else _served_model(config.model)
    facts: dict[str, Any] = {
        "model": model,
        "decoder": asdict(config.decoder),
        "task": asdict(config.task) | {"scorer": task.scorer, "stop": list(task.stop)},
        "source_sha256": task.source.sha256,
        "prompts_sha256": _prompts_sha256(prompts),
        "backend": _backend(config.backend),
        "run": {name: value for name, value in asdict(config.run).items() if name not in SILENT},
        "product": {"version": product_version(), "code_sha256": code_sha256()} | _libraries(),
    }
    whole = {**facts, "run": {**facts["run"], "shard": None}, "prompts_sha256": None}  # a shard knows its own prompts
    return Identity(_hash(facts), _hash(whole), facts, model["weights_sha256"])


def _model(model: ModelSettings) -> dict[str, Any]:
    """The settings that reach the network and the tokenizer, and the files behind them."""
    assert model.path is not None
    folder = locate(model.path, model.revision)
    lora = locate(model.lora, model.lora_revision) if model.lora else None
    defaults_of_decoders = ("gen_length", "block_size", "attention")  # they count as the decoder's settings
    settings = {name: value for name, value in asdict(model).items() if name not in defaults_of_decoders}
    return settings | {
        "weights_sha256": weights_sha256(folder, lora),
        "texts_sha256": texts_sha256(folder, lora),
    }


def _served_model(model: ModelSettings) -> dict[str, Any]:
    """A server has the weights, and no two servers tell the same of them."""
    return asdict(model) | {"weights_sha256": "on the server"}


def _backend(backend: BackendSettings) -> dict[str, Any]:
    """The settings; of a server not how often and how patiently it is asked, which changes no answer."""
    if isinstance(backend, LocalSettings):
        return asdict(backend) | {"device": device_kind(backend.device)}
    settings = {name: value for name, value in asdict(backend).items() if name not in PATIENCE} | {"device": "server"}
    return settings | ({"url": None} if settings["launch"] else {})  # a launched server has a port of the moment


def _prompts_sha256(prompts: Iterable[tuple[Problem, Prompt]]) -> str:
    digest = hashlib.sha256()
    for problem, prompt in prompts:
        facts = [problem.id, problem.gold, prompt.text, [dict(message) for message in prompt.messages or ()]]
        digest.update(json.dumps(facts).encode() + b"\n")
    return digest.hexdigest()


def device_kind(name: str) -> str:
    """cpu, cuda, mps or npu: what `backend.device` comes to here. Asks torch only if torch can have an accelerator."""
    if name != "auto":
        return name.partition(":")[0]
    if platform.system() == "Linux" and version("torch").endswith("+cpu"):
        return "cpu"
    import torch

    return "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"


@lru_cache
def code_sha256() -> str:
    """Checksum of the source files that decide a result, so that a changed line of a decoder is a new run.

    The training of the embedded models decides nothing that the checksum of their weights does not show.
    """
    root = Path(__file__).parents[1]
    digest = hashlib.sha256()
    for part in CODE:
        path = root / part
        for file in [path] if path.is_file() else sorted(path.rglob("*.py")):
            if "mini" not in file.parts:
                digest.update(f"{file.relative_to(root)}\0".encode() + file.read_bytes() + b"\0")
    return digest.hexdigest()


def _libraries() -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for name in LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = None
    return found


def _hash(facts: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(facts, sort_keys=True, default=str).encode()).hexdigest()
