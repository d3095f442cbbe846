"""One request to a server: sent, awaited up to a deadline, sent again where that can help, and read, with times."""

from __future__ import annotations

import json
import math
import random
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any

import httpx

from lopa_bench.settings.backend import ServerSettings

CONNECT_S = 10.0
LONGEST_WAIT_S = 60.0
RETRIED = (408, 409, 425, 429, 500, 502, 503, 504, 529)
TOO_LONG = ("context length", "maximum context", "context_length", "longer than", "exceeds the max", "too long")
MESSAGE_LENGTH = 300


class Failure(Exception):
    """A request that came to nothing. `status` is the sample's finish reason, the message goes to its row.

    timeout: no whole answer in time. server_error: 429 or 5xx on every attempt. unreachable: no connection on every
    attempt. refused: another 4xx. prompt_too_long: a 4xx that says so. invalid_reply: not what the protocol promises.
    """

    def __init__(self, status: str, message: str, attempts: int = 1) -> None:
        super().__init__(f"{message} ({attempts} attempts)" if attempts > 1 else message)
        self.status = status


@dataclass(frozen=True)
class Answer:
    """`events`: the one JSON object of the answer, or those of a stream, each with the seconds after sending."""

    events: list[tuple[float, Any]]
    total_s: float
    attempts: int


class Client:
    """A connection to one server, for several threads."""

    def __init__(self, url: str, settings: ServerSettings, key: str | None) -> None:
        self.url = url.rstrip("/")
        self.settings = settings
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=settings.concurrency)
        timeout = httpx.Timeout(settings.timeout_s, connect=min(CONNECT_S, settings.timeout_s))
        # trust_env=False: a proxy of the environment would be measured too, or answer for a server that is gone
        self._http = httpx.Client(headers=headers, limits=limits, timeout=timeout, trust_env=False)

    def close(self) -> None:
        self._http.close()

    def get(self, path: str, timeout_s: float = CONNECT_S) -> Any:
        """The JSON of a small resource; None if the server has none. Raises Failure if it cannot be reached."""
        try:
            response = self._http.get(self.url + path, timeout=timeout_s)
        except httpx.HTTPError as error:
            raise Failure("unreachable", _said(error)) from None
        try:
            return response.json() if response.is_success else None
        except ValueError:
            return {}

    def is_there(self) -> bool:
        """Whether anything answers at all."""
        try:
            self._http.get(self.url + "/health", timeout=CONNECT_S)
        except httpx.HTTPError:
            return False
        return True

    def poke(self, path: str) -> None:
        """A POST without a body whose answer says nothing but success. Raises Failure."""
        try:
            response = self._http.post(self.url + path, timeout=CONNECT_S)
        except httpx.HTTPError as error:
            raise Failure("unreachable", _said(error)) from None
        if not response.is_success:
            raise Failure("server_error", f"{path}: HTTP {response.status_code}: {_message(response.text)}")

    def post(self, path: str, body: Mapping[str, Any]) -> Answer:
        """The answer to a request, its clock starting with the attempt that succeeded. Raises Failure."""
        for attempt in range(1, self.settings.retries + 2):
            try:
                return self._attempt(path, body, attempt)
            except _Again as again:
                if attempt > self.settings.retries:
                    raise Failure(again.status, str(again), attempt) from None
                time.sleep(self._wait(attempt, again.after_s))
        raise AssertionError("the last attempt returns or raises")

    def _wait(self, attempt: int, wanted: float | None) -> float:
        """Seconds before the next attempt: what the server asks for, else twice as long each time, a little apart."""
        doubled = self.settings.backoff_s * 2 ** (attempt - 1) * random.uniform(0.8, 1.2)
        return min(LONGEST_WAIT_S, doubled if wanted is None else wanted)

    def _attempt(self, path: str, body: Mapping[str, Any], attempt: int) -> Answer:
        began = time.perf_counter()
        try:
            with self._http.stream("POST", self.url + path, json=dict(body)) as response:
                if not response.is_success:
                    raise _error(response, attempt)
                lines = _lines(response, began, self.settings.timeout_s)
                events = list(_stream_events(lines) if body.get("stream") else _one_event(lines))
        except httpx.ConnectTimeout as error:
            raise _Again("unreachable", _said(error)) from None
        except httpx.TimeoutException:
            raise Failure("timeout", f"no answer within {self.settings.timeout_s:g} s") from None
        except httpx.HTTPError as error:
            raise _Again("unreachable", _said(error)) from None
        return Answer(events, time.perf_counter() - began, attempt)


