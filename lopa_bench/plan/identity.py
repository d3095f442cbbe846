"""What makes two runs the same run: everything that changes a result, hashed into a key.

Every setting counts, but for those in CHANGES_NO_ROW. `run.batch`, `run.warmup` and the threads change no id on an
exact backend but every time, so a run with another value is another run.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

from decoders import UNMASKED
from lopa_bench import ROOT
from lopa_bench.errors import CheckpointError
from lopa_bench.models.checkpoint.folders import locate
from lopa_bench.models.device import device_kind
from lopa_bench.plan.checksums import texts_sha256, weights_sha256
from lopa_bench.plan.users_code import target_facts, targets
from lopa_bench.settings.backend import BackendSettings, LocalSettings, ServerSettings
from lopa_bench.settings.config import Config
from lopa_bench.settings.model import ModelSettings
from lopa_bench.system.environment import product_version
from lopa_bench.system.libraries import DECISIVE, installed
from tasks.base import Task
from tasks.types import Problem, Prompt

ASKED_PATIENTLY = "how often and how patiently a server is asked changes no answer"
SHARED_BY_RANKS = "how many processes share a decode, and how, changes its times and no id; rows say how many did"
DEFAULT_OF_DECODERS = "what decoders take if they are not told; the decoder's own setting counts"
CHANGES_NO_ROW: Mapping[str, str] = {
    "run.out": "where rows are written",
    "run.devices": "who decodes; rows say how many did at once",
    "run.same_devices": "which earlier rows are taken",
    "run.stall_s": "how patiently a worker is waited for changes no row",
    "run.preset": "how rows are counted when they are read",
    "run.progress": "what the terminal shows meanwhile",
    "run.json": "what it shows at the end",
    "model.gen_length": DEFAULT_OF_DECODERS,
    "model.block_size": DEFAULT_OF_DECODERS,
    "model.attention": DEFAULT_OF_DECODERS,
    "model.grid": DEFAULT_OF_DECODERS,
    "backend.startup_s": ASKED_PATIENTLY,
    "backend.timeout_s": ASKED_PATIENTLY,
    "backend.retries": ASKED_PATIENTLY,
    "backend.backoff_s": ASKED_PATIENTLY,
    "backend.key_env": "who pays",
    "backend.slo_s": "what counts as good when rows are read",
    "backend.slo_ttft_s": "what counts as good when rows are read",
    "backend.branch_ranks": SHARED_BY_RANKS,
    "backend.branch_protocol": SHARED_BY_RANKS,
    "backend.branch_check": SHARED_BY_RANKS,
    "backend.link": SHARED_BY_RANKS,
    "backend.rank_timeout_s": SHARED_BY_RANKS,
    "tracker": "who is told",
    "objective": "what a sweeper makes of the numbers",
    "resume": "whether rows of an earlier run are taken",
    "fail_fast": "what a sweep does next",
    "keep_model": "whether a sweep loads the same model again",
    "against": "what a sweep compares at its end",
}
CODE = (
    "decoders",
    "tasks",
    "lopa_bench/engines",
    "lopa_bench/backends",
    "lopa_bench/models",
    "lopa_bench/run/completion.py",
    "lopa_bench/run/replies.py",
    "lopa_bench/run/rows.py",
    "lopa_bench/plan/units.py",
)


@dataclass(frozen=True)
class Identity:
    """`key` is that of the run, `union_key` the one that all shards of a run share; `facts` is what was hashed."""

    key: str
    union_key: str
    facts: Mapping[str, Any]
    weights_sha256: str


def identify(config: Config, task: Task, prompts: Iterable[tuple[Problem, Prompt]]) -> Identity:
    """The identity of a run with resolved decoder settings. Reads no weights that were read before, loads no torch."""
    model = model_facts(config)
    settings = {"decoder": asdict(config.decoder), "task": asdict(config.task)}
    libraries = (*task.libraries, *(("torchao",) if config.model.quantize else ()))
    facts: dict[str, Any] = {
        "model": model,
        "decoder": settings["decoder"],
        "task": settings["task"] | {"scorer": task.scorer, "stop": list(task.stop)},
        "source_sha256": task.source.sha256,
        "prompts_sha256": _prompts_sha256(prompts, with_rows=config.task.target is not None),
        "backend": _backend(config.backend),
        "run": _counted("run", config.run),
        "targets": {target: target_facts(target) for target in targets(settings)},
        "product": {"version": product_version(), "code_sha256": code_sha256()} | _libraries(libraries),
    }
    whole = {**facts, "run": {**facts["run"], "shard": None}, "prompts_sha256": None}  # a shard knows its own prompts
    return Identity(_hash(facts), _hash(whole), facts, model["weights_sha256"])


def network_key(config: Config, model: Mapping[str, Any]) -> str:
    """Whatever decides the numbers of a network that is loaded here, and where they lie: two runs that agree in it can
    share one. `model`: as in a run's facts.
    """
    kind = config.decoder.name if config.decoder.name in UNMASKED else "masked"
    return json.dumps([kind, model, asdict(config.backend)], sort_keys=True, default=str)


def model_facts(config: Config) -> dict[str, Any]:
    """What a run's key says of its model: the settings and the files."""
    model, backend = config.model, config.backend
    if isinstance(backend, LocalSettings):
        return _counted("model", model) | _files(model)
    return _counted("model", model) | _texts_for_server(model, backend)


