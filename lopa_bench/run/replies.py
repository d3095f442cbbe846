"""From a server's reply to the columns of a sample row: its text, its tokens as the server counts them, its times."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from lopa_bench.backends.outcome import Arrival, Reply
from lopa_bench.models.text.tokenizers import Codec
from lopa_bench.run.completion import THINK_END, first_stop


def reply_columns(reply: Reply, stop: Sequence[str], codec: Codec | None, total_s: float) -> dict[str, Any]:
    """Text, tokens and times. `codec` counts tokens where the server does not; without it they stay unknown."""
    at = first_stop(reply.text, stop)
    answer = reply.text if at < 0 else reply.text[:at]
    counts = _counts(reply, answer, codec)
    first, gaps = token_times(reply)
    status = {} if reply.unjudged is None else {"score_status": reply.unjudged}
    return (
        counts
        | status
        | {
            "finish_reason": _finish_reason(reply, answer),
            "completion": f"<think>{reply.thinking}{THINK_END}{reply.text}" if reply.thinking else reply.text,
            "answer_text": answer,
            "token_ids": list(reply.ids or ()),
            "forwards": reply.forwards,
            "cached_tokens": reply.cached_tokens,
            "attempts": reply.attempts,
            "sent_s": reply.sent_s,
            "server_s": reply.server_s,
            "ttft_s": first,
            "itl_s": gaps,
            "prefill_s": first,
            "decode_s": None if first is None else total_s - first,
        }
    )


def _finish_reason(reply: Reply, answer: str) -> str:
    if answer != reply.text:
        return "stop"
    return "eos" if reply.ended_by == "token" else reply.finish_reason


def _counts(reply: Reply, answer: str, codec: Codec | None) -> dict[str, Any]:
    """Token counts and where they come from: the usage record, else the stated tokenizer, else nowhere.

    A server counts the end token as one of its own (SGLang, vLLM and transformers do). What a stop string cuts off is
    counted with the tokenizer.
    """
    total, source = reply.completion_tokens, "usage"
    if total is None:
        whole = reply.thinking + reply.text
        total, source = (len(codec.ids_of(whole)), "text") if codec else (None, "none")
    content = total
    if total is not None and answer != reply.text:
        content = max(0, total - len(codec.ids_of(reply.text[len(answer) :]))) if codec else None
    if content is not None and reply.ended_by == "token" and source == "usage":
        content = max(0, content - 1)
    counts = {"token_source": source, "window_tokens": total, "eos_tokens": total, "content_tokens": content}
    return counts if reply.prompt_tokens is None else counts | {"prompt_tokens": reply.prompt_tokens}


def token_times(reply: Reply) -> tuple[float | None, list[float] | None]:
    """Time to the first token and the times between tokens, in seconds, if the tokens came one by one; else None.

    A server that sends several tokens at once, as those of diffusion models do with whole blocks, has no first token
    whose time would say anything of the others.
    """
    arrivals = reply.arrivals
    if not arrivals:
        return None, None
    if all(arrival.tokens is not None for arrival in arrivals):
        singly = _counted_singly(arrivals)
    else:  # the end token has no text, and a piece of text may need more than one token
        singly = reply.completion_tokens is not None and len(arrivals) >= reply.completion_tokens - 1
    if not singly:
        return None, None
    return arrivals[0].seconds, [after.seconds - before.seconds for before, after in pairwise(arrivals)]


def _counted_singly(arrivals: Sequence[Arrival]) -> bool:
    numbers = [0, *(arrival.tokens or 0 for arrival in arrivals)]
    return all(after - before <= 1 for before, after in pairwise(numbers))
