"""Settings of the backends, one class each, and which decoders and models each of them can run. No torch here."""

from __future__ import annotations

import math
import re
import string
from dataclasses import dataclass, field
from typing import Any

from lopa_bench.errors import BackendError

SERVERS = ("sglang", "openai")
PLACEHOLDERS = ("python", "model", "host", "port", "dtype", "max_length", "algorithm")


@dataclass
class BackendSettings:
    """What every backend has."""

    name: str = "local"


@dataclass
class LocalSettings(BackendSettings):
    """This process. `threads`: CPU threads of torch; null: 1 for a small model, else torch's choice.

    `prefix_reuse`: off; exact (an equal prompt again, block-causal attention); approximate (the longest common prefix
    with the request before, whose values have seen the rest of that prompt: rows are marked).
    """

    device: str = "auto"
    threads: int | None = None
    compile: bool = False
    prefix_reuse: str = "off"


@dataclass
class ServerSettings(BackendSettings):
    """A server, found at `url`; or, if `launch`, started with `command` + `args`, and `env` added to the environment
    (docs/baselines.md).

    Which requests: `api` generate (SGLang's own), completions or chat; `prompt` as token ids or text (a chat request
    has messages); `model_name` as the server calls the model, null: model.path; `body`: further fields of a request;
    `stop`: send the task's stop strings (false: a text ends with its end token or decoder.gen_length, as with every
    local decoder, and is cut afterwards); `stream` for the time to the first token; `stream_usage`: ask for a usage
    record at the end of a stream. The key is read from the environment variable `key_env` and never stored.
    How they are sent: `concurrency` at once at most, `rate` a second on average (Poisson arrivals; null: as fast as
    they are answered), `timeout_s` each, `retries` after 429, 5xx and broken connections, first after `backoff_s`,
    then twice as long each time. `flush_cache`: empty the server's prefix cache before each request (SGLang).
    `slo_s`, `slo_ttft_s`: what a request may take to count as good (goodput). `algorithm`: of decoder=served.
    """

    url: str | None = None
    launch: bool = False
    command: list[str] = field(default_factory=list)
    args: list[str] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict)
    startup_s: float = 1800.0
    model_name: str | None = None
    algorithm: str | None = None
    api: str = "completions"
    prompt: str = "ids"
    body: dict[str, Any] = field(default_factory=dict)
    stop: bool = False
    stream: bool = False
    stream_usage: bool = True
    flush_cache: bool = False
    key_env: str = "OPENAI_API_KEY"
    timeout_s: float = 600.0
    retries: int = 4
    backoff_s: float = 0.5
    concurrency: int = 1
    rate: float | None = None
    slo_s: float | None = None
    slo_ttft_s: float | None = None


SETTINGS: dict[str, type[BackendSettings]] = {"local": LocalSettings} | dict.fromkeys(SERVERS, ServerSettings)

_CHOICES = {
    "device": ("auto", "cpu", "cuda", "mps", "npu"),
    "prefix_reuse": ("off", "exact", "approximate"),
    "prompt": ("ids", "text"),
}
_APIS = {"sglang": ("generate",), "openai": ("completions", "chat")}
_RANGES = {"threads": (1, 4096), "retries": (0, 65536), "concurrency": (1, 65536)}
_ABOVE_ZERO = ("timeout_s", "startup_s", "rate", "slo_s", "slo_ttft_s", "backoff_s")


def check_backend(settings: BackendSettings) -> None:
    """Raises BackendError for the first value that is not allowed."""
    if settings.name not in SETTINGS:
        raise BackendError(f"backend.name={settings.name} is not allowed; allowed: {', '.join(SETTINGS)}")
    choices = _CHOICES | ({"api": _APIS[settings.name]} if settings.name in SERVERS else {})
    for name, allowed in choices.items():
        value = getattr(settings, name, None)
        if value is not None and (value.partition(":")[0] if name == "device" else value) not in allowed:
            raise BackendError(f"backend.{name}={value} is not allowed; allowed: {', '.join(allowed)}")
    for name, (least, most) in _RANGES.items():
        value = getattr(settings, name, None)
        if value is not None and not least <= value <= most:
            raise BackendError(f"backend.{name}={value} is not allowed; allowed: integers from {least} to {most}")
    for name in _ABOVE_ZERO:
        value = getattr(settings, name, None)
        if value is not None and not (0 < value < math.inf):
            raise BackendError(f"backend.{name}={value} is not allowed; allowed: numbers above 0")
    if isinstance(settings, ServerSettings):
        _check_server(settings)


def _check_server(settings: ServerSettings) -> None:
    if settings.url is None and not settings.launch:
        raise BackendError(
            "backend.url is not set; allowed: http://HOST:PORT of a running server, or backend.launch=true to start one"
        )
    if settings.url is not None and not re.fullmatch(r"https?://[^/\s]+(/[^\s?#]*)?", settings.url):
        raise BackendError(f"backend.url={settings.url} is not allowed; allowed: http://HOST:PORT or https://HOST:PORT")
    if settings.launch and not settings.command:
        raise BackendError(
            "backend.launch=true needs backend.command; allowed: backend=sglang, vllm, lmdeploy or transformers_serve, "
            "which have one, or a list of words"
        )
    for word in (*settings.command, *settings.args) if settings.launch else ():
        names = [name for _, name, _, _ in string.Formatter().parse(word) if name is not None]
        if wrong := [name for name in names if name not in PLACEHOLDERS]:
            raise BackendError(f"backend.command: {{{wrong[0]}}} is unknown; allowed: {', '.join(PLACEHOLDERS)}")
    if settings.flush_cache and (settings.name != "sglang" or settings.concurrency > 1):
        raise BackendError(
            "backend.flush_cache=true needs backend.name=sglang and backend.concurrency=1: a cache in use cannot be "
            "emptied; allowed here: false"
        )
    if settings.slo_ttft_s is not None and not settings.stream:
        raise BackendError(f"backend.slo_ttft_s={settings.slo_ttft_s} needs backend.stream=true")


def check_together(settings: BackendSettings, decoder: str, model: str, layout: str | None) -> None:
    """Whether this backend can run the decoder with a model of this layout. Raises BackendError."""
    is_causal = layout == "causal"
    if settings.name in SERVERS and decoder not in ("ar", "served"):
        allowed = "ar" if is_causal else "served"
        raise BackendError(
            f"decoder={decoder} cannot run on backend={settings.name}, which decodes by itself; allowed: "
            f"decoder={allowed} with model={model}, or backend=local"
        )
    if settings.name == "local" and decoder == "served":
        raise BackendError(f"decoder=served needs a server; allowed: backend={', '.join(SERVERS)}")
    if decoder == "ar" and not is_causal:
        raise BackendError(
            f"decoder=ar needs an autoregressive model; allowed: model=mini_ar, qwen3_8b, causal, not model={model} "
            f"(model.layout={layout})"
        )
    if decoder != "ar" and is_causal:
        raise BackendError(f"model={model} is autoregressive: decoder={decoder} cannot run it; allowed: decoder=ar")