def _counted(group: str, settings: Any) -> dict[str, Any]:
    """The settings of a group that change a row."""
    return {name: value for name, value in asdict(settings).items() if f"{group}.{name}" not in CHANGES_NO_ROW}


def _files(model: ModelSettings) -> dict[str, Any]:
    """The files behind the settings of a model that runs here."""
    assert model.path is not None
    folder = locate(model.path, model.revision)
    lora = locate(model.lora, model.lora_revision) if model.lora else None
    return {"weights_sha256": weights_sha256(folder, lora), "texts_sha256": texts_sha256(folder, lora)}


def check_unchanged(config: Config, identity: Identity) -> None:
    """After a model was loaded here: its files are still those that the key says. Raises CheckpointError."""
    if not isinstance(config.backend, LocalSettings):
        return
    now, before = _files(config.model), identity.facts["model"]
    if any(now[name] != before[name] for name in now):
        raise CheckpointError(
            f"the files of {' or '.join(filter(None, [config.model.path, config.model.lora]))} were changed while they "
            "were loaded; allowed: the same command once nothing writes to them"
        )


def _texts_for_server(model: ModelSettings, backend: BackendSettings) -> dict[str, Any]:
    """A server has the weights, and no two servers tell the same of them. Prompts are made here unless it is a chat."""
    assert isinstance(backend, ServerSettings)
    assert model.path is not None
    here = backend.api != "chat"
    texts = texts_sha256(locate(model.path, model.revision, weights=False)) if here else None
    return {"weights_sha256": "on the server", "texts_sha256": texts}


def _backend(backend: BackendSettings) -> dict[str, Any]:
    settings = _counted("backend", backend)
    if isinstance(backend, LocalSettings):
        return settings | {"device": device_kind(backend.device)}
    moved = {"url": None} if settings["launch"] else {}  # a launched server has a port of the moment
    return settings | {"device": "server"} | moved


def _prompts_sha256(prompts: Iterable[tuple[Problem, Prompt]], with_rows: bool) -> str:
    """`with_rows`: for a task whose source need not tell what is in its rows."""
    digest = hashlib.sha256()
    for problem, prompt in prompts:
        messages = [dict(message) for message in prompt.messages or ()]
        facts: list[Any] = [problem.id, problem.gold, prompt.text, messages]
        facts += [dict(problem.row)] if with_rows else []
        digest.update(json.dumps(facts, sort_keys=True, default=str).encode() + b"\n")
    return digest.hexdigest()


@lru_cache
def code_sha256() -> str:
    """Checksum of the source files that decide a result, so that a changed line of a decoder is a new run.

    The training of the embedded models decides nothing that the checksum of their weights does not show.
    """
    digest = hashlib.sha256()
    for part in CODE:
        path = ROOT / part
        for file in [path] if path.is_file() else sorted(path.rglob("*.py")):
            if "mini" not in file.parts:
                digest.update(f"{file.relative_to(ROOT)}\0".encode() + file.read_bytes() + b"\0")
    return digest.hexdigest()


def _libraries(further: Iterable[str]) -> dict[str, str | None]:
    """Versions that change a result; of Python the language, which programs are judged with."""
    language = {"python": f"{sys.version_info[0]}.{sys.version_info[1]}"}
    return language | installed((*DECISIVE, *further))


def _hash(facts: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(facts, sort_keys=True, default=str).encode()).hexdigest()
