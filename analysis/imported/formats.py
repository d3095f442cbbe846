"""What other tools leave behind, as answers: the files are told apart by what is in them, not by their names alone.

- lm-eval 0.4 (`--log_samples`): `samples_TASK_TIME.jsonl`, an object a line with doc, arguments, resps and filter; with
  several filters a document stands there once for each. What was asked for stands in `results_TIME.json` beside it.
- d2Cache: `results.json`, lm-eval's results with the samples inside; its speeds are means over the run, which no row
  holds.
- LLaDA, Fast-dLLM, D2F, d3LLM: `rank_R.jsonl`, the answer of each request as a JSON string. Process R of W has the
  requests R, R + W, ... d3LLM and D2F write `rank_R_samples.jsonl` beside it: calls, tokens and seconds of each.
- evalplus: an object a line with task_id and solution (a whole program) or completion (what follows the prompt).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

RANK = re.compile(r"rank_(\d+)\.jsonl")
COUNTS: dict[str, Any] = {"generated_tokens": int, "nfe": int, "latency_seconds": int | float}
MOST = 2**53
GZIP = b"\x1f\x8b"
NO_JSON = (ValueError, RecursionError)  # the second: thousands of brackets
WITH_SAMPLES = "allowed: d2Cache's results.json, or a samples_*.jsonl of lm-eval (--log_samples)"
LM_EVAL_NAME = re.compile(r"samples_(.+?)(?:_\d{4}-\d{2}-\d{2}T.*)?\.jsonl")


class LogError(ValueError):
    """A file that cannot be imported; the message names it, and the line."""


@dataclass(frozen=True)
class Answer:
    """One completion as a tool recorded it. What it did not record is None.

    `index` counts the problems from 0; `id` is the benchmark's own. `is_program`: a whole program, not a completion.
    `tokens` are counted by the tool's rule; `theirs` is its own verdict.
    """

    text: str
    index: int | None = None
    id: str | None = None
    sample: int = 0
    prompt: str | None = None
    doc: Mapping[str, Any] | None = None
    is_program: bool = False
    tokens: int | None = None
    calls: int | None = None
    seconds: float | None = None
    theirs: bool | None = None


@dataclass
class Log:
    """All answers of one run of a tool. `task`, `model`: as the tool calls them, where it says so."""

    tool: str
    files: list[Path]
    answers: list[Answer] = field(default_factory=list)
    task: str | None = None
    model: str | None = None
    facts: dict[str, Any] = field(default_factory=dict)


def read_logs(paths: Sequence[Path]) -> list[Log]:
    """One log for each run that the files hold. Raises LogError."""
    files = list(dict.fromkeys(file for path in paths for file in _files(path)))
    ranks = {file: int(match[1]) for file in files if (match := RANK.fullmatch(file.name))}
    found = [
        _ranks({rank: file for file, rank in ranks.items() if file.parent == folder})
        for folder in dict.fromkeys(file.parent for file in ranks)
    ]
    beside = [file for file in files if re.fullmatch(r"rank_\d+_(samples\.jsonl|final_stats\.json)", file.name)]
    for file in files:
        if file not in ranks and file not in beside:
            found += _one_file(file)
    if beside and not ranks:
        raise LogError(f"{beside[0]} holds counts without answers; allowed: the rank_*.jsonl beside it as well")
    return found


def _files(path: Path) -> list[Path]:
    """A file, or what a folder holds of the kinds above. (lm-eval writes into a folder of its output folder.)"""
    if not path.is_dir():
        return [path]
    kinds = ("samples_*.jsonl", "rank_*.jsonl", "results.json", "*.jsonl")
    found = next((sorted(path.glob(kind)) for kind in kinds if any(path.glob(kind))), [])
    if not found:
        below = sorted({str(file.parent) for file in path.glob("*/samples_*.jsonl")})
        hint = f"; allowed: {' or '.join(below)}, which does" if below else ""
        raise LogError(f"{path} holds none of {', '.join(kinds)}{hint}")
    return found


def _one_file(file: Path) -> list[Log]:
    if file.suffix == ".json":
        whole = _json(file)
        if not isinstance(whole, Mapping) or not isinstance(whole.get("samples"), Mapping):
            raise LogError(f"{file} holds no samples; {WITH_SAMPLES}")
        if not whole["samples"]:
            raise LogError(f"{file} holds samples of no task; {WITH_SAMPLES}")
        return [_d2cache(file, whole, str(task), rows) for task, rows in whole["samples"].items()]
    rows = list(_lines(file))
    if not rows:
        raise LogError(f"{file} is empty")
    first = rows[0][1]
    if isinstance(first, Mapping) and "resps" in first and "doc_id" in first:
        return [_lm_eval(file, rows)]
    if isinstance(first, Mapping) and "task_id" in first and ("solution" in first or "completion" in first):
        return [_evalplus(file, rows)]
    raise LogError(
        f"{file} is of no kind that is known; allowed: samples_*.jsonl of lm-eval, rank_*.jsonl of Fast-dLLM, D2F or "
        "d3LLM, results.json of d2Cache, samples of evalplus"
    )


def _lm_eval(file: Path, rows: Sequence[tuple[int, Any]]) -> Log:
    named = LM_EVAL_NAME.fullmatch(file.name)
    results = _results_beside(file)
    config = results.get("config")
    config = config if isinstance(config, Mapping) else {}
    model = results.get("model_name") or config.get("model")
    facts = {"arguments": config} if results else {}
    log = Log("lm-eval", [file], task=named[1] if named else None, model=str(model) if model else None, facts=facts)
    log.answers = _documents(file, rows)
    return log


def _results_beside(file: Path) -> Mapping[str, Any]:
    """Of the same time; without one of that name, the only one there is."""
    time = re.search(r"_(\d{4}-\d{2}-\d{2}T[^.]*(?:\.\d+)?)\.jsonl$", file.name)
    every = sorted(file.parent.glob("results_*.json"))
    same = [path for path in every if time and time[1] in path.name] or (every if len(every) == 1 else [])
    whole = _json(same[0]) if same else {}
    return whole if isinstance(whole, Mapping) else {}


def _d2cache(file: Path, whole: Mapping[str, Any], task: str, rows: Any) -> Log:
    speeds = {
        name: whole[name] for name in ("tps", "throughput", "full_tps", "full_throughput", "latency") if name in whole
    }
    model = whole.get("model_name")
    log = Log("d2Cache" if speeds else "lm-eval", [file], task=task, model=str(model) if model else None, facts=speeds)
    if not isinstance(rows, Sequence) or not rows:
        raise LogError(f"{file}: samples of {task} are no list of documents")
    log.answers = _documents(file, list(enumerate(rows, 1)))
    return log


def _documents(file: Path, rows: Sequence[tuple[int, Any]]) -> list[Answer]:
    """A document that stands there once for each filter is one answer; its verdict is that of the first filter. Of
    several texts of a document lm-eval says one thing for all, which is a verdict of none.
    """
    found: dict[tuple[int, int], Answer] = {}
    for line, row in rows:
        try:
            document, texts = _number(row["doc_id"]), _texts(row["resps"])
            doc = row.get("doc")
        except (KeyError, TypeError, ValueError) as error:
            raise LogError(f"{file}, line {line}: no document of lm-eval ({type(error).__name__}: {error})") from None
        for sample, text in enumerate(texts):
            answer = Answer(
                text, index=document, sample=sample, prompt=_prompt(row.get("arguments")),
                doc=doc if isinstance(doc, Mapping) else None, theirs=_verdict(row) if len(texts) == 1 else None,
            )  # fmt: skip
            before = found.setdefault((document, sample), answer)
            if (before.text, before.doc) != (answer.text, answer.doc):
                raise LogError(
                    f"{file}, line {line}: document {document} has another answer than before; allowed: the file of "
                    "one run, in which a document stands once for each filter"
                )
    return [found[key] for key in sorted(found)]


def _number(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"doc_id is {value!r}, not a number from 0 on")
    return value


def _texts(resps: Any) -> list[str]:
    """`[["text"]]`, with several texts for several samples; a log-likelihood is a pair of numbers."""
    found = resps if isinstance(resps, list) else []
    texts = [text for one in found for text in (one if isinstance(one, list) else [one])]
    if not texts:
        raise ValueError("resps is no list of texts")
    if not all(isinstance(text, str) for text in texts):
        raise ValueError("resps hold numbers: a log-likelihood task generates no text")
    return texts


def _prompt(arguments: Any) -> str | None:
    """The first argument of the request: lm-eval has written it in two ways."""
    if isinstance(arguments, Mapping):
        first = next(iter(arguments.values()), None)
        found = first.get("arg_0") if isinstance(first, Mapping) else None
    else:
        first = arguments[0] if isinstance(arguments, list) and arguments else None
        found = first[0] if isinstance(first, list) and first else first
    return found if isinstance(found, str) else None


def _verdict(row: Mapping[str, Any]) -> bool | None:
    told = row.get("metrics")
    names = told if told and isinstance(told, list) else ("exact_match", "pass@1", "pass_at_1", "acc")
    value = next((row[name] for name in names if isinstance(name, str) and name in row), None)
    return bool(value) if isinstance(value, bool | int | float) and value in (0, 1) else None


def _ranks(by_rank: Mapping[int, Path]) -> Log:
    """The answers of all processes, dealt back into the order of the requests."""
    size, files = len(by_rank), list(by_rank.values())
    if sorted(by_rank) != list(range(size)):
        raise LogError(
            f"{files[0].parent}: rank_*.jsonl of processes {', '.join(map(str, sorted(by_rank)))}; a run of {size} has "
            f"those of 0 to {size - 1}, and without all of them nobody knows which answer belongs to which problem"
        )
    log = Log("rank files", files)
    used: list[Path] = []
    for rank, file in sorted(by_rank.items()):
        texts = list(_lines(file))
        counts = _counts(file.with_name(f"rank_{rank}_samples.jsonl"), used)
        for number, (line, text) in enumerate(texts):
            if not isinstance(text, str):
                raise LogError(f"{file}, line {line}: {type(text).__name__} where the text of an answer belongs")
            own = counts.get(number, {})
            log.answers.append(
                Answer(
                    text, index=rank + number * size, tokens=own.get("generated_tokens"), calls=own.get("nfe"),
                    seconds=own.get("latency_seconds"),
                )
            )  # fmt: skip
    log.files += used
    log.answers.sort(key=lambda answer: answer.index or 0)
    return log


def _counts(file: Path, used: list[Path]) -> dict[int, Mapping[str, Any]]:
    """By the number of a process's own sample. The file is appended to: of two lines of a sample the last counts."""
    if not file.is_file():
        return {}
    used.append(file)
    found = {}
    for line, row in _lines(file):
        if not isinstance(row, Mapping) or not isinstance(row.get("sample_index"), int):
            raise LogError(f"{file}, line {line}: no sample_index")
        for name, kind in COUNTS.items():
            value = row.get(name)
            is_count = isinstance(value, kind) and not isinstance(value, bool) and 0 <= value < MOST  # NaN is none
            if value is not None and not is_count:
                raise LogError(f"{file}, line {line}: {name} is {value!r}; allowed: a number from 0 on, or null")
        found[row["sample_index"]] = row
    return found


