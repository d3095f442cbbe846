"""Replies as servers really send them: without text, with null fields, in parts, refused, cut; in one piece or many."""

from __future__ import annotations

import time
from email.utils import formatdate
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lopa_bench.backends.outcome import Reply
from lopa_bench.backends.server import http
from lopa_bench.backends.server.http import Answer as HttpAnswer
from lopa_bench.backends.server.http import Failure
from lopa_bench.backends.server.protocols import PROTOCOLS, Ask
from lopa_bench.plan.units import sample_seed
from lopa_bench.settings.backend import ServerSettings
from tests.fake_server import Answer, completed, events, generated, serving, whole
from tests.served_runs import config_for, gold_text, run_served, samples_of

USAGE = {"prompt_tokens": 7, "completion_tokens": 16}


def chat(message: Any, finish: Any = "stop", usage: Any = USAGE) -> dict[str, Any]:
    return {"choices": [{"message": message, "finish_reason": finish}], "usage": usage}


def read(name: str, *values: Any, stream: bool = False) -> Reply:
    api = "generate" if name == "sglang" else "chat"
    protocol = PROTOCOLS[name](ServerSettings(name, url="http://x", api=api, stream=stream), "m", {})
    return protocol.reply(HttpAnswer([(0.1 * n, value) for n, value in enumerate(values, 1)], 1.0, 1))


def in_pieces(reply: dict[str, Any]) -> list[dict[str, Any]]:
    """The same chat reply as a stream: what is said, the end, the usage record."""
    [choice] = reply["choices"]
    return [
        {"choices": [{"delta": choice["message"], "finish_reason": None}], "usage": None},
        {"choices": [{"delta": None, "finish_reason": choice["finish_reason"]}]},
        {"choices": [], "usage": reply["usage"]},
    ]


WITHOUT_TEXT = [  # message, the server's reason, status, our reason
    ({"content": None, "reasoning_content": "Hm, 5?"}, "stop", "no_text", "stop"),
    ({"content": "", "reasoning": "Hm, 5?"}, "length", "no_text", "length"),
    ({"content": [{"type": "thinking", "thinking": "Hm"}]}, "length", "no_text", "length"),
    ({"content": None}, "length", "no_text", "length"),
    ({"content": " \n"}, "max_tokens", "no_text", "length"),
    ({"content": None, "refusal": "I cannot."}, "stop", "refusal", "stop"),
    ({"content": None, "tool_calls": [{"id": 1}]}, "tool_calls", "tool_call", "stop"),
    ({"content": "The answer", "refusal": None}, "content_filter", "filtered", "other"),
    ({"content": None}, "stop", "not_decoded", "empty"),
]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize(("message", "finish", "status", "reason"), WITHOUT_TEXT)
def test_a_reply_without_an_answer_keeps_its_counts_and_says_why(
    message: Any, finish: str, status: str, reason: str, stream: bool
) -> None:
    value = chat(message, finish)
    reply = read("openai", *(in_pieces(value) if stream else [value]), stream=stream)
    assert (reply.unjudged, reply.finish_reason) == (status, reason)
    assert (reply.prompt_tokens, reply.completion_tokens) == (7, 16)
    assert reply.error


