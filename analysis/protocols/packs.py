"""The protocols of conf/experiment/protocol: their settings, and whether a run was made with them.

A pack's settings are read from its file and those of the choices that it names, and compared one by one with the
settings that a run recorded: what a run is called, and how it was started, is not asked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

import conf
from decoders import DecoderConfig, ScoreConfig, resolve_settings
from lopa_bench.records.runs import Run

CONF = Path(conf.__file__).parent
FOLDER = CONF / "experiment" / "protocol"
NAMES = tuple(sorted(path.relative_to(FOLDER).with_suffix("").as_posix() for path in FOLDER.rglob("*.yaml")))

OF_THE_MODEL = ("path", "lora", "add_bos", "end_ids")
OF_THE_TASK = ("name", "prompt_style", "shots", "shots_style", "scorer", "target")
UNSET: Mapping[str, Any] = {"add_bos": False, "shots_style": "keyed"}  # what a file that is silent means; else None


@dataclass(frozen=True)
class Pack:
    """The settings that a pack comes to; those of the decoder are resolved."""

    name: str
    decoder: DecoderConfig
    model: Mapping[str, Any]
    task: Mapping[str, Any]

    @property
    def _split(self) -> tuple[str, ...]:
        """A protocol on a part of a set is compared by it; on a whole set, a run on fewer problems says its n."""
        return ("rows",) if self.task.get("rows") else ()

    def fits(self, run: Run) -> bool:
        """Whether a run was made with these settings, on a benchmark's own problems and the weights that it names."""
        if run.source_kind == "embedded" or run.toy or run.is_server:
            return False
        theirs = run.config.get("decoder") or {}
        usual = asdict(DecoderConfig())  # of a run that is older than a setting
        same = all(theirs.get(name, usual[name]) == value for name, value in asdict(self.decoder).items())
        return (
            same
            and _same(self.model, run.config.get("model") or {}, OF_THE_MODEL)
            and _same(self.task, run.config.get("task") or {}, (*OF_THE_TASK, *self._split))
        )


def _same(ours: Mapping[str, Any], theirs: Mapping[str, Any], names: tuple[str, ...]) -> bool:
    return all(ours.get(name, UNSET.get(name)) == theirs.get(name, UNSET.get(name)) for name in names)


@lru_cache
def pack(name: str) -> Pack:
    """The pack at conf/experiment/protocol/<name>.yaml."""
    told = _read(FOLDER / f"{name}.yaml")
    chosen = {group.removeprefix("override /"): choice for part in told["defaults"] for group, choice in part.items()}
    model = _choice("model", chosen) | told.get("model", {})
    decoder = _choice("decoder", chosen) | told["decoder"]
    of_model = {f"${{model.{key}}}": model.get(key) for key in ("gen_length", "block_size", "attention", "grid")}
    settings = {key: of_model.get(value, value) if isinstance(value, str) else value for key, value in decoder.items()}
    settings |= {"score": ScoreConfig(**settings.get("score", {}))}
    return Pack(
        name, resolve_settings(DecoderConfig(**settings)), model, _choice("task", chosen) | told.get("task", {})
    )


def _choice(group: str, chosen: Mapping[str, str]) -> dict[str, Any]:
    return _read(CONF / group / f"{chosen[group]}.yaml")


def _read(path: Path) -> dict[str, Any]:
    return yaml.safe_load(path.read_text(encoding="utf-8"))
