"""A server of a few lines that speaks SGLang's and OpenAI's protocols and misbehaves as it is told.

`behave(number, attempt, body)` gives the answer to the `attempt`-th request (from 1) with the `number`-th prompt seen.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Answer:
    """`pieces` are sent one after the other, `pause_s` apart; the whole answer is `delay_s` late."""

    pieces: Sequence[bytes]
    status: int = 200
    delay_s: float = 0.0
    pause_s: float = 0.0
    headers: Mapping[str, str] = field(default_factory=dict)
    cut: bool = False  # the connection breaks off instead of ending


Behave = Callable[[int, int, dict[str, Any]], Answer]


def whole(value: Any, **more: Any) -> Answer:
    return Answer([json.dumps(value).encode()], **more)


def events(values: Sequence[Any], done: bool = True, **more: Any) -> Answer:
    """A stream of server-sent events."""
    pieces = [f"data: {json.dumps(value)}\n\n".encode() for value in values]
    return Answer(pieces + [b"data: [DONE]\n\n"] * done, **more)


def generated(text: str, tokens: int = 5, **more: Any) -> dict[str, Any]:
    """What SGLang's /generate returns; `more` goes into meta_info."""
    meta = {
        "id": "1", "finish_reason": {"type": "stop", "matched": 1}, "prompt_tokens": 7, "completion_tokens": tokens,
        "cached_tokens": 0, "e2e_latency": 0.25,
    } | more  # fmt: skip
    return {"text": text, "meta_info": meta}


def completed(text: str | None, tokens: int | None = 5, **more: Any) -> dict[str, Any]:
    """What OpenAI's /v1/completions returns; `more` goes into the choice."""
    usage = {} if tokens is None else {"usage": {"prompt_tokens": 7, "completion_tokens": tokens, "total_tokens": 12}}
    return {"id": "1", "choices": [{"index": 0, "text": text, "finish_reason": "stop"} | more]} | usage


class Fake:
    """What was asked of the server so far, and what it says of itself."""

    def __init__(self, behave: Behave) -> None:
        self.behave = behave
        self.requests: list[tuple[str, dict[str, Any], dict[str, str]]] = []
        self.info: dict[str, Any] = {}
        self.flushed = 0
        self.under_way = self.most_under_way = 0
        self._seen: dict[str, tuple[int, int]] = {}
        self._lock = threading.Lock()
        self.url = ""

    def number(self, body: Mapping[str, Any]) -> tuple[int, int]:
        key = json.dumps(body.get("input_ids") or body.get("text") or body.get("prompt") or body.get("messages"))
        number, attempt = self._seen.get(key, (len(self._seen), 0))
        self._seen[key] = number, attempt + 1
        return number, attempt + 1

    def answer(self, path: str, body: dict[str, Any], headers: dict[str, str]) -> Answer:
        with self._lock:
            self.requests.append((path, body, headers))
            number, attempt = self.number(body)
            self.under_way += 1
            self.most_under_way = max(self.most_under_way, self.under_way)
        try:
            answer = self.behave(number, attempt, body)
            time.sleep(answer.delay_s)
            return answer
        finally:
            with self._lock:
                self.under_way -= 1


def _handler(fake: Fake) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

        def do_GET(self) -> None:
            known = {
                "/health": {},
                "/get_model_info": fake.info,
                "/get_server_info": fake.info,
                "/v1/models": {"data": []},
            }
            self._send(whole(known.get(self.path, {}), status=200 if self.path in known else 404))

        def do_POST(self) -> None:
            if self.path == "/flush_cache":
                fake.flushed += 1
                return self._send(Answer([b"Cache flushed."]))
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            return self._send(fake.answer(self.path, body, dict(self.headers)))

        def _send(self, answer: Answer) -> None:
            self.send_response(answer.status)
            for name, value in answer.headers.items():
                self.send_header(name, value)
            if answer.cut:
                self.send_header("Content-Length", str(sum(map(len, answer.pieces)) + 100))
            self.end_headers()
            try:
                for piece in answer.pieces:
                    self.wfile.write(piece)
                    self.wfile.flush()
                    time.sleep(answer.pause_s)
            except OSError:  # the client has gone
                pass

    return Handler


@contextmanager
def serving(behave: Behave, port: int = 0) -> Iterator[Fake]:
    """A fake at `url`; on `port`, if one is given."""
    fake = Fake(behave)
    server = ThreadingHTTPServer(("127.0.0.1", port), _handler(fake))
    server.daemon_threads = True
    fake.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield fake
    finally:
        server.shutdown()
        server.server_close()
