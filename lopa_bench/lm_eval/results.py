"""What a run adds to lm-eval's results, and what lm-eval's verdicts add to the run."""

from __future__ import annotations

import sys
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from pathlib import Path
from typing import Any

from lopa_bench.errors import ConfigError, Locked, StorageError
from lopa_bench.lm_eval.likelihood import why_not
from lopa_bench.lm_eval.requests import Request
from lopa_bench.metrics.aggregate import aggregate
from lopa_bench.records.integrity import parts
from lopa_bench.records.locks import Lock
from lopa_bench.records.reading import read_samples
from lopa_bench.records.runs import open_run
from lopa_bench.records.schema import ERROR_REASONS
from lopa_bench.records.writing import RunStore

LIKELIHOODS = ("loglikelihood", "loglikelihood_rolling", "multiple_choice")
NO_VERDICT = "no_verdict"  # lm-eval's number is no yes or no
OF_CACHE = (
    "note: --use_cache finds an answer by its request alone: another model or decoder on the same cache gets the old "
    "answers, and what is found there is in no count"
)
SHOWN = ("tpf", "forwards")  # of a task, in lm-eval's own table
COPIED = (
    *("preset", "formula", "n", "errors", "tpf", "tpf_row", "tps", "tps_clock", "forwards", "rows", "content_tokens"),
    *("eos_tokens", "window_tokens", "tokens_processed", "total_s", "wall_s", "finish_reasons"),
)
Verdicts = Mapping[tuple[str, int], Mapping[str, Any]]  # columns by problem id and sample index


@dataclass(frozen=True)
class Continued:
    """A group of requests of one task, answered by one run. `instances`: what lm-eval calls them, in the same order."""

    task: str
    folder: Path
    requests: Sequence[Request]
    instances: Sequence[Any] = ()


def texts_of(folder: Path, problems: int, samples: int, stop: Sequence[str]) -> list[list[str]]:
    """The texts of a run by problem and sample, cut at the first stop string wherever it stands, as lm-eval cuts."""
    texts = [[""] * samples for _ in range(problems)]
    table = read_samples(folder, ("problem_index", "sample_index", "completion"))
    for row in table.to_pylist():
        text = row["completion"]
        for string in stop:
            text = text.split(string, 1)[0]
        texts[row["problem_index"]][row["sample_index"]] = text
    return texts


def warn_of_failed(task: str, folder: Path) -> None:
    """Says that some requests were answered with nothing, and why."""
    rows = read_samples(folder, ("finish_reason", "error")).to_pylist()
    failed = [row for row in rows if row["finish_reason"] in ERROR_REASONS]
    if failed:
        why = f"{failed[0]['finish_reason']}: {failed[0]['error']}"
        text = f"warning: {len(failed)} of {len(rows)} requests of {task} failed and were answered with '' ({why})"
        print(text, file=sys.stderr)


def summary(lm: Any) -> dict[str, Any]:
    """The numbers of a class that has answered requests: by task, with the runs that hold the rows."""
    by_task: dict[str, list[Continued]] = defaultdict(list)
    for one in lm.done:
        by_task[one.task].append(one)
    bound = {} if lm.bound is None else {"likelihood": lm.bound.facts}
    return {"config": list(lm.given), "tasks": {task: _numbers(of, lm) for task, of in by_task.items()}} | bound


def _numbers(done: Sequence[Continued], lm: Any) -> dict[str, Any]:
    """The numbers of all runs of a task under the run's counting preset."""
    run = lm.config.run
    numbers = aggregate(read_samples([one.folder for one in done]), run.preset, run.seed)
    told = {name: value for name, value in open_run(done[0].folder).settings.items() if value is not None}
    return {name: numbers[name] for name in COPIED} | {"decoder": told, "runs": [str(one.folder) for one in done]}


def reporting(evaluate: Callable[..., Any]) -> Callable[..., Any]:
    """lm-eval's `evaluate` for this class: likelihoods that would be refused are refused before anything is decoded,
    the results have the numbers of the runs, and the runs the verdicts.
    """

    @wraps(evaluate)
    def with_runs(lm: Any, task_dict: Any, *rest: Any, **named: Any) -> Any:
        ours = getattr(lm, "lm", lm)  # behind lm-eval's cache of answers
        if not hasattr(ours, "done"):
            return evaluate(lm, task_dict, *rest, **named)
        if ours.bound is None and (asked := _of_likelihood(task_dict)):
            raise ConfigError(why_not(asked))
        if ours is not lm:
            print(OF_CACHE, file=sys.stderr)
        wanted = named.pop("log_samples", True)
        results = evaluate(lm, task_dict, *rest, log_samples=True, **named)
        if results is None:
            return None
        tasks = dict(_tasks(task_dict))
        for one in ours.done:
            record_verdicts(one, results["samples"].get(one.task, ()), tasks.get(one.task))
        if not wanted:
            del results["samples"]
        results["lopa_bench"] = found = summary(ours)
        for task, numbers in found["tasks"].items():
            if task in results["results"]:
                results["results"][task] |= {f"{name},{numbers['preset']}": numbers[name] for name in SHOWN}
        return results

    return with_runs


