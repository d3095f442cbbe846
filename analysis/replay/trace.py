"""One sample of one run as the replay page shows it: tokens by position, and what each call filled.

A call verifies the branches that the call before it proposed. So a step takes, first, the extra token of the winning
branch and then the positions that the fill rule fills from the winner's own prediction.
"""

from __future__ import annotations

from itertools import accumulate
from typing import Any

from analysis.labels import decoding, model_of, source_of, task_of
from analysis.replay.tokens import TokenText, token_text
from analysis.text import plain
from lopa_bench.errors import RunError
from lopa_bench.records.runs import Run
from lopa_bench.records.schema import ERROR_REASONS

Row = dict[str, Any]
READS = (  # of the steps
    "winner", "scores", "lookahead_positions", "lookahead_tokens", "positions", "tokens", "probs", "lookahead_counts",
    "taken_positions", "taken_tokens", "taken_probs", "seconds", "edit_positions", "edit_old", "edit_new",
)  # fmt: skip


def trace(run: Run, sample: str, sample_index: int = 0) -> dict[str, Any]:
    """Everything about a sample, as plain data. Raises RunError when it was not decoded step by step."""
    rows, steps = run.whole_rows(sample, sample_index)
    if not rows:
        known = ", ".join(sample_ids(run)[:5])
        raise RunError(f"{run.id} has no sample {sample!r}; its samples: {known}, ... (--sample also takes a position)")
    return trace_of(run, rows[0], steps, token_text(run))


def trace_of(run: Run, row: Row, steps: list[Row], text: TokenText | None) -> dict[str, Any]:
    """The same of rows that were read before; `steps` in their order."""
    _check(run, row, steps)
    start, ids = row["prompt_tokens"], row["token_ids"]
    ends = _ends(steps)
    calls = [
        _call(step, start, text) | _edits(steps, number, start, text) | {"done": end}
        for number, (step, end) in enumerate(zip(steps, ends, strict=True))
    ]
    tokens: dict[int, int] = {}
    for step in steps:
        tokens |= dict(_filled(step, start))
        tokens |= {position - start: new for position, _, new in _edited(step)}
    unseen = [position for position in range(len(ids)) if position not in tokens]
    if unseen:  # a lookahead branch was complete before it was verified: no call was needed for its token
        calls.append(
            {
                "fill": [[position, None] for position in unseen],
                "extra": None,
                "branches": [],
                "call": False,
                "done": ends[-1],
            }
        )
    tokens |= dict(enumerate(ids))
    return {
        "run": plain(run.id),
        "title": decoding(run),
        "model": model_of(run),
        "problem": plain(row["problem_id"]),
        "tokens": [_token(tokens.get(p), p, len(ids), text) for p in range(max(tokens, default=-1) + 1)],
        "steps": calls,
        "calls": row["forwards"],
        "content": row["content_tokens"],
        "prompt": row["prompt"],
        "verdict": _verdict(row),
        "facts": plain(f"{task_of(run)}; {source_of(run)}; {run.backend} on {run.device} {run.dtype}"),
        "decoded": text is not None,
    }


def _ends(steps: list[Row]) -> list[float | None]:
    """When each call was over, in seconds since the first began; null where no call has a time, as in a batch."""
    seconds = [step["seconds"] for step in steps]
    if any(one is None for one in seconds):
        return [None] * len(steps)
    return [round(end, 6) for end in accumulate(seconds)]


def sample_ids(run: Run) -> list[str]:
    return [str(name) for name in run.samples["problem_id"].to_pylist()]


def _check(run: Run, row: Row, steps: list[Row]) -> None:
    sample = row["problem_id"]
    if row["finish_reason"] in ERROR_REASONS:
        raise RunError(f"sample {sample} of {run.id} was not decoded: {row['finish_reason']}")
    if not steps or row["prompt_tokens"] is None:
        raise RunError(
            f"{run.id} has no steps of sample {sample}: a server does not tell them, and no replay can be made"
        )
    for step in steps:
        if step["taken_positions"] is None and not 0 <= step["winner"] <= len(step["lookahead_positions"]):
            raise RunError(f"{run.id}, sample {sample}: step {step['step']} was won by a branch that it does not have")