def _evalplus(file: Path, rows: Sequence[tuple[int, Any]]) -> Log:
    log = Log("evalplus", [file])
    seen: dict[str, int] = {}
    for line, row in rows:
        text = row.get("solution", row.get("completion")) if isinstance(row, Mapping) else None
        if not isinstance(text, str) or not isinstance(row.get("task_id"), str | int):
            raise LogError(f"{file}, line {line}: no task_id, or neither solution nor completion")
        name = str(row["task_id"])
        log.answers.append(Answer(text, id=name, sample=seen.get(name, 0), is_program="solution" in row))
        seen[name] = seen.get(name, 0) + 1
    return log


def _json(file: Path) -> Any:
    try:
        return json.loads(_text(file))
    except NO_JSON as error:
        raise LogError(f"{file} is no JSON: {error}") from None


def _lines(file: Path) -> Iterator[tuple[int, Any]]:
    """The objects of a JSON-lines file with their line numbers."""
    for number, line in enumerate(_text(file).split("\n"), 1):
        if line.strip():
            try:
                yield number, json.loads(line)
            except NO_JSON as error:
                raise LogError(f"{file}, line {number} is no JSON: {error}") from None


def _text(file: Path) -> str:
    try:
        data = file.read_bytes()
    except OSError as error:
        raise LogError(f"{file} cannot be read: {error.strerror}") from None
    if data.startswith(GZIP):
        raise LogError(f"{file} is compressed; allowed: the file itself (gunzip)")
    try:
        return data.decode("utf-8-sig")
    except ValueError as error:
        raise LogError(f"{file} is no UTF-8: {error}") from None
