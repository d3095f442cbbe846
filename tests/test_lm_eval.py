"""lm-eval itself, on the embedded model and local rows: its verdicts are ours, and the run beside has them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import pytest
import yaml

from lopa_bench.records.finding import find_runs
from lopa_bench.records.reading import read_samples
from tasks.gsm8k import lm_eval as rule
from tests.import_graph import ROOT
from tests.warm import Warm

VERSION: str | None
try:
    VERSION = version("lm-eval")
except PackageNotFoundError:
    VERSION = None

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(VERSION is None, reason="lm-eval is not installed ([lm_eval])"),
    pytest.mark.skipif(VERSION == "0.4.9.2", reason="lm-eval 0.4.9.2 ends at any task of --include_path"),
]

EMBEDDED = ROOT / "tasks" / "embedded"
LIMIT = 20
TASK: dict[str, Any] = {
    "task": "gsm8k_local",
    "dataset_path": "json",
    "dataset_kwargs": {"data_files": {name: str(EMBEDDED / f"gsm8k_{name}.jsonl") for name in ("train", "test")}},
    "output_type": "generate_until",
    "test_split": "test",
    "doc_to_text": "{{question}}",
    "doc_to_target": "{{answer}}",
    "generation_kwargs": {"until": ["Question:", "</s>", "<|im_end|>"], "do_sample": False},
    "metric_list": [
        {"metric": "exact_match", "ignore_case": True, "regexes_to_ignore": [",", "\\$", "(?s).*#### ", "\\.$"]}
    ],
    "filter_list": [
        {
            "name": "strict-match",
            "filter": [{"function": "regex", "regex_pattern": "#### (\\-?[0-9\\.\\,]+)"}, {"function": "take_first"}],
        }
    ],
}
CHOICE = TASK | {"task": "choice", "output_type": "multiple_choice", "doc_to_choice": "{{[answer, 'no']}}"}
MODEL = "model=mini decoder=lopa decoder.k=4 run.progress=false"


def evaluate(
    folder: Path, *tasks: dict[str, Any], limit: int = LIMIT, config: str = MODEL
) -> subprocess.CompletedProcess[str]:
    for task in tasks:
        (folder / f"{task['task']}.yaml").write_text(yaml.safe_dump(task))
    names = ",".join(task["task"] for task in tasks)
    arguments = ["--model", "lopa_bench", "--tasks", names, "--include_path", str(folder), "--limit", str(limit)]
    arguments += ["--output_path", str(folder / "results"), "--apply_chat_template"]
    config = f"config={config} run.out={folder / 'out'}"
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(folder / "hf"), "PYTHONPATH": _path()}
    command = [sys.executable, "-m", "lopa_bench.lm_eval", *arguments, "--model_args", config]
    return subprocess.run(command, capture_output=True, text=True, env=environment, cwd=folder)


def _path() -> str:
    return os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])


def test_strict_match_is_ours_and_so_are_the_texts(tmp_path: Path, warm: Warm) -> None:
    done = evaluate(tmp_path, TASK)
    assert done.returncode == 0, done.stderr
    (path,) = (tmp_path / "results").rglob("results*.json")
    results = json.loads(path.read_text())
    (run,) = find_runs(tmp_path / "out")
    rows = read_samples(run.folder).to_pylist()
    golds = [json.loads(line)["answer"] for line in (EMBEDDED / "gsm8k_test.jsonl").open()][:LIMIT]
    ours = [rule.exact_match(rule.strict(row["answer_text"]), gold) for row, gold in zip(rows, golds, strict=True)]
    found = results["results"]["gsm8k_local"]
    assert found["exact_match,strict-match"] == sum(ours) / LIMIT
    assert 0 < sum(ours) < LIMIT
    assert [row["correct"] for row in rows] == ours
    assert run.row["accuracy"] == sum(ours) / LIMIT
    numbers = results["lopa_bench"]["tasks"]["gsm8k_local"]
    assert (numbers["preset"], numbers["forwards"], numbers["tpf"]) == (
        "effective", sum(row["forwards"] for row in rows), run.row["tpf"],
    )  # fmt: skip
    assert found["tpf,effective"] == numbers["tpf"]
    alone = warm.run(*MODEL.split(), f"task.limit={LIMIT}", f"run.out={tmp_path / 'alone'}")
    (same,) = find_runs(tmp_path / "alone")
    assert alone.code == 0
    assert read_samples(same.folder)["token_ids"].to_pylist() == [row["token_ids"] for row in rows]
    again = evaluate(tmp_path, TASK)
    assert "finished at" in again.stderr
    assert len(find_runs(tmp_path / "out")) == 1


def test_two_devices_give_the_same_numbers(tmp_path: Path) -> None:
    found = []
    for name, config in (("one", MODEL), ("two", f"{MODEL} run.devices=cpu:2")):
        (tmp_path / name).mkdir()
        done = evaluate(tmp_path / name, TASK, config=config)
        assert done.returncode == 0, done.stderr
        (path,) = (tmp_path / name / "results").rglob("results*.json")
        found.append(json.loads(path.read_text())["results"]["gsm8k_local"])
    assert found[0] == found[1]


def test_the_tasks_of_one_call_share_the_model(tmp_path: Path) -> None:
    config = "model=mini decoder=lopa decoder.k=4"
    done = evaluate(tmp_path, TASK, TASK | {"task": "again"}, limit=2, config=config)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("loading mini") == 1
    first, second = (read_samples(run.folder)["token_ids"].to_pylist() for run in find_runs(tmp_path / "out"))
    assert first == second


def test_each_repeat_has_its_own_verdict(tmp_path: Path) -> None:
    """lm-eval itself judges the first of them."""
    drawn = TASK["generation_kwargs"] | {"do_sample": True, "temperature": 1.0}
    done = evaluate(tmp_path, TASK | {"repeats": 3, "generation_kwargs": drawn}, limit=4)
    assert done.returncode == 0, done.stderr
    (run,) = find_runs(tmp_path / "out")
    rows = read_samples(run.folder).to_pylist()
    golds = [json.loads(line)["answer"] for line in (EMBEDDED / "gsm8k_test.jsonl").open()]
    ours = [rule.exact_match(rule.strict(row["answer_text"]), golds[row["problem_index"]]) for row in rows]
    assert [row["correct"] for row in rows] == ours
    assert len(set(ours)) == 2
    first = {row["problem_id"]: row["correct"] for row in rows if row["sample_index"] == 0}
    for row in rows:
        of_all = json.loads(row["score_details"])["document"]["exact_match,strict-match"]
        assert of_all == first[row["problem_id"]]


def test_a_likelihood_is_refused_before_anything_else(tmp_path: Path) -> None:
    done = evaluate(tmp_path, CHOICE)
    assert (done.returncode, done.stderr.splitlines()[-1][:36]) == (2, "error: choice (multiple_choice): thi")


def test_a_wrong_word_is_one_message(tmp_path: Path) -> None:
    done = evaluate(tmp_path, TASK, config="model=mini decoder.kk=4")
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("error: decoder.kk is no setting")
