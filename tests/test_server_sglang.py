"""What is sent to SGLang's /generate, what is read from its answers, and what becomes of answers that are none."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest

from lopa_bench.errors import BackendError
from lopa_bench.models.checkpoint.folders import locate
from lopa_bench.models.text.tokenizers import load_tokenizer
from tests.fake_server import Answer, events, generated, serving, whole
from tests.served_runs import config_for, gold_text, run_served, samples_of


def right(number: int, attempt: int, body: dict[str, Any]) -> Answer:
    return whole(generated(gold_text(number)))


def test_a_request_holds_the_ids_and_the_sampling_parameters_and_no_stop_string(tmp_path: Path) -> None:
    with serving(right) as fake:
        result = run_served(config_for(tmp_path, fake.url, limit=1))
    [(path, body, _)] = fake.requests
    assert path == "/generate"
    assert body.keys() == {"input_ids", "sampling_params", "stream"}
    assert body["sampling_params"] == {"temperature": 0.0, "max_new_tokens": 64}
    prompt = "Adam has 3 cards. Betty has 2 times as many. Kate has 4 less than Betty. How many does Kate have?<sep>"
    assert body["input_ids"] == load_tokenizer(locate("embedded:mini_ar"))(prompt)["input_ids"]
    assert result.row["aggregates"]["accuracy"] == 1.0


def test_settings_reach_the_request(tmp_path: Path) -> None:
    more: dict[str, Any] = {"stop": True, "prompt": "text", "body": {"sampling_params": {"top_k": 1}, "lora_path": "x"}}
    with serving(right) as fake:
        config = config_for(tmp_path, fake.url, limit=1, **more)
        config.decoder.temperature = 0.5
        run_served(config)
    [(_, body, _)] = fake.requests
    assert body["text"].startswith("Adam has 3 cards.")
    assert body["text"].endswith("<sep>")
    assert body["lora_path"] == "x"
    sampling = body["sampling_params"]
    assert sampling.pop("sampling_seed") >= 0
    assert sampling == {
        "temperature": 0.5, "max_new_tokens": 64, "top_k": 1, "stop": ["\n\nQuestion:", "</s>", "<|im_end|>"],
    }  # fmt: skip


def test_the_reply_s_own_counts_and_clock_go_into_the_row(tmp_path: Path) -> None:
    reply = generated("So it is 2.\n#### 2", tokens=9, prompt_tokens=31, cached_tokens=4, nfe=3, e2e_latency=0.125)
    with serving(lambda *_: whole(reply, delay_s=0.2)) as fake:
        fake.info = {"dllm_algorithm": "LowConfidence", "version": "0.5", "api_key": "secret", "dtype": "bfloat16"}
        result = run_served(config_for(tmp_path, fake.url, limit=1, decoder="served", algorithm="LowConfidence"))
    [row] = samples_of(result)
    assert row["token_source"] == "usage"
    assert (row["prompt_tokens"], row["window_tokens"], row["eos_tokens"]) == (31, 9, 9)
    assert row["content_tokens"] == 8, "the end token, which the server says has matched, is one of the nine"
    assert (row["cached_tokens"], row["forwards"], row["server_s"]) == (4, 3, 0.125)
    assert row["total_s"] >= 0.2, "the client's clock"
    assert (row["prefill_s"], row["decode_s"], row["ttft_s"]) == (None, None, None), "nothing tells them apart"
    assert (row["rounds"], row["rows"], row["tokens_processed"]) == (None, None, None)
    assert row["finish_reason"] == "eos"
    numbers = result.row["aggregates"]
    assert numbers["tpf"] == pytest.approx(8 / 3)
    assert numbers["tps_server"] == pytest.approx(8 / 0.125)
    assert numbers["cached_prompts"] == 1
    assert result.row["dtype"] == "bfloat16"
    assert "secret" not in json.dumps(result.row), "a server's information holds its key"


def test_without_reported_forwards_there_is_no_tpf(tmp_path: Path) -> None:
    with serving(right) as fake:
        result = run_served(config_for(tmp_path, fake.url))
    assert result.row["aggregates"]["tpf"] is None
    assert result.row["k"] is None
    assert result.row["aggregates"]["tps"] > 0


def test_ten_requests_of_which_three_come_to_nothing(tmp_path: Path) -> None:
    """One HTTP 500 on every attempt, one timeout, one HTTP 400, seven right."""

    def behave(number: int, attempt: int, body: dict[str, Any]) -> Answer:
        if number == 2:
            return whole({"error": {"message": "out of blocks"}}, status=500)
        if number == 4:
            return Answer([b"{}"], delay_s=1.5)
        if number == 6:
            return whole({"error": {"message": "temperature must be a number"}}, status=400)
        return right(number, attempt, body)

    with serving(behave) as fake:
        result = run_served(config_for(tmp_path, fake.url, limit=10, timeout_s=0.5, retries=2))
    numbers, rows = result.row["aggregates"], samples_of(result)
    assert (numbers["accuracy"], numbers["judged"]) == (1.0, 7)
    assert numbers["accuracy_attempted"] == 0.7
    assert (numbers["n"], numbers["errors"], numbers["complete"]) == (10, 3, False)
    assert numbers["finish_reasons"] == {"eos": 7, "server_error": 1, "timeout": 1, "refused": 1}
    assert rows[2]["error"] == "HTTP 500: out of blocks (3 attempts)"
    assert rows[4]["error"] == "no answer within 0.5 s"
    assert rows[6]["error"] == "HTTP 400: temperature must be a number"
    assert [rows[i]["correct"] for i in (2, 4, 6)] == [None, None, None]
    assert sum(number == 2 for number in map(_number(fake.requests), fake.requests)) == 3


def _number(requests: list[Any]) -> Any:
    order = list(dict.fromkeys(str(body["input_ids"]) for _, body, _ in requests))
    return lambda request: order.index(str(request[1]["input_ids"]))


def test_what_helps_is_tried_again_and_costs_the_sample_no_time(tmp_path: Path) -> None:
    def behave(number: int, attempt: int, body: dict[str, Any]) -> Answer:
        if attempt == 1:
            return whole({}, status=503, delay_s=0.3)
        if attempt == 2:
            return whole({}, status=429, headers={"Retry-After": "0.2"})
        if attempt == 3:
            return Answer([b'{"text":'], cut=True)  # the connection breaks
        return right(number, attempt, body)

    with serving(behave) as fake:
        began = time.perf_counter()
        result = run_served(config_for(tmp_path, fake.url, limit=1))
        assert time.perf_counter() - began > 0.5
    [row] = samples_of(result)
    assert (row["attempts"], row["correct"]) == (4, True)
    assert row["total_s"] < 0.2


@pytest.mark.parametrize(
    ("answer", "status", "message"),
    [
        (Answer([b'{"text": "So', b" it"]), "invalid_reply", "no JSON"),
        (Answer([b"[]"]), "invalid_reply", "a JSON list where an object was due"),
        (whole({"text": "2"}), "invalid_reply", "KeyError: 'meta_info'"),
        (whole({"text": "2", "meta_info": {}}), "invalid_reply", "before its end"),
        (whole(generated("", tokens=0)), "empty", "the reply has no text"),
        (whole({**generated("x"), "text": None}), "empty", "the reply has no text"),
        (whole(generated("2", finish_reason={"type": "abort", "message": "stopped"})), "server_error", "aborted"),
        (whole({"error": {"message": "Input is longer than the model's context length"}}, status=400),
         "prompt_too_long", "context length"),
        (Answer([b"x"] * 20, pause_s=0.1), "timeout", "0.5 s"),
    ],
)  # fmt: skip
def test_an_answer_that_is_none_has_a_status_of_its_own_and_is_not_wrong(
    answer: Answer, status: str, message: str, tmp_path: Path
) -> None:
    with serving(lambda *_: answer) as fake:
        result = run_served(config_for(tmp_path, fake.url, limit=1, timeout_s=0.5, retries=0))
    [row] = samples_of(result)
    assert (row["finish_reason"], row["correct"], row["score_status"]) == (status, None, "not_decoded")
    assert message in row["error"]
    assert result.row["aggregates"]["accuracy"] is None


def test_a_prompt_that_does_not_fit_is_not_sent(tmp_path: Path) -> None:
    with serving(right) as fake:
        config = config_for(tmp_path, fake.url, limit=1)
        config.decoder.gen_length = 500
        result = run_served(config)
    assert samples_of(result)[0]["finish_reason"] == "prompt_too_long"
    assert fake.requests == []


def test_a_first_request_that_is_refused_ends_the_run(tmp_path: Path) -> None:
    with serving(lambda *_: whole({"detail": "no such adapter"}, status=404)) as fake:
        config = config_for(tmp_path, fake.url)
        config.run.warmup = 1
        with pytest.raises(BackendError, match="HTTP 404: no such adapter"):
            run_served(config)


def test_a_server_with_another_model_is_refused_by_name(tmp_path: Path) -> None:
    with serving(right) as fake:
        fake.info = {"model_path": "Qwen/Qwen2.5-0.5B"}
        with pytest.raises(
            BackendError, match=r"has the model Qwen/Qwen2.5-0.5B.*allowed.*model_name=Qwen/Qwen2.5-0.5B"
        ):
            run_served(config_for(tmp_path, fake.url))
        run_served(config_for(tmp_path, fake.url, model_name="Qwen/Qwen2.5-0.5B"))


@pytest.mark.parametrize(("algorithm", "decoder"), [("LowConfidence", "ar"), (None, "served")])
def test_a_row_is_not_labelled_with_a_decoding_that_the_server_does_not_do(
    algorithm: str | None, decoder: str, tmp_path: Path
) -> None:
    with serving(right) as fake:
        fake.info = {"dllm_algorithm": algorithm}
        with pytest.raises(BackendError, match=f"decoder={decoder} would be a wrong label"):
            run_served(config_for(tmp_path, fake.url, decoder=decoder))


def test_no_server_is_one_message(tmp_path: Path) -> None:
    with serving(right) as fake:
        url = fake.url
    with pytest.raises(BackendError, match=re.escape(f"backend.url={url} does not answer")):
        run_served(config_for(tmp_path, url))


def test_the_cache_is_emptied_before_each_request_if_asked(tmp_path: Path) -> None:
    with serving(right) as fake:
        run_served(config_for(tmp_path, fake.url, flush_cache=True))
    assert fake.flushed == 3


def _stream(tokens: list[int], text: str) -> list[dict[str, Any]]:
    """The text so far after each of these numbers of tokens."""
    end = tokens[-1]
    return [
        generated(
            text[: len(text) * n // end], tokens=n, finish_reason={"type": "stop", "matched": 1} if n == end else None
        )
        for n in tokens
    ]


def test_tokens_that_come_singly_have_times(tmp_path: Path) -> None:
    with serving(lambda number, *_: events(_stream([1, 2, 3, 4], gold_text(number)), pause_s=0.05)) as fake:
        result = run_served(config_for(tmp_path, fake.url, limit=1, stream=True))
    [row] = samples_of(result)
    assert row["correct"] is True
    assert row["ttft_s"] == row["prefill_s"] < 0.1
    assert row["decode_s"] == pytest.approx(row["total_s"] - row["ttft_s"])
    assert len(row["itl_s"]) == 3
    assert all(0.03 < gap < 0.2 for gap in row["itl_s"])
    assert result.row["aggregates"]["ttft_percentiles_s"]["p50"] == pytest.approx(row["ttft_s"])


def test_a_server_that_sends_whole_blocks_has_no_first_token_and_no_decode_speed(tmp_path: Path) -> None:
    with serving(lambda number, *_: events(_stream([4, 8, 9], gold_text(number)))) as fake:
        result = run_served(config_for(tmp_path, fake.url, limit=1, stream=True))
    [row] = samples_of(result)
    assert (row["ttft_s"], row["itl_s"], row["prefill_s"], row["decode_s"]) == (None, None, None, None)
    assert result.row["aggregates"]["tps_decode"] is None


@pytest.mark.parametrize("stream", [False, True])
def test_a_text_may_hold_what_some_take_for_the_end_of_a_line(stream: bool, tmp_path: Path) -> None:
    text = "a\u2028b\u0085c\x0b\x1cd\ne"
    answer = json.dumps(generated(text), ensure_ascii=False).encode()
    pieces = [b"data: " + answer[:40], answer[40:] + b"\r\n\r\ndata: [DONE]\n\n"] if stream else [answer]
    with serving(lambda *_: Answer(pieces, pause_s=0.05)) as fake:
        result = run_served(config_for(tmp_path, fake.url, limit=1, stream=stream))
    assert samples_of(result)[0]["completion"] == text


@pytest.mark.parametrize("tail", [[], [{"error": {"message": "boom"}}]])
def test_a_stream_that_breaks_off_is_no_answer(tail: list[Any], tmp_path: Path) -> None:
    cut = [*_stream([1, 2, 3], "So it is 2")[:2], *tail]
    with serving(lambda *_: events(cut, done=False)) as fake:
        result = run_served(config_for(tmp_path, fake.url, limit=1, stream=True, retries=0))
    assert samples_of(result)[0]["finish_reason"] == ("server_error" if tail else "invalid_reply")
