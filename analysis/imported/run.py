"""A run of another tool as a run folder: its answers judged by our scorer, what it did not record left empty.

Nothing is guessed: tokens, calls and seconds are those that the tool wrote for a sample, else null, and then no ratio
is made of them. The tool's own verdict is kept beside ours (`score_details.theirs`).
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from analysis.imported.formats import Answer, Log, LogError
from lopa_bench.metrics.aggregate import aggregate
from lopa_bench.records.finding import with_key
from lopa_bench.records.runs import IMPORTED
from lopa_bench.records.schema import NOT_SCORED, SCHEMA_VERSION
from lopa_bench.records.writing import RunStore, new_run_id
from lopa_bench.run.completion import first_stop
from lopa_bench.run.judging import judge_part
from lopa_bench.system.clock import now
from lopa_bench.system.environment import git_revision, product_version, versions
from tasks.base import Task
from tasks.registry import TASKS, make_task
from tasks.types import Problem, TaskConfig

BEGINNINGS = (  # of the names that lm-eval and others give a task, and ours; the longest first
    ("humaneval_plus", "humaneval_plus"), ("humaneval", "humaneval"), ("mbpp_plus", "mbpp_plus"), ("mbpp", "mbpp"),
    ("minerva_math500", "math500"), ("math500", "math500"), ("math-500", "math500"), ("minerva_math", "math"),
    ("hendrycks_math", "math"), ("gsm8k", "gsm8k"),
)  # fmt: skip
Placed = list[tuple[Answer, tuple[int, Problem]]]  # each answer with the place of its problem, and that
NUMBERS = ("accuracy", "tpf", "tps", "latency_s")
QUESTIONS = ("question", "prompt", "problem", "text")  # fields of a document that put the question


@dataclass(frozen=True)
class Told:
    """What the user says of the files, where these do not say it themselves."""

    task: str | None = None
    source: str | None = None
    model: str | None = None
    decoder: str = "unknown"


@dataclass(frozen=True)
class Imported:
    """The folder; whether it was there before; and on how many samples their verdict and ours differ, and which."""

    folder: Path
    is_new: bool
    judged_by_both: int
    apart: tuple[str, ...]
    numbers: dict[str, Any]


def import_log(log: Log, told: Told, out: Path) -> Imported:
    """Writes a run below `out`. Raises LogError for answers that fit no problem, and what the task raises."""
    name = _task_name(log, told)
    runs = out / "runs"
    key = _key(log, told, name)
    for folder, row in with_key(runs, key) if runs.is_dir() else ():
        if row is not None and row["status"] == "finished":
            return Imported(folder, False, 0, (), json.loads(row["aggregates"] or "{}"))
    with tempfile.TemporaryDirectory() as scratch:
        task, placed = _placed(log, told, name, Path(scratch))
        _table([_sample("", *one, task) for one in placed])  # what no row can hold is said before there is a folder
        run_id = new_run_id(runs, task.name, told.model or log.model or log.tool, told.decoder, IMPORTED, key[:10])
        try:
            rows, numbers = _written(runs / run_id, log, told, task, key, placed)
        except BaseException:  # half a run is none, and the files that it was read from are still there
            shutil.rmtree(runs / run_id, ignore_errors=True)
            raise
    both = [row for row in rows if _theirs(row) is not None and row["correct"] is not None]
    apart = tuple(str(row["problem_id"]) for row in both if _theirs(row) != row["correct"])
    return Imported(runs / run_id, True, len(both), apart, numbers)


def _written(
    folder: Path, log: Log, told: Told, task: Task, key: str, placed: Placed
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The rows with their verdicts, and the numbers of the run; both are on disk then."""
    row = _row(folder.name, log, told, task, key)
    with RunStore(folder) as store:
        store.write_run(row)
        for answer, problem in placed:
            store.add(_sample(folder.name, answer, problem, task))
        store.flush()
        rows = [one for part in list(store.flushed) for one in _judged(store, task, part)]
        numbers = aggregate(_table(rows), "effective", 0)
        summary = {one: numbers.get(one) for one in NUMBERS}
        finished = {"status": "finished", "finished": now(), "aggregates": numbers, "n": numbers["n"]}
        store.write_run(row | finished | summary | {"errors": numbers["errors"]})
    return rows, numbers


def _table(rows: Sequence[dict[str, Any]]) -> Any:
    from lopa_bench.records.schema import to_table

    return to_table("samples", rows)


def _judged(store: RunStore, task: Task, part: str) -> list[dict[str, Any]]:
    """With the tool's own verdict kept beside ours."""
    before = {(row["problem_id"], row["sample_index"]): _theirs(row) for row in store.rows(part)}
    rows, _ = judge_part(store, task, part)
    for row in rows:
        theirs = before[row["problem_id"], row["sample_index"]]
        row["score_details"] = _details(row) | {"theirs": theirs}
    store.replace(part, rows)
    return rows


def _details(row: dict[str, Any]) -> dict[str, Any]:
    found = row["score_details"]
    return dict(json.loads(found) if isinstance(found, str) else found)


def _theirs(row: dict[str, Any]) -> bool | None:
    return _details(row).get("theirs")


