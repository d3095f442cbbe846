"""Runs of other tools: small files in their formats, and the numbers that they must give, computed by hand."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from analysis.__main__ import main
from analysis.imported.formats import LogError, read_logs
from analysis.imported.run import Told, import_log
from analysis.labels import decoding
from analysis.study import Study
from lopa_bench.metrics.comparable import Counted, stand
from lopa_bench.records.finding import find_runs
from lopa_bench.records.runs import Run

DOCS = [
    {"question": "How many are two and two?", "answer": "2+2=4\n#### 4"},
    {"question": "How many are three and two?", "answer": "3+2=5\n#### 5"},
    {"question": "How many are six and six?", "answer": "6+6=12\n#### 12"},
]
ANSWERS = ["So 4.\n#### 4", "So 6.\n#### 6", "So 12.\n#### 12\n\nQuestion: What is next?\n#### 99"]
TWICE = {
    "task_id": "HumanEval/3", "prompt": "def twice(n):\n", "entry_point": "twice",
    "canonical_solution": "    return 2 * n\n", "test": "def check(candidate):\n    assert candidate(2) == 4\n",
}  # fmt: skip


def lines(path: Path, rows: Sequence[Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def lm_eval(folder: Path, docs: Sequence[Any] = DOCS, name: str = "samples_gsm8k_2026-01-02T03-04-05.678901") -> Path:
    """As lm-eval writes it: a document once for each filter; the second filter also takes a last number."""
    asked = [f"Question: {doc['question']}\nAnswer:" for doc in docs]
    rows = [
        {"doc_id": number, "doc": doc, "target": doc["answer"],
         "arguments": {"gen_args_0": {"arg_0": asked[number], "arg_1": {"until": ["Question:"]}}},
         "resps": [[ANSWERS[number]]], "filtered_resps": ["?"], "filter": name_of_filter, "metrics": ["exact_match"],
         "exact_match": verdict}
        for name_of_filter, verdicts in (("strict-match", (1.0, 0.0, 0.0)), ("flexible-extract", (1.0, 1.0, 1.0)))
        for number, (doc, verdict) in enumerate(zip(docs, verdicts, strict=True))
    ]  # fmt: skip
    path = lines(folder / f"{name}.jsonl", rows)
    about = {"model_name": "owner/dllm", "config": {"model": "hf", "model_args": "pretrained=owner/dllm"}}
    (folder / "results_2026-01-02T03-04-05.678901.json").write_text(json.dumps(about))
    return path


def source(folder: Path) -> Path:
    return lines(folder / "test.jsonl", DOCS)


def ranks(folder: Path, size: int = 2, counted: bool = True) -> Path:
    """As d3LLM and D2F write it: process R has the requests R, R + W, ...; what appends can hold a line twice."""
    for rank in range(size):
        own = list(range(rank, 3, size))
        lines(folder / f"rank_{rank}.jsonl", [ANSWERS[number] for number in own])
        if counted:
            counts = [
                {"sample_index": number, "generated_tokens": 10 * (one + 1), "steps": 64, "nfe": 2 * (one + 1),
                 "latency_seconds": 0.5, "timestamp": 1.0}
                for number, one in enumerate(own)
            ]  # fmt: skip
            lines(folder / f"rank_{rank}_samples.jsonl", [counts[0] | {"nfe": 999}, *counts])
    return folder


def imported(paths: Sequence[Path], out: Path, **told: Any) -> list[Run]:
    for log in read_logs(paths):
        import_log(log, Told(**told), out)
    return list(find_runs(out))


def test_lm_evals_samples_need_no_other_file_and_are_judged_by_our_scorer(tmp_path: Path) -> None:
    """The third answer goes on with a question of its own: behind the stop string nothing is judged, lm-eval's strict
    verdict was wrong on it.
    """
    log = read_logs([lm_eval(tmp_path)])[0]
    found = import_log(log, Told(), tmp_path / "out")
    (run,) = find_runs(tmp_path / "out")
    assert (run.row["n"], run.row["accuracy"], run.row["tpf"], run.model) == (3, 2 / 3, None, "owner/dllm")
    assert (found.judged_by_both, found.apart) == (3, ("gsm8k-test-2",))
    assert run.samples["forwards"].null_count == 3
    assert decoding(run) == "unknown (imported from lm-eval)"


def test_what_lm_eval_says_of_several_texts_is_a_verdict_of_none_of_them(tmp_path: Path) -> None:
    rows = [json.loads(line) for line in lm_eval(tmp_path).read_text().splitlines()[:3]]
    path = lines(tmp_path / "samples_gsm8k.jsonl", [row | {"resps": [["#### 4", "#### 12"]]} for row in rows])
    found = import_log(read_logs([path])[0], Told(), tmp_path / "out")
    (run,) = find_runs(tmp_path / "out")
    assert (run.row["n"], run.row["accuracy"], found.judged_by_both) == (6, 2 / 6, 0)


def test_rank_files_are_dealt_back_and_counted_as_far_as_they_count(tmp_path: Path) -> None:
    """Tokens 10 + 20 + 30 over calls 2 + 4 + 6, and over 3 x 0.5 seconds."""
    (run,) = imported([ranks(tmp_path / "logs")], tmp_path / "out", task="gsm8k", source=str(source(tmp_path)))
    assert run.samples["correct"].to_pylist() == [True, False, True]
    assert (run.row["tpf"], run.row["tps"]) == (60 / 12, 60 / 1.5)


def test_without_counts_there_are_no_ratios(tmp_path: Path) -> None:
    folder = ranks(tmp_path / "logs", size=1, counted=False)
    (run,) = imported([folder], tmp_path / "out", task="gsm8k", source=str(source(tmp_path)))
    assert (run.row["accuracy"], run.row["tpf"], run.row["tps"]) == (2 / 3, None, None)


def test_d2caches_results_hold_the_samples_and_its_means_stay_means(tmp_path: Path) -> None:
    rows = [json.loads(line) for line in lm_eval(tmp_path).read_text().splitlines()[:3]]
    whole = {"results": {"gsm8k": {}}, "samples": {"gsm8k": rows}, "tps": 3.5, "throughput": 90.0, "latency": 1.5}
    (tmp_path / "results.json").write_text(json.dumps(whole))
    (run,) = imported([tmp_path / "results.json"], tmp_path / "out")
    assert (run.row["accuracy"], run.row["tpf"]) == (
        2 / 3,
        None,
    )  # tokens per step is a mean of ratios: no row holds it
    assert run.config["imported"]["tool"] == "d2Cache"
    assert run.config["imported"]["tps"] == 3.5


def test_evalplus_samples_are_programs_and_are_run(tmp_path: Path) -> None:
    path = lines(
        tmp_path / "samples.jsonl", [{"task_id": "HumanEval/3", "solution": "def twice(n):\n    return n + n\n"}]
    )
    (run,) = imported([path], tmp_path / "out", source=str(lines(tmp_path / "HumanEval.jsonl", [TWICE])))
    assert (run.task, run.row["n"], run.row["accuracy"]) == ("humaneval", 1, 1.0)


def test_imported_runs_stand_in_the_report_and_the_comparison_says_what_differs(tmp_path: Path) -> None:
    out, problems = tmp_path / "out", str(source(tmp_path))
    imported([ranks(tmp_path / "a")], out, task="gsm8k", source=problems, decoder="d3llm")
    runs = imported([lm_eval(tmp_path / "b")], out, source=problems, decoder="lm")
    standing = stand(*(Counted(run, run.samples) for run in runs))
    assert standing.pairs == 3
    assert {difference.fact for difference in standing.differences} == {"model"}
    assert main(["compare", *(run.id for run in runs), "--outputs", str(out)]) == 0
    assert main(["report", str(out)]) == 0
    assert "imported from" in (out / "report" / "index.html").read_text(encoding="utf-8")
    assert len(Study.finished(out).runs) == 2


def test_the_same_files_are_imported_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = lm_eval(tmp_path)
    for _ in range(2):
        assert main(["import", str(path), "--outputs", str(tmp_path / "out")]) == 0
    assert "imported before" in capsys.readouterr().out
    assert len(list(find_runs(tmp_path / "out"))) == 1


def spoilt(tmp_path: Path, name: str, text: str) -> Path:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("samples_gsm8k.jsonl", "", "is empty"),
        ("samples_gsm8k.jsonl", '{"doc_id": 0, "resps": [["a"]]}\n{"doc_id"', "line 2 is no JSON"),
        ("samples_gsm8k.jsonl", '{"doc_id": 0, "doc": {}, "resps": [[-1.5, true]]}', "a log-likelihood task"),
        ("samples_piqa.jsonl", '{"doc_id": 0, "doc": {}, "resps": [["a"]]}', "'piqa' is no task that is known here"),
        ("other.jsonl", '{"a": 1}', "is of no kind that is known"),
        ("rank_1.jsonl", '"a"', "of processes 1; a run of 1 has those of 0 to 0"),
        ("rank_0.jsonl", '{"a": 1}', "dict where the text of an answer belongs"),
        ("rank_0_samples.jsonl", '{"sample_index": 0}', "counts without answers"),
        ("samples_gsm8k.jsonl", '{"doc_id": -1, "doc": {}, "resps": [["a"]]}', "line 1: .* doc_id is -1"),
        ("samples_gsm8k.jsonl", '{"doc_id": 0, "resps": [[]]}', "line 1: .* resps is no list of texts"),
        (
            "samples_gsm8k.jsonl",
            '{"doc_id": 0, "resps": [["a"]]}\n{"doc_id": 0, "resps": [["b"]]}',
            "line 2: document 0 has another answer than before",
        ),
        ("samples_gsm8k.jsonl", "[" * 99999, "line 1 is no JSON"),
        ("results.json", '{"results": {}}', "holds no samples"),
        ("results.json", '{"samples": {}}', "holds samples of no task"),
        ("results.json", "{", "is no JSON"),
        ("samples.jsonl", '{"task_id": "HumanEval/0", "solution": 3}', "neither solution nor completion"),
    ],
)
def test_a_file_that_is_not_what_it_should_be_is_named_with_its_line(
    name: str, text: str, message: str, tmp_path: Path
) -> None:
    path = spoilt(tmp_path, name, text)
    with pytest.raises(LogError, match=message):
        imported([path], tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("nfe", ["NaN", "-3", '"x"', "true", "1e300", "[]"])
def test_a_count_that_is_none_is_refused_and_no_run_is_begun(nfe: str, tmp_path: Path) -> None:
    folder = ranks(tmp_path / "logs", size=1, counted=False)
    line = f'{{"sample_index": 0, "generated_tokens": 3, "nfe": {nfe}, "latency_seconds": 0.5}}\n'
    (folder / "rank_0_samples.jsonl").write_text(line)
    with pytest.raises(LogError, match="line 1: nfe is"):
        imported([folder], tmp_path / "out", task="gsm8k", source=str(source(tmp_path)))
    assert not (tmp_path / "out").exists()


def test_answers_to_other_questions_are_refused(tmp_path: Path) -> None:
    other = str(lines(tmp_path / "other.jsonl", [DOCS[1], DOCS[0], DOCS[2]]))
    with pytest.raises(LogError, match="answer 1 is to another question"):
        imported([lm_eval(tmp_path)], tmp_path / "out", source=other)
    short = str(lines(tmp_path / "short.jsonl", DOCS[:2]))
    with pytest.raises(LogError, match="answer 3 belongs to none of the 2 problems"):
        imported([lm_eval(tmp_path)], tmp_path / "out", source=short)