def _filled(step: Row, start: int) -> list[tuple[int, int]]:
    """Positions (from the first generated one) and tokens that a step added, the winner's extra one first."""
    pairs = list(zip(step["positions"], step["tokens"]))
    if step["taken_positions"] is not None:
        pairs = [*zip(step["taken_positions"], step["taken_tokens"]), *pairs]
    elif step["winner"] > 0:
        rank = step["winner"] - 1
        pairs.insert(0, (step["lookahead_positions"][rank], step["lookahead_tokens"][rank]))
    return [(position - start, token) for position, token in pairs]


def _edited(step: Row) -> list[tuple[int, int, int]]:
    """Positions of a decoder that edits, with the ids there before and after."""
    return list(zip(step["edit_positions"] or (), step["edit_old"] or (), step["edit_new"] or ()))


def _edits(steps: list[Row], number: int, start: int, text: TokenText | None) -> dict[str, Any]:
    """Each edit of a call as position, text before and text behind it; no text where the token was taken back, since
    only then a later call fills the position again.
    """
    if steps[number]["edit_positions"] is None:
        return {}
    filled_later = {position for step in steps[number + 1 :] for position in step["positions"]}
    return {
        "edits": [
            [position - start, _show(old, text), None if position in filled_later else _show(new, text)]
            for position, old, new in _edited(steps[number])
        ]
    }


def _call(step: Row, start: int, text: TokenText | None) -> dict[str, Any]:
    if step["taken_positions"] is not None:
        return _draft(step, start, text)
    extras = list(zip(step["lookahead_positions"], step["lookahead_tokens"]))
    scores = list(step["scores"])
    branches = [
        {
            "position": None if rank == 0 or rank > len(extras) else extras[rank - 1][0] - start,
            "text": None if rank == 0 or rank > len(extras) else _show(extras[rank - 1][1], text),
            "score": round(score, 4),
            "won": rank == step["winner"],
        }
        for rank, score in enumerate(scores)
    ]
    fill = [[position - start, round(prob, 4)] for position, prob in zip(step["positions"], step["probs"])]
    extra = extras[step["winner"] - 1][0] - start if step["winner"] > 0 else None
    return {"fill": fill, "extra": extra, "branches": branches, "call": True}


def _draft(step: Row, start: int, text: TokenText | None) -> dict[str, Any]:
    """A call that followed a draft: each row by what it assumes beyond the row before it, without a score."""
    branches: list[dict[str, Any]] = [{"position": None, "text": None, "score": None, "won": step["winner"] == 0}]
    at = 0
    for rank, count in enumerate(step["lookahead_counts"] or (), 1):
        part = slice(at, at + count)
        at += count
        branches.append(
            {
                "position": step["lookahead_positions"][part][0] - start,
                "text": "".join(_show(token, text) for token in step["lookahead_tokens"][part]),
                "score": None,
                "won": rank == step["winner"],
            }
        )
    filled = [*zip(step["taken_positions"], step["taken_probs"]), *zip(step["positions"], step["probs"])]
    fill = [[position - start, round(prob, 4)] for position, prob in filled]
    return {"fill": fill, "extra": None, "branches": branches, "call": True}


def _token(token: int | None, position: int, length: int, text: TokenText | None) -> dict[str, Any]:
    """`behind`: right of the end token, so that it is no part of the answer."""
    return {"text": "" if token is None else _show(token, text), "id": token, "behind": position >= length}


def _show(token: int, text: TokenText | None) -> str:
    return f"{token} " if text is None else text(token)


def _verdict(row: Row) -> str:
    judged = {True: "right", False: "wrong", None: "not judged"}[row["correct"]]
    return f"{judged}: answered {row['extracted'] or 'nothing'}, gold {row['gold']}"
