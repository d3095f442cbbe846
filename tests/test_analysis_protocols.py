"""The table of published protocols: a run stands in a row if all its settings are the protocol's."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from analysis.protocols.packs import NAMES, pack
from analysis.protocols.table import FILE, protocol_table
from analysis.study import Study
from analysis.tables.published import rows
from analysis.text import typeset
from lopa_bench.settings.model import ModelSettings
from tasks.types import TaskConfig
from tests.analysis_runs import simulate, write_run

NAME = "fast_dllm/gsm8k"


def made(root: Path, run_id: str = "mine", n: int = 5, **changes: Any) -> None:
    """A run with the settings of the pack, but for the changes; the record is what a run of it would leave."""
    one = pack(NAME)
    told = {name: value for name, value in one.model.items() if name in ModelSettings.__annotations__}
    asked = {name: value for name, value in one.task.items() if name in TaskConfig.__annotations__}
    config: dict[str, Any] = {
        "decoder": asdict(one.decoder) | changes.get("decoder", {}),
        "model": asdict(ModelSettings(**told)) | changes.get("model", {}),
        "task": asdict(TaskConfig(**asked)) | changes.get("task", {}),
    }
    config["decoder"] = {name: value for name, value in config["decoder"].items() if value != "GONE"}
    row = {"source_kind": "hub", "model": "anything", "model_is_toy": False, "task": "gsm8k", "config": config}
    write_run(root, run_id, {"name": "greedy"}, simulate(n, 0, 0.9, seed=1), **(row | changes.get("row", {})))


def matched(root: Path) -> list[dict[str, Any]]:
    return [row for row in protocol_table(Study.of(root)).values if row["run"] is not None]


def test_without_a_run_the_table_is_the_published_one() -> None:
    table = protocol_table(Study([]))
    assert [row["score_published"] for row in table.values] == [
        float(row["score"]) if row["score"] else None for row in rows(FILE)
    ]
    assert {cell for row in table.rows for cell in row if cell == "no run"} == {"no run"}
    assert all(row["source"] for row in table.values)


def test_every_published_value_names_a_pack_or_none() -> None:
    assert {row["protocol"] for row in rows(FILE)} <= {"", *NAMES}


def test_a_run_of_these_settings_stands_beside_the_published_value(tmp_path: Path) -> None:
    made(tmp_path)
    found = matched(tmp_path)
    assert [(row["protocol"], row["run"], row["n"]) for row in found] == [(NAME, "mine", 5)] * 2  # published twice
    assert found[0]["score_published"] == 78.5
    assert found[0]["score_difference"] == pytest.approx(found[0]["score"] - 78.5)
    assert found[0]["tps_published"] == 54.4
    table = protocol_table(Study.of(tmp_path))
    shown = next(cells for cells, row in zip(table.rows, table.values) if row["run"] == found[0]["run"])
    assert shown[5] == typeset(f"{found[0]['score'] - 78.5:+.1f}")  # measured - published


def test_of_several_runs_the_one_with_the_most_samples_stands(tmp_path: Path) -> None:
    made(tmp_path, "few", n=2)
    made(tmp_path, "many", n=6)
    assert {row["run"] for row in matched(tmp_path)} == {"many"}


def test_a_run_that_is_older_than_a_setting_had_its_default(tmp_path: Path) -> None:
    newer = ("top_p", "cfg_scale", "eos_penalty", "eager", "prefix_look", "after_look", "warmup_steps")
    made(tmp_path, decoder=dict.fromkeys(newer, "GONE"))
    assert len(matched(tmp_path)) == 2


@pytest.mark.parametrize(
    "changes",
    [
        {"decoder": {"temperature": 0.2}},
        {"decoder": {"tau_conf": 0.95}},
        {"decoder": {"tau_conf": "GONE"}},
        {"decoder": {"cache": "dual"}},
        {"decoder": {"gen_length": 512}},
        {"decoder": {"logits_eos_inf": True}},
        {"decoder": {"eos_penalty": 3.0}},
        {"decoder": {"eager": True}},
        {"decoder": {"warmup_steps": 4}},
        {"task": {"shots": 4}},
        {"task": {"shots": None}},
        {"task": {"shots_style": "keyed"}},
        {"task": {"prompt_style": "lm_eval"}},
        {"task": {"scorer": "lopa_bench"}},
        {"model": {"path": "GSAI-ML/LLaDA-1.5"}},
        {"model": {"lora": "somebody/adapter"}},
        {"model": {"add_bos": True}},
        {"row": {"source_kind": "embedded"}},
        {"row": {"model_is_toy": True}},
        {"row": {"backend": "sglang"}},
        {"row": {"config": {}}},
    ],
    ids=json.dumps,
)
def test_another_setting_problems_or_weights_are_not_the_protocol(changes: dict[str, Any], tmp_path: Path) -> None:
    made(tmp_path, **changes)
    assert matched(tmp_path) == []


def test_a_protocol_on_a_part_of_a_set_is_compared_by_it() -> None:
    one = pack("sdar/mbpp")
    theirs = {"decoder": asdict(one.decoder), "model": dict(one.model), "task": dict(one.task)}
    run = SimpleNamespace(source_kind="file", toy=False, is_server=False, config=theirs)
    assert one.fits(run)  # it has what is read of a run
    theirs["task"]["rows"] = None
    assert not one.fits(run)  # the same
