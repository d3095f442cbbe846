"""Runs of the embedded word problems against a server, in this process."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

from decoders.config import DecoderConfig
from lopa_bench.records.reading import read_samples
from lopa_bench.records.runs import Run
from lopa_bench.run.runner import run
from lopa_bench.settings.backend import ServerSettings
from lopa_bench.settings.config import Config, RunSettings
from lopa_bench.settings.model import ModelSettings
from lopa_bench.settings.validate import validate
from tasks.registry import make_task
from tasks.types import TaskConfig

MINI_AR = ModelSettings(name="mini_ar", path="embedded:mini_ar", layout="causal", max_length=512, toy=True)


def config_for(out: Path, url: str | None, limit: int = 3, decoder: str = "ar", **backend: Any) -> Config:
    settings: dict[str, Any] = {"name": "sglang", "url": url, "backoff_s": 0.01, "timeout_s": 5.0} | backend
    settings.setdefault("api", "generate" if settings["name"] == "sglang" else "completions")
    layout = {} if decoder == "ar" else {"layout": None}
    return Config(
        decoder=DecoderConfig(name=decoder, gen_length=64),
        task=TaskConfig(name="gsm8k", source="embedded", limit=limit),
        model=ModelSettings(**{**vars(MINI_AR), **layout}),
        backend=ServerSettings(**settings),
        run=RunSettings(out=str(out), warmup=0, progress=False),
    )


def run_served(config: Config) -> Run:
    validate(config)
    return run(config, {})


def samples_of(result: Run) -> list[dict[str, Any]]:
    return read_samples(result.folder).to_pylist()


@lru_cache
def gold_text(number: int) -> str:
    """A right answer to the embedded problem of this number."""
    return str(
        make_task(TaskConfig(name="gsm8k", source="embedded"), embedded_default=True).problems[number].row["answer"]
    )
