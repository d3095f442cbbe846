"""OpenAI's protocol, completions and chat: what is sent, how tokens are counted, what thinking counts as."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lopa_bench.backends.outcome import Arrival, Reply
from lopa_bench.errors import BackendError
from lopa_bench.models.checkpoint.folders import locate
from lopa_bench.models.text.tokenizers import Codec, load_tokenizer
from lopa_bench.run.completion import complete, first_stop
from lopa_bench.run.replies import reply_columns, token_times
from tasks.types import Prompt
from tests.fake_server import Answer, completed, events, serving, whole
from tests.served_runs import config_for, gold_text, run_served, samples_of


def right(number: int, attempt: int, body: dict[str, Any]) -> Answer:
    return whole(completed(gold_text(number)))


@pytest.fixture(scope="module")
def codec() -> Codec:
    return Codec(load_tokenizer(locate("embedded:mini_ar")))


def test_a_completion_is_asked_for_by_ids(tmp_path: Path) -> None:
    with serving(right) as fake:
        result = run_served(config_for(tmp_path, fake.url, limit=1, name="openai", model_name="served-name"))
    [(path, body, _)] = fake.requests
    assert path == "/v1/completions"
    assert body | {"prompt": 0} == {"model": "served-name", "temperature": 0.0, "max_tokens": 64, "prompt": 0}
    assert isinstance(body["prompt"], list)
    assert result.row["aggregates"]["accuracy"] == 1.0


def test_a_chat_request_has_messages_and_the_variables_of_the_template(tmp_path: Path) -> None:
    reply = {"choices": [{"message": {"role": "assistant", "content": gold_text(0)}, "finish_reason": "stop"}]}
    with serving(lambda *_: whole(reply)) as fake:
        config = config_for(tmp_path, fake.url, limit=1, name="openai", api="chat")
        config.model.chat_template_kwargs = {"enable_thinking": False}
        result = run_served(config)
    [(path, body, _)] = fake.requests
    assert path == "/v1/chat/completions"
    assert [message["role"] for message in body["messages"]] == ["user"]
    assert body["chat_template_kwargs"] == {"enable_thinking": False}
    [row] = samples_of(result)
    assert row["correct"] is True
    assert (row["token_source"], row["window_tokens"], row["prompt_tokens"]) == ("none", None, None)
    assert result.row["aggregates"]["tps"] is None, "no usage record and no tokenizer here: nothing is guessed"


def test_a_plain_text_prompt_is_not_made_a_message_behind_one_s_back(tmp_path: Path) -> None:
    with serving(right) as fake:
        config = config_for(tmp_path, fake.url, name="openai", api="chat")
        config.task.prompt_style = "plain"
        with pytest.raises(BackendError, match=r"task.prompt_style=plain is plain text: allowed"):
            run_served(config)
    assert fake.requests == []


def test_without_a_usage_record_the_stated_tokenizer_counts_the_text(tmp_path: Path, codec: Codec) -> None:
    with serving(lambda *_: whole(completed(gold_text(0), tokens=None))) as fake:
        result = run_served(config_for(tmp_path, fake.url, limit=1, name="openai"))
    [row] = samples_of(result)
    assert row["token_source"] == "text"
    assert row["window_tokens"] == row["content_tokens"] == len(codec.ids_of(gold_text(0)))
    assert row["prompt_tokens"] > 20, "counted here too"


def test_the_key_comes_from_the_environment_and_is_nowhere_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", "sk-very-secret")
    with serving(right) as fake:
        result = run_served(config_for(tmp_path, fake.url, limit=1, name="openai", key_env="MY_KEY"))
    [(_, _, headers)] = fake.requests
    assert headers["Authorization"] == "Bearer sk-very-secret"
    for path in result.folder.rglob("*"):
        assert path.is_dir() or b"very-secret" not in path.read_bytes()


def test_a_stream_is_put_together_and_its_usage_record_read(tmp_path: Path) -> None:
    text = gold_text(0)
    pieces = [{"choices": [{"text": text[i : i + 4], "finish_reason": None}]} for i in range(0, len(text), 4)]
    last = [{"choices": [{"text": "", "finish_reason": "stop"}]}]
    usage = [{"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": len(pieces) + 1}}]
    with serving(lambda *_: events(pieces + last + usage)) as fake:
        result = run_served(config_for(tmp_path, fake.url, limit=1, name="openai", stream=True))
    assert fake.requests[0][1]["stream_options"] == {"include_usage": True}
    [row] = samples_of(result)
    assert row["completion"] == text
    assert (row["window_tokens"], row["content_tokens"]) == (len(pieces) + 1, len(pieces))
    assert row["ttft_s"] is not None
    assert len(row["itl_s"]) == len(pieces) - 1


def test_a_chat_stream_tells_thinking_from_answer(tmp_path: Path) -> None:
    def delta(reason: str | None = None, **parts: str) -> dict[str, Any]:
        return {"choices": [{"delta": parts, "finish_reason": reason}]}

    pieces = [delta(role="assistant"), delta(reasoning_content="Hm, 5?"), delta(content=gold_text(0)), delta("stop")]
    usage = [{"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 40}}]
    with serving(lambda *_: events(pieces + usage)) as fake:
        result = run_served(config_for(tmp_path, fake.url, limit=1, name="openai", api="chat", stream=True))
    [row] = samples_of(result)
    assert (row["answer_text"], row["correct"]) == (gold_text(0), True)
    assert row["completion"] == f"<think>Hm, 5?</think>{gold_text(0)}"
    assert (row["window_tokens"], row["content_tokens"]) == (40, 39)
    assert row["ttft_s"] is None, "two pieces of forty tokens did not come singly"


def _columns(reply: Reply, codec: Codec | None = None, stop: tuple[str, ...] = ("Q:",)) -> dict[str, Any]:
    return reply_columns(reply, stop, codec, total_s=2.0)


def test_thinking_counts_as_tokens_and_never_as_answer() -> None:
    apart = _columns(Reply("It is 3.", "stop", thinking="Perhaps 5? Q: no", completion_tokens=20, ended_by="token"))
    assert apart["answer_text"] == "It is 3."
    assert apart["completion"] == "<think>Perhaps 5? Q: no</think>It is 3."
    assert (apart["window_tokens"], apart["content_tokens"]) == (20, 19)
    never_ended = _columns(Reply("", "length", thinking="Let me see", completion_tokens=20))
    assert (never_ended["answer_text"], never_ended["finish_reason"]) == ("", "length")


def test_a_stop_string_inside_thinking_stops_nothing() -> None:
    text = "<think>Q: hm</think>It is 3. Q: next"
    answer = text.removesuffix("Q: next")
    assert _columns(Reply(text, "stop"))["answer_text"] == answer
    ids = list(range(len(text)))
    assert complete(ids, (), ("Q:",), lambda some: text[: len(some)]).answer == answer, "the same rule for a model here"
    assert first_stop("It is 3.", ("Q:", "")) == -1


def test_what_a_stop_string_cuts_off_is_no_content(codec: Codec) -> None:
    text = "He has 3 cards.\n#### 3"
    total = len(codec.ids_of(text + "Q: 5"))
    row = _columns(Reply(text + "Q: 5", "stop", completion_tokens=total + 1, ended_by="token"), codec)
    assert (row["answer_text"], row["finish_reason"]) == (text, "stop")
    assert row["content_tokens"] == len(codec.ids_of(text))
    assert _columns(Reply(text + "Q: 5", "stop", completion_tokens=total))["content_tokens"] is None, (
        "unknown, not guessed"
    )


@pytest.mark.parametrize(
    ("tokens", "singly"),
    [([1, 2, 3], True), ([None] * 3, True), ([2, 3, 4], False), ([1, 3, 4], False), ([8, 16], False), ([None], False)],
)
def test_token_times_need_tokens_that_come_singly(tokens: list[int | None], singly: bool) -> None:
    arrivals = tuple(Arrival(0.1 * (i + 1), count) for i, count in enumerate(tokens))
    first, gaps = token_times(Reply("x", "stop", completion_tokens=4, arrivals=arrivals))
    assert (first is not None, gaps is not None) == (singly, singly)


class _Tokenizer:
    """Words are tokens; the chat template writes the start token itself, as many do."""

    bos_token = "<s>"

    def __call__(self, text: str, add_special_tokens: bool) -> dict[str, list[int]]:
        assert not add_special_tokens
        return {"input_ids": [1 if word == "<s>" else 7 for word in text.split()]}

    def apply_chat_template(self, messages: list[Any], **_: Any) -> str:
        return "<s> " + " ".join(message["content"] for message in messages)


@pytest.mark.parametrize("messages", [None, ({"role": "user", "content": "a b"},)])
def test_a_prompt_has_exactly_one_start_token(messages: Any) -> None:
    codec = Codec(_Tokenizer(), start_id=1)
    prompt = Prompt("a b", messages)
    assert codec.encode(prompt) == [1, 7, 7]
    assert "<s>" not in codec.text(prompt), "as text, the server adds it"


def test_continued_answers_are_continued_by_the_server(tmp_path: Path) -> None:
    from lopa_bench.backends.server.protocols import Ask, OpenAI
    from lopa_bench.settings.backend import ServerSettings

    settings = ServerSettings("openai", url="http://x", api="chat")
    ask = Ask(({"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}), 5, 0.0, 0)
    body = OpenAI(settings, "m", {}).body(ask)
    assert json.loads(json.dumps(body))["continue_final_message"] is True
    assert body["add_generation_prompt"] is False