def _of_likelihood(tasks: Any) -> str | None:
    """The name of the first task that asks for likelihoods."""
    kinds = ((name, task.OUTPUT_TYPE) for name, task in _tasks(tasks))
    return next((f"{name} ({kind})" for name, kind in kinds if kind in LIKELIHOODS), None)


def _tasks(tasks: Any) -> Iterator[tuple[str, Any]]:
    """The tasks with their names, however deep in groups."""
    for name, task in tasks.items() if isinstance(tasks, Mapping) else ():
        if hasattr(task, "OUTPUT_TYPE"):
            yield getattr(task.config, "task", None) or name, task
        yield from _tasks(task)


def record_verdicts(done: Continued, logged: Sequence[Mapping[str, Any]], task: Any = None) -> None:
    """Writes what lm-eval said of each document into the rows of its run, and the run's numbers anew. A document of
    several requests has one verdict for all, which is none of a row. What cannot be written is a warning.
    """
    verdicts = _verdicts(done, logged, task)
    if not verdicts:
        return
    try:
        lock = Lock(done.folder)
    except (StorageError, Locked) as error:
        print(f"warning: {error}; the verdicts of {done.task} stand in lm-eval's results alone", file=sys.stderr)
        return
    try:
        _write(done.folder, verdicts)
    finally:
        lock.release()


def _write(folder: Path, verdicts: Verdicts) -> None:
    store = RunStore(folder)
    for part in parts(folder, "samples"):
        rows = store.rows(part.name)
        failed = [row["finish_reason"] in ERROR_REASONS for row in rows]
        judged = [
            row if bad else {**row, **verdicts.get((row["problem_id"], row["sample_index"]), {})}
            for row, bad in zip(rows, failed, strict=True)
        ]
        store.replace(part.name, judged)
    run = open_run(folder)
    numbers = aggregate(read_samples(folder), run.config["run"]["preset"], run.seed)
    aggregates = {**run.row["aggregates"], **numbers}
    store.write_run({**run.row, "aggregates": aggregates, "accuracy": numbers["accuracy"]})


def _verdicts(done: Continued, logged: Sequence[Mapping[str, Any]], task: Any) -> Verdicts:
    """The columns of each row whose document its request alone is of. lm-eval's log has one entry a document and
    filter, in the order of the requests; its numbers of documents count otherwise under --samples, so texts are
    compared.

    Of a document that was asked several times lm-eval says one thing for all, by filters that take the first text or
    the most frequent one. Its rows are judged by the same task, each as if it had been the only one.
    """
    by_filter: dict[str, dict[str, deque[Mapping[str, Any]]]] = defaultdict(lambda: defaultdict(deque))
    for entry in logged:
        if len(entry["arguments"]) == 1:
            by_filter[entry["filter"]][entry["arguments"][0][0]].append(entry)
    found = {}
    for place, request in enumerate(done.requests):
        entries = [texts[request.context].popleft() for texts in by_filter.values() if texts.get(request.context)]
        if not entries:
            continue
        texts = entries[0]["resps"][0]
        if len(texts) == 1:
            found[request.id, 0] = _columns(entries)
            continue
        for sample, text in enumerate(texts):
            alone = None if task is None else _alone(task, done.instances[place], text)
            columns = _columns([] if alone is None else [alone | {"target": entries[0]["target"]}])
            columns["score_details"]["document"] = _values(entries)
            found[request.id, sample] = columns
    return found


def _alone(task: Any, instance: Any, text: str) -> dict[str, Any] | None:
    """What the task's first filter and its metrics make of one text; None where they need several."""
    first = task._filters[0]
    one = replace(instance, resps=[text], filtered_resps={})
    try:
        first.apply([one])
        filtered = [one.filtered_resps[first.name]]
        metrics = dict(task.process_results(instance.doc, filtered))
    except Exception:  # of lm-eval or of the task: take_first_k asserts that there are k
        return None
    return {"filter": first.name, "filtered_resps": filtered, "metrics": list(metrics), **metrics}


def _values(entries: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The metrics of one document by name and filter, the task's first filter first."""
    return {f"{metric},{entry['filter']}": entry[metric] for entry in entries for metric in entry["metrics"]}


def _columns(entries: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What one document's entries say; its verdict is that of the first filter and metric. Without entries: nothing."""
    if not entries:
        return {"correct": None, "score_status": NO_VERDICT, "score_details": {}}
    values = _values(entries)
    name, value = next(iter(values.items()), ("", None))
    is_verdict = isinstance(value, (bool, int, float)) and value in (0, 1)
    extracted = entries[0]["filtered_resps"][0]
    return {
        "correct": bool(value) if is_verdict else None,
        "score_status": "ok" if is_verdict else NO_VERDICT,
        "score_details": {"metric": name} | values,
        "extracted": extracted if isinstance(extracted, str) else None,
        "gold": str(entries[0]["target"]),
    }