@pytest.mark.parametrize("api", ["chat", "completions", "generate"])
def test_a_row_without_an_answer_is_neither_right_nor_wrong(api: str, tmp_path: Path) -> None:
    """Cut by its length before the first word of the answer, 16 tokens later."""
    reply: dict[str, Any] = {
        "chat": chat({"content": "", "reasoning_content": "Let me see"}, "length"),
        "completions": completed("", tokens=16, finish_reason="length"),
        "generate": generated("", tokens=16, finish_reason={"type": "length"}),
    }[api]
    name = "sglang" if api == "generate" else "openai"
    with serving(lambda *_: whole(reply)) as fake:
        result = run_served(config_for(tmp_path, fake.url, limit=1, name=name, api=api))
    [row] = samples_of(result)
    assert (row["correct"], row["score_status"], row["finish_reason"]) == (None, "no_text", "length")
    assert (row["prompt_tokens"], row["window_tokens"], row["token_source"]) == (7, 16, "usage")
    assert row["answer_text"] == ""
    assert row["error"].startswith("the reply has no text")
    numbers = result.row["aggregates"]
    assert (numbers["accuracy"], numbers["judged"], numbers["errors"]) == (None, 0, 0)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize(
    ("message", "text", "thinking"),
    [
        ({"content": [{"type": "text", "text": "It is "}, {"type": "text", "text": "3."}]}, "It is 3.", ""),
        ({"content": [{"type": "reasoning", "text": "Hm"}, "It is ", {"text": "3."}]}, "It is 3.", "Hm"),
        ({"content": "It is 3.", "refusal": None, "tool_calls": []}, "It is 3.", ""),
        ({"content": "It is 3.", "reasoning_content": None, "reasoning": "Hm"}, "It is 3.", "Hm"),
        ({"content": "It is 3.", "tool_calls": [{"id": 1}]}, "It is 3.", ""),
    ],
)
def test_the_text_is_found_wherever_it_is(message: Any, text: str, thinking: str, stream: bool) -> None:
    value = chat(message)
    reply = read("openai", *(in_pieces(value) if stream else [value]), stream=stream)
    assert (reply.text, reply.thinking, reply.unjudged, reply.finish_reason) == (text, thinking, None, "stop")


@pytest.mark.parametrize(
    ("usage", "tokens"),
    [
        (None, None), ({}, None), ("16", None), ([], None),
        ({"completion_tokens": "16"}, 16), ({"completion_tokens": 16.0}, 16), ({"completion_tokens": 0}, 0),
        ({"completion_tokens": None}, None), ({"completion_tokens": -1}, None), ({"completion_tokens": True}, None),
        ({"completion_tokens": "many"}, None), ({"completion_tokens": 1.5}, None), ({"completion_tokens": "²"}, None),
        ({"completion_tokens": 16, "prompt_tokens_details": None}, 16),
        ({"completion_tokens": 16, "prompt_tokens_details": "none"}, 16),
    ],
)  # fmt: skip
def test_a_usage_record_is_read_as_far_as_it_holds_numbers(usage: Any, tokens: int | None) -> None:
    reply = read("openai", chat({"content": "It is 3."}, usage=usage))
    assert (reply.completion_tokens, reply.cached_tokens, reply.unjudged) == (tokens, None, None)
    meta = usage if isinstance(usage, dict) else {}
    sglang = {"text": "It is 3.", "meta_info": {"finish_reason": {"type": "stop"}, **meta}}
    assert read("sglang", sglang).completion_tokens == tokens


@pytest.mark.parametrize(
    ("finish", "reason"),
    [("stop", "stop"), ("eos", "stop"), ("end_turn", "stop"), ("STOP", "stop"), ("length", "length"),
     ("max_tokens", "length"), ("Length", "length"), ("done", "other"), ("paused", "other"), (7, "other")],
)  # fmt: skip
def test_how_a_reply_ended_is_what_the_server_says(finish: Any, reason: str) -> None:
    for reply in (
        read("openai", chat({"content": "It is 3."}, finish)),
        read("sglang", {"text": "It is 3.", "meta_info": {"finish_reason": {"type": finish}}}),
        read("sglang", {"text": "It is 3.", "meta_info": {"finish_reason": finish}}),
    ):
        assert (reply.finish_reason, reply.unjudged) == (reason, None)
        assert (reply.error is None) is (reason != "other")


@pytest.mark.parametrize("name", ["openai", "sglang"])
def test_length_stays_length_up_to_the_row(name: str, tmp_path: Path) -> None:
    cut = {
        "openai": completed("So it is 2", finish_reason="length"),
        "sglang": generated("So it is 2", finish_reason={"type": "length", "length": 64}),
    }[name]
    with serving(lambda *_: whole(cut)) as fake:
        result = run_served(config_for(tmp_path, fake.url, limit=1, name=name))
    [row] = samples_of(result)
    assert (row["finish_reason"], row["window_tokens"], row["content_tokens"]) == ("length", 5, 5)
    assert result.row["aggregates"]["finish_reasons"] == {"length": 1}


