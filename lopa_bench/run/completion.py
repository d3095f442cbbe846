"""What of a generation counts as content: everything before the first end token or stop string (METRICS.md)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

THINK_END = "</think>"


@dataclass(frozen=True)
class Completion:
    """`text` is cut at the end token, `answer` at the first stop string as well. Token counts are ids, never
    re-encoded text: `eos_tokens` up to and including the end token, `content_tokens` before end token or stop.
    """

    text: str
    answer: str
    eos_tokens: int
    content_tokens: int
    stopped: bool


def complete(
    ids: Sequence[int], end_ids: Sequence[int], stop: Sequence[str], decode: Callable[[Sequence[int]], str]
) -> Completion:
    """Splits generated ids at the first end token and the decoded text at the first stop string."""
    end = next((i for i, token in enumerate(ids) if token in end_ids), None)
    content = list(ids) if end is None else list(ids[:end])
    text = decode(content)
    at = first_stop(text, stop)
    eos_tokens = len(content) if end is None else len(content) + 1
    if at < 0:
        return Completion(text, text, eos_tokens, len(content), False)
    return Completion(text, text[:at], eos_tokens, _tokens_before(content, at, decode), True)


def first_stop(text: str, stop: Sequence[str]) -> int:
    """Where the first stop string begins; -1 if there is none. One inside a thinking passage stops nothing."""
    begin = text.find(THINK_END) + len(THINK_END) if THINK_END in text else 0
    return min((i for i in (text.find(s, begin) for s in stop if s) if i >= 0), default=-1)


def _tokens_before(ids: list[int], at: int, decode: Callable[[Sequence[int]], str]) -> int:
    """The most leading ids whose text ends at or before character `at` (bisection: text grows with ids)."""
    low, high = 0, len(ids)
    while low < high:
        middle = (low + high + 1) // 2
        if len(decode(ids[:middle])) <= at:
            low = middle
        else:
            high = middle - 1
    return low