def _task_name(log: Log, told: Told) -> str:
    if told.task is not None:
        if told.task not in TASKS:
            raise LogError(f"--task {told.task} is unknown; allowed: {', '.join(TASKS)}")
        return told.task
    name = (log.task or "").lower()
    first = log.answers[0].id if log.answers else None
    if first is not None and first.lower().startswith(("humaneval/", "mbpp/")):
        return "humaneval" if first.lower().startswith("humaneval") else "mbpp_plus"
    found = next((ours for theirs, ours in BEGINNINGS if name.startswith(theirs)), None)
    if found is None:
        said = f"{log.task!r} is no task that is known here" if log.task else "its files do not name its task"
        raise LogError(f"{log.files[0]}: {said}; allowed: --task {{{','.join(TASKS)}}}")
    return found


def _placed(log: Log, told: Told, name: str, scratch: Path) -> tuple[Task, Placed]:
    """The task, and each answer with the problem it belongs to."""
    source = told.source
    if source is None and all(answer.doc is not None for answer in log.answers):
        source = str(_documents(log, scratch))
    task = make_task(TaskConfig(name=name, source=source or "hub", shots=0), embedded_default=False)
    if told.source is None and source is not None:
        task.source = replace(task.source, name=f"the documents in {log.files[0].name}", path=str(log.files[0]))
    by_id = {_short_id(problem.id): (number, problem) for number, problem in enumerate(task.problems)}
    placed = []
    for answer in log.answers:
        if answer.id is not None:
            found = by_id.get(_short_id(answer.id))
            said = f"task_id {answer.id}"
        else:
            index = answer.index or 0
            found = (index, task.problems[index]) if index < len(task.problems) else None
            said = f"answer {index + 1}"
        if found is None:
            raise LogError(
                f"{log.files[0]}: {said} belongs to none of the {len(task.problems)} problems of {task.source.where}"
            )
        _check_same(log, said, answer, found[1])
        placed.append((answer, found))
    return task, placed


def _short_id(name: str) -> str:
    """ "HumanEval/3", "humaneval-3" and "Mbpp/3", "mbpp-plus-3" are each one problem of their benchmark."""
    return name.replace("/", "-").rpartition("-")[2]


def _check_same(log: Log, said: str, answer: Answer, problem: Problem) -> None:
    doc = answer.doc or {}
    asked = next((str(doc[field]).strip() for field in QUESTIONS if isinstance(doc.get(field), str)), None)
    ours = next(
        (str(problem.row[field]).strip() for field in QUESTIONS if isinstance(problem.row.get(field), str)), None
    )
    if asked is not None and ours is not None and asked != ours:
        raise LogError(
            f"{log.files[0]}: {said} is to another question ({asked[:60]!r}) than problem {problem.id} of the source "
            f"({ours[:60]!r}); allowed: --source with the file that the tool was given"
        )


def _documents(log: Log, scratch: Path) -> Path:
    """The documents that lm-eval wrote with the answers, as a source: no other file is needed then."""
    docs = {answer.index: answer.doc for answer in log.answers}
    if sorted(docs, key=lambda index: index or 0) != list(range(len(docs))):
        raise LogError(
            f"{log.files[0]} holds {len(docs)} documents that are not the first ones of their source; allowed: "
            "--source with the file that they are of"
        )
    path = scratch / "documents.jsonl"
    path.write_text("".join(json.dumps(docs[index]) + "\n" for index in range(len(docs))), encoding="utf-8")
    return path


def _sample(run_id: str, answer: Answer, placed: tuple[int, Problem], task: Task) -> dict[str, Any]:
    index, problem = placed
    at = -1 if answer.is_program else first_stop(answer.text, task.stop)
    text = answer.text if at < 0 else answer.text[:at]
    return {
        "run_id": run_id, "problem_id": problem.id, "problem_index": index, "sample_index": answer.sample,
        "content_tokens": answer.tokens, "forwards": answer.calls, "total_s": answer.seconds, "finish_reason": "other",
        "prompt": answer.prompt or problem.question, "completion": answer.text, "answer_text": text,
        "gold": problem.gold,
        "scorer": task.scorer, "score_status": NOT_SCORED, "score_details": {"theirs": answer.theirs}, "correct": None,
        "stop": list(task.stop), "token_ids": [], "token_source": "the tool" if answer.tokens is not None else "none",
        "batch": 1, "approximate": False, "concurrency": 1,
    }  # fmt: skip


def _row(run_id: str, log: Log, told: Told, task: Task, key: str) -> dict[str, Any]:
    source = task.source
    facts = {"tool": log.tool, "files": [path.name for path in log.files], "task": log.task, **log.facts}
    settings = asdict(task.config) | {"shots": None, "prompt_style": "the tool's"}
    return {
        "run_id": run_id, "version": product_version(), "schema_version": SCHEMA_VERSION, "status": "running",
        "created": now(), "task": task.name, "scorer": task.scorer, "source_kind": source.kind,
        "source_name": source.name, "source_sha256": source.sha256, "source_rows": source.rows,
        "source_revision": source.revision, "model": told.model or log.model or "unknown", "model_is_toy": False,
        "decoder": told.decoder, "backend": IMPORTED, "device": "unknown", "dtype": "unknown", "seed": 0, "batch": 1,
        "samples": 1 + max((answer.sample for answer in log.answers), default=0), "key": key,
        "config": {"imported": facts, "task": settings, "decoder": {"name": told.decoder}},
        "versions": versions(), "host": {"hostname": "unknown", "tool": log.tool}, "git_revision": git_revision(),
        "argv": [],
    }  # fmt: skip


def _key(log: Log, told: Told, task: str) -> str:
    """The same files, told the same, are the same run."""
    digest = hashlib.sha256(json.dumps([log.tool, asdict(told), task, log.task]).encode())
    for path in log.files:
        digest.update(path.read_bytes())
    return digest.hexdigest()