@pytest.mark.parametrize(
    ("value", "status"),
    [
        ({"choices": None, "usage": USAGE}, "invalid_reply"),
        ({"choices": [None]}, "invalid_reply"),
        ({"choices": []}, "invalid_reply"),
        ({}, "invalid_reply"),
        (chat(None, None), "invalid_reply"),
        (chat({"content": "x"}, None), "invalid_reply"),
        (chat({"content": 5}), "invalid_reply"),
        (chat({"content": "x"}, "error"), "server_error"),
        (chat({"content": "x"}, "abort"), "server_error"),
    ],
)
def test_what_is_no_reply_is_told(value: Any, status: str) -> None:
    with pytest.raises(Failure) as raised:
        read("openai", value)
    assert raised.value.status == status


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_an_error_with_status_200_is_an_error_of_the_server(stream: bool, tmp_path: Path) -> None:
    error = {"error": {"message": "out of memory"}}
    with serving(lambda *_: events([error]) if stream else whole(error)) as fake:
        result = run_served(config_for(tmp_path, fake.url, limit=1, name="openai", stream=stream, retries=0))
    [row] = samples_of(result)
    assert row["finish_reason"] == "server_error"
    assert "out of memory" in row["error"]


@pytest.mark.parametrize("name", ["openai", "sglang"])
def test_temperature_and_a_seed_for_each_sample_reach_the_server(name: str, tmp_path: Path) -> None:
    with serving(lambda number, *_: whole({**completed("2"), **generated("2")})) as fake:
        config = config_for(tmp_path, fake.url, limit=2, name=name)
        config.decoder.temperature = 0.7
        config.task.samples = 2
        config.run.seed = 5
        rows = samples_of(run_served(config))
    sent = [body if name == "openai" else body["sampling_params"] for _, body, _ in fake.requests]
    assert [body["temperature"] for body in sent] == [0.7] * 4
    seeds = [body["seed" if name == "openai" else "sampling_seed"] for body in sent]
    assert seeds == [sample_seed(5, row["problem_id"], row["sample_index"]) % 2**31 for row in rows]
    assert len(set(seeds)) == 4, "no two samples draw alike"
    assert [row["seed"] % 2**31 for row in rows] == seeds


def test_without_a_temperature_no_seed_is_sent() -> None:
    for name, protocol in PROTOCOLS.items():
        body = protocol(ServerSettings(name, url="http://x"), "m", {}).body(Ask([1], 5, 0.0, 3))
        sampling = body if name == "openai" else body["sampling_params"]
        assert sampling["temperature"] == 0.0
        assert not {"seed", "sampling_seed"} & sampling.keys()


@pytest.mark.parametrize(
    ("header", "waited"),
    [("3", 3.0), ("0.25", 0.25), ("0", 0.0), ("-5", 0.0), ("9999", 60.0), ("date", 20.0), ("soon", None), ("nan", None),
     ("inf", None), ("", None)],
)  # fmt: skip
def test_a_server_is_asked_again_when_it_wants_to_be(
    header: str, waited: float | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    waits: list[float] = []
    clock = SimpleNamespace(perf_counter=time.perf_counter, time=time.time, sleep=waits.append)
    monkeypatch.setattr(http, "time", clock)  # the client's own, as the server has one too
    value = formatdate(time.time() + 20, usegmt=True) if header == "date" else header

    def behave(number: int, attempt: int, body: Any) -> Answer:
        if attempt == 1:
            return whole({}, status=429, headers={"Retry-After": value})
        return whole(generated(gold_text(number)))

    with serving(behave) as fake:
        client = http.Client(fake.url, ServerSettings("sglang", url=fake.url, backoff_s=0.01), None)
        assert client.post("/generate", {"text": "a"}).attempts == 2
    [wait] = waits
    if waited is None:
        assert 0.005 < wait < 0.02, "as long as without"
    else:
        assert wait == pytest.approx(waited, abs=1.5 if header == "date" else 0)


def test_waits_double_from_the_backoff_on() -> None:
    client = http.Client("http://x", ServerSettings("sglang", url="http://x", backoff_s=0.5), None)
    for attempt, seconds in ((1, 0.5), (2, 1.0), (3, 2.0), (20, 60.0)):
        waits = [client._wait(attempt, None) for _ in range(20)]
        assert all(0.8 * seconds <= wait <= min(60.0, 1.2 * seconds) for wait in waits)
