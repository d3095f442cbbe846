"""Every column of a sample that a server decoded, from a reply written down by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from lopa_bench.backends.outcome import Arrival, Outcome, Reply
from lopa_bench.run.replies import reply_columns
from lopa_bench.run.rows import Rows
from lopa_bench.settings.backend import ServerSettings
from tests.test_records_rows import SAMPLE, decoded, engine, plan, whole_row
from tests.test_records_rows import here as here  # the machine that rows tell of


class Words:
    """A codec that counts words."""

    def ids_of(self, text: str) -> list[int]:
        return list(range(len(text.split())))


REPLY = Reply(
    "It is 4 \n\nQ: more words", "length", ids=(5, 6), prompt_tokens=21, completion_tokens=9, cached_tokens=4,
    forwards=6, server_s=0.75, sent_s=3.5, attempts=2, arrivals=(Arrival(0.25, 1), Arrival(0.5, 2), Arrival(1.5, 3)),
)  # fmt: skip
REPLIED = {
    "token_source": "usage", "prompt_tokens": 21, "window_tokens": 9, "eos_tokens": 9, "content_tokens": 6,
    "finish_reason": "stop", "completion": "It is 4 \n\nQ: more words", "answer_text": "It is 4 ", "token_ids": [5, 6],
    "forwards": 6, "cached_tokens": 4, "attempts": 2, "sent_s": 3.5, "server_s": 0.75, "ttft_s": 0.25,
    "itl_s": [0.25, 1.0], "prefill_s": 0.25, "decode_s": 1.75,
}  # fmt: skip


def test_every_column_of_a_server_s_reply() -> None:
    served = plan()
    served.config.backend = ServerSettings(name="sglang", concurrency=7)
    at = engine()
    at.codec = Words()
    sample = decoded(Outcome(None, "length", total_s=2.0), reply=REPLY, peak_memory_bytes=None)
    row = whole_row(Rows("run-1", served, at).sample(sample))
    local = dict.fromkeys(("rounds", "rows", "tokens_processed", "peak_memory_bytes", "branch_ranks"))
    assert row == SAMPLE | local | REPLIED | {"total_s": 2.0, "concurrency": 7, "approximate": False}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"text": "It is 4"}, {"content_tokens": 9, "finish_reason": "length", "answer_text": "It is 4"}),
        ({"text": "It is 4", "ended_by": "token"}, {"content_tokens": 8, "eos_tokens": 9, "finish_reason": "eos"}),
        ({"text": "It is 4", "finish_reason": "stop"}, {"content_tokens": 9, "finish_reason": "stop"}),
        ({"ended_by": "token"}, {"content_tokens": 5, "finish_reason": "stop"}),
        ({"text": "a b c", "completion_tokens": None}, {"token_source": "text", "window_tokens": 3}),
        ({"text": "a b c", "completion_tokens": None, "ended_by": "token"}, {"content_tokens": 3, "eos_tokens": 3}),
        ({"text": "a", "thinking": "b c "}, {"completion": "<think>b c </think>a", "answer_text": "a"}),
        ({"text": "a", "thinking": "b c ", "completion_tokens": None}, {"window_tokens": 3}),
        ({"completion_tokens": 2}, {"content_tokens": 0}),
    ],
)  # fmt: skip
def test_tokens_and_reason_of_a_reply(changes: dict[str, Any], expected: dict[str, Any]) -> None:
    found = reply_columns(replace(REPLY, **changes), ["\n\nQ:"], Words(), 2.0)
    assert {name: found[name] for name in expected} == expected


def test_without_a_tokenizer_what_a_server_does_not_count_stays_unknown() -> None:
    silent = replace(REPLY, completion_tokens=None, prompt_tokens=None)
    found = reply_columns(silent, ["\n\nQ:"], None, 2.0)
    assert (found["token_source"], found["window_tokens"], found["content_tokens"]) == ("none", None, None)
    assert "prompt_tokens" not in found, "what the prompt had here stays"
    assert reply_columns(REPLY, ["\n\nQ:"], None, 2.0)["content_tokens"] is None, "what a stop string cut off"


@pytest.mark.parametrize(
    ("arrivals", "tokens", "singly"),
    [
        ((Arrival(0.5, 1), Arrival(1.0, 2)), 2, True),
        ((Arrival(0.5, 1), Arrival(1.0, 3)), 3, False),
        ((Arrival(0.5, 2), Arrival(1.0, 3)), 3, False),
        ((Arrival(0.5), Arrival(1.0)), 3, True),
        ((Arrival(0.5), Arrival(1.0)), 4, False),
        ((Arrival(0.5), Arrival(1.0)), None, False),
        ((), 3, False),
    ],
)
def test_times_between_tokens_need_tokens_that_came_singly(
    arrivals: tuple[Arrival, ...], tokens: int | None, singly: bool
) -> None:
    found = reply_columns(replace(REPLY, arrivals=arrivals, completion_tokens=tokens), [], None, 2.0)
    assert (found["ttft_s"], found["itl_s"]) == ((0.5, [0.5]) if singly else (None, None))
    assert (found["prefill_s"], found["decode_s"]) == ((0.5, 1.5) if singly else (None, None))
