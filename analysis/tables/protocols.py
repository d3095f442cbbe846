"""Published protocols (conf/experiment/protocol) beside the runs that were made with their settings.

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
from analysis.labels import model_of, source_of
from analysis.study import Study, best
from analysis.tables.model import Head, Table
from analysis.tables.published import Row, number, rows
from analysis.text import plain, typeset
from decoders import DecoderConfig, ScoreConfig, resolve_settings
from lopa_bench.console.numbers import UNKNOWN, fixed, signed
from lopa_bench.records.runs import Run

CONF = Path(conf.__file__).parent
FOLDER = CONF / "experiment" / "protocol"
NAMES = tuple(sorted(path.relative_to(FOLDER).with_suffix("").as_posix() for path in FOLDER.rglob("*.yaml")))
FILE = "protocols"  # analysis/published/protocols.csv

OF_THE_MODEL = ("path", "lora", "add_bos", "end_ids")
OF_THE_TASK = ("name", "prompt_style", "shots", "shots_style", "scorer", "target")
UNSET: Mapping[str, Any] = {"add_bos": False, "shots_style": "keyed"}  # what a file that is silent means; else None
QUANTITIES = {"score": ("score (%)", "accuracy", 100.0), "tpf": ("TPF", "tpf", 1.0), "tps": ("TPS", "tps", 1.0)}


@dataclass(frozen=True)
class Pack:
    """The settings that a pack comes to; those of the decoder are resolved."""

    name: str
    decoder: DecoderConfig
    model: Mapping[str, Any]
    task: Mapping[str, Any]

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
            and _same(self.task, run.config.get("task") or {}, OF_THE_TASK)
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


def protocol_table(study: Study) -> Table:
    """Every published value of a protocol, with the run of its settings that has the most samples."""
    found = [(row, _run(study, row)) for row in rows(FILE)]
    heads = [
        *(Head(text, is_words=True) for text in ("protocol", "model", "task")),
        *(Head(title, ("measured", "published", "difference")) for title, _, _ in QUANTITIES.values()),
        Head("n"),
        *(Head(text, is_words=True) for text in ("run", "source of the published value")),
    ]
    keys = ["protocol", "model", "task"]
    keys += [name + part for name in QUANTITIES for part in ("", "_low", "_high", "_published", "_difference")]
    return Table(
        name="protocols",
        caption="Published protocols: published and measured, where all settings of a run are those of the protocol",
        heads=heads,
        rows=[_cells(study, row, run) for row, run in found],
        keys=[*keys, "n", "run", "problems", "source", "note"],
        records=[_record(study, row, run) for row, run in found],
        notes=(
            "Published values are their publications' own, by their scorers and counting rules; docs/protocols.md says "
            "what differs. Measured TPF and TPS are counted by the preset effective. A row without a protocol is of a "
            "way to decode that is not offered here.",
        ),
        labels=3,
        kinds=["none" if run is None else "both" for _, run in found],
    )


def _run(study: Study, row: Row) -> Run | None:
    if not row["protocol"]:
        return None
    wanted = pack(row["protocol"])
    return best(run for run in study.runs if wanted.fits(run))


def _cells(study: Study, row: Row, run: Run | None) -> list[str]:
    cells = [row["protocol"] or typeset(UNKNOWN), row["model"], row["task"]]
    for name, (_, quantity, factor) in QUANTITIES.items():
        said, measured = number(row, name), None
        digits = 1 if name != "tpf" else 2
        if run is not None:
            found = study.value(run, quantity, None if name == "score" else "effective").scaled(factor)
            measured = found.value
            cells.append(typeset(fixed(found.value, digits, found.interval)))
        else:
            cells.append("no run")
        apart = None if said is None or measured is None else measured - said
        cells += [row[name] or typeset(UNKNOWN), typeset(signed(apart, digits))]
    n = typeset(UNKNOWN) if run is None else str(study.numbers(run).n)
    return [*cells, n, "" if run is None else plain(run.id), row["source"]]


def _record(study: Study, row: Row, run: Run | None) -> list[Any]:
    record: list[Any] = [row["protocol"] or None, row["model"] if run is None else model_of(run), row["task"]]
    for name, (_, quantity, factor) in QUANTITIES.items():
        said = number(row, name)
        if run is None:
            record += [None, None, None, said, None]
            continue
        found = study.value(run, quantity, None if name == "score" else "effective").scaled(factor)
        low, high = found.interval or (None, None)
        apart = None if said is None or found.value is None else found.value - said
        record += [found.value, low, high, said, apart]
    n = None if run is None else study.numbers(run).n
    problems = None if run is None else source_of(run)
    return [*record, n, None if run is None else run.id, problems, row["source"], row["note"] or None]