class _Again(Exception):
    """An attempt that may go better the next time."""

    def __init__(self, status: str, message: str, after_s: float | None = None) -> None:
        super().__init__(message)
        self.status, self.after_s = status, after_s


def _error(response: httpx.Response, attempt: int) -> Exception:
    """What to raise for an answer that is no success."""
    text = response.read().decode("utf-8", "replace")
    message = f"HTTP {response.status_code}: {_message(text)}"
    if response.status_code in RETRIED:
        return _Again("server_error", message, _seconds(response.headers.get("retry-after")))
    if response.status_code >= 500:
        return Failure("server_error", message, attempt)
    too_long = any(words in text.lower() for words in TOO_LONG)
    return Failure("prompt_too_long" if too_long else "refused", message, attempt)


def _message(text: str) -> str:
    """The reason in an error's body: {"error": {"message": ...}}, {"detail": ...}, or plain text."""
    try:
        value = json.loads(text)
    except ValueError:
        value = text
    for name in ("error", "message", "detail"):
        if isinstance(value, dict) and name in value:
            value = value[name]
    return (value if isinstance(value, str) else json.dumps(value)).strip()[:MESSAGE_LENGTH]


def _seconds(header: str | None) -> float | None:
    """What Retry-After asks for: seconds, or a date."""
    if not header:
        return None
    try:
        wanted = float(header)
    except ValueError:
        try:
            wanted = parsedate_to_datetime(header).timestamp() - time.time()
        except (ValueError, OverflowError):
            return None
    return max(0.0, wanted) if math.isfinite(wanted) else None


def _lines(response: httpx.Response, began: float, limit_s: float) -> Iterator[tuple[float, str]]:
    """The lines of the body, each with the seconds after sending. Raises Failure behind the deadline: a server that
    sends a byte now and then would never time out.

    A line ends with a newline and with nothing else: a model's text may hold U+2028 and its like, unescaped.
    """
    rest, seconds = b"", 0.0
    for chunk in response.iter_bytes():
        seconds = time.perf_counter() - began
        if seconds > limit_s:
            raise Failure("timeout", f"no whole answer within {limit_s:g} s")
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield seconds, line.decode("utf-8", "replace").removesuffix("\r")
    if rest:
        yield seconds, rest.decode("utf-8", "replace")


def _one_event(lines: Iterator[tuple[float, str]]) -> Iterator[tuple[float, Any]]:
    timed = list(lines)
    data = "\n".join(line for _, line in timed)
    event = _object(data)
    if event.get("error"):
        raise Failure("server_error", f"in the reply: {_message(data)}")
    yield timed[-1][0] if timed else 0.0, event


def _stream_events(lines: Iterator[tuple[float, str]]) -> Iterator[tuple[float, Any]]:
    """The objects of server-sent events up to [DONE]. Raises Failure for a stream that says it failed or breaks off."""
    for seconds, line in lines:
        if not line.startswith("data:"):
            continue
        data = line.removeprefix("data:").strip()
        if data == "[DONE]":
            return
        event = _object(data)
        if event.get("error"):
            raise Failure("server_error", f"in the stream: {_message(data)}")
        yield seconds, event


def _object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise Failure("invalid_reply", f"no JSON ({error}): {text[:80]!r}") from None
    if not isinstance(value, dict):
        raise Failure("invalid_reply", f"a JSON {type(value).__name__} where an object was due")
    return value


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".rstrip(": ")
